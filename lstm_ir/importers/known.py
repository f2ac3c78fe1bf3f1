"""What is known of a value at import: its elements, computed by the NumPy meaning of its nodes."""

from __future__ import annotations

from collections.abc import Container, Iterator
from math import prod
from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.data import Data
from lstm_ir.ir.dims import Expr
from lstm_ir.ir.graph import Node, Value, topological
from lstm_ir.ir.interpret import run_node
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.literals import splat
from lstm_ir.ir.moves import MOVES
from lstm_ir.ir.opdef import Level
from lstm_ir.ir.types import TensorType

Array = np.ndarray[Any, Any]
MAX_ELEMENTS = 2**27  # of one array that is computed at import
MAX_COMPARED = 16  # numbers in one comparison
MAX_BITS = 2**62  # that are counted
SMALL = 2**16  # elements that are folded although what they come from is smaller
MAX_BYTES = 2**31  # of all arrays that one walk computes
MAX_WORK = 2**33  # numbers that it reads and makes for them


class Knowledge:
    """The elements of values that depend on weights and constants alone, each computed once."""

    def __init__(self) -> None:
        self._fixed: dict[Node, bool] = {}  # depends on weights and constants alone
        self._literal: dict[Node, bool] = {}  # depends on constants alone
        self._source_bits: dict[Node, int] = {}  # of the literals and weights that it comes from
        self._arrays: dict[Value, Array] = {}
        self._computed: set[Node] = set()
        self._bytes = self._work = 0

    def array(self, v: Value) -> Array | None:
        """The elements of `v`; None where they depend on an input, or are too many: also of all that were asked for."""
        if not self._is_fixed(v.node):
            return None
        for n in _new_nodes(v.node, self._computed):
            if not self._affords(n):
                return None
            self._arrays.update(zip(n.values, run_node(n, self._arrays, {}), strict=True))
            self._computed.add(n)
        return self._arrays[v]

    def folded(self, v: Value) -> Value:
        """`v` as one constant where it depends on constants alone, else `v`.

        A number that is repeated stays so, weights keep their names, and what is larger than the literals that it
        comes from stays computed: 8-bit integers times their scale.
        """
        if v.op == "constant" or not self._is_fixed(v.node) or not self._literal[v.node] or splat(v) is not None:
            return v
        if _elements(v.type) > SMALL and _bits(v.type) > self._source_bits[v.node]:
            return v
        array = self.array(v)
        return v if array is None else constant(Data.of(array))

    def _affords(self, node: Node) -> bool:
        """Whether a node may still be computed; it is then counted. What a file holds is not computed."""
        held = node.op.name in ("constant", "weight")
        size, work = (0, 0) if held else (sum(map(_bits, node.types)) // 8, _work(node))
        if self._bytes + size > MAX_BYTES or self._work + work > MAX_WORK:
            return False
        self._bytes, self._work = self._bytes + size, self._work + work
        return True

    def is_zero(self, v: Value) -> bool:
        """Whether every element is known to be 0, at whatever size the value has."""
        todo = [v]
        while todo:
            u = todo.pop()
            if splat(u) == 0:
                continue
            if u.op in MOVES:
                todo += u.node.inputs
                continue
            array = self.array(u)
            if array is None or array.any():
                return False
        return True

    @staticmethod
    def depends_on(v: Value) -> tuple[list[str], list[str]]:
        """The inputs and the named sizes that the elements of `v` depend on."""
        inputs: set[str] = set()
        names: set[str] = set()
        for n in topological([v.node]):
            if n.op.name == "parameter":
                inputs.add(n.attrs["name"])
            elif n.op.name == "dim":
                names |= dims.names(n.attrs["size"])
        return sorted(inputs), sorted(names)

    def compared(self, v: Value) -> dict[str, tuple[int | float | bool, ...]]:
        """By input, the numbers that inputs are compared with on the way to `v`, in order of size."""
        found: dict[str, set[int | float | bool]] = {}
        for n in topological([v.node]):
            if n.op.name != "compare":
                continue
            for a, b in (n.inputs, n.inputs[::-1]):
                array = self.array(b)
                inputs, _ = self.depends_on(a)
                if array is not None and array.size <= MAX_COMPARED and len(inputs) == 1:
                    found.setdefault(inputs[0], set()).update(array.reshape(-1).tolist())
        return {name: tuple(sorted(values)) for name, values in found.items()}

    def _is_fixed(self, node: Node) -> bool:
        for n in _new_nodes(node, self._fixed):
            below = [v.node for v in n.inputs]
            computed = n.op.level is Level.primitive and n.op.name not in ("parameter", "scan") and not _reads_sizes(n)
            small = all(t.is_static and _elements(t) <= MAX_ELEMENTS for t in n.types)
            self._fixed[n] = computed and small and all(self._fixed[b] for b in below)
            held = sum(map(_bits, n.types)) if n.op.name in ("constant", "weight") and small else 0
            # What two operands share counts twice, so a long chain would count without end.
            self._source_bits[n] = min(held + sum(self._source_bits[b] for b in dict.fromkeys(below)), MAX_BITS)
            self._literal[n] = n.op.name != "weight" and all(self._literal[b] for b in below)
        return self._fixed[node]


def _elements(t: TensorType) -> int:
    """How many elements a tensor has whose sizes are numbers."""
    return prod(d for d in t.shape if isinstance(d, int))


def _bits(t: TensorType) -> int:
    return t.dtype.bits * _elements(t)


def _work(node: Node) -> int:
    """Numbers that a node reads and makes; a product reads a row for each number that it makes."""
    made, read = sum(map(_elements, node.types)), sum(_elements(v.type) for v in node.inputs)
    if node.op.name == "dot_general":
        lhs = node.inputs[0].type
        made *= prod(d for a in node.attrs["lhs_contracting_dimensions"] if isinstance(d := lhs.shape[a], int))
    elif node.op.name == "stencil":
        made *= prod(d for d in node.inputs[1].shape[2:] if isinstance(d, int))
    elif node.op.name == "stencil_grad":
        batch, *_, height, width = node.inputs[1].shape
        made *= prod(d for d in (batch, height, width) if isinstance(d, int))
    return made + read


def _reads_sizes(node: Node) -> bool:
    """Whether an attribute holds a size that only calls know."""
    return any(isinstance(d, Expr) for a in node.attrs.values() for d in (a if isinstance(a, tuple) else (a,)))


def _new_nodes(root: Node, seen: Container[Node]) -> Iterator[Node]:
    """Nodes below `root` that are not in `seen`, each after its inputs."""
    done: set[Node] = set()
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node in seen or node in done:
            continue
        if ready:
            done.add(node)
            yield node
        else:
            stack.append((node, True))
            stack += [(v.node, False) for v in node.inputs]
