"""The NumPy meaning of a graph: runs node by node with each op's `numpy` rule.

The oracle for everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.errors import CallError, LstmIrError, ValueRangeError, message
from lstm_ir.ir.graph import Arg, Graph, Node, Value
from lstm_ir.ir.graph import operand_types as _operand_types
from lstm_ir.ir.program import entry_signature
from lstm_ir.ir.signature import by_name, check_call
from lstm_ir.ir.types import TensorType

Array = np.ndarray[Any, Any]


def interpret(
    graph: Graph, inputs: Mapping[str, Any] | None = None, /, *positional: Any, **named: Any
) -> dict[str, Array]:
    """Outputs by name, from inputs by name. Raises CallError or ValueRangeError for bad input."""
    if not isinstance(graph, Graph):
        raise CallError(f"interpret: takes a graph, got {type(graph).__name__}")
    entry = entry_signature(graph)
    given = named if inputs is None and not positional else by_name(entry, (inputs, *positional), named)
    arrays = check_call(entry, given)
    ordered = [arrays[name] for name in graph.input_names]
    env = entry.bound(tuple(a.shape for a in ordered)).env
    outputs = _own(evaluate(graph, ordered, env), ordered)
    return dict(zip(graph.output_names, outputs, strict=True))


def _own(outputs: Sequence[Array], given: Sequence[Array]) -> list[Array]:
    """The outputs as arrays that the caller may write into: none is part of an input, a weight or another output."""
    held: list[Array] = list(given)
    for a in outputs:
        shared = not a.flags.writeable or any(np.may_share_memory(a, b) for b in held)
        held.append(a.copy() if shared else a)
    return held[len(given) :]


def evaluate(graph: Graph, arrays: Sequence[Array], env: Mapping[str, int]) -> list[Array]:
    """Outputs in order, from arrays for the inputs in order, with dimension names bound."""
    known: dict[Value, Array] = dict(zip(graph.params, arrays, strict=True))
    for node in graph.nodes:
        if node.op.name == "parameter":
            continue
        for value, array in zip(node.values, run_node(node, known, env), strict=True):
            known[value] = array
    return [known[v] for v in graph.outputs]


def run_node(node: Node, known: Mapping[Value, Array], env: Mapping[str, int]) -> list[Array]:
    """The results of one node, their types and the node's value preconditions checked."""
    _check_ranges(node, known, env)
    for r in node.requires:
        if dims.evaluate(r.dim, env) < 0:
            raise CallError(message(node.op.name, r.what, _operand_types(node.op, node.args), node.loc))
    args = [_array_arg(a, known) for a in node.args]
    attrs = {k: bind_attr(v, env) for k, v in node.attrs.items()}
    with np.errstate(all="ignore"):
        out = node.op.numpy(*args, **attrs)
    results = list(out) if isinstance(out, (tuple, list)) else [out]
    if len(results) != len(node.types):
        raise LstmIrError(f"{node.op.name}: meaning gives {len(results)} results, type rule {len(node.types)}")
    return [_checked(node, r, t, env) for r, t in zip(results, node.types, strict=True)]


def _checked(node: Node, result: Any, kind: TensorType, env: Mapping[str, int]) -> Array:
    array = np.asarray(result, dtype=kind.dtype.numpy)
    shape = tuple(dims.evaluate(d, env) for d in kind.shape)
    if array.shape != shape:
        raise LstmIrError(f"{node.op.name}: meaning gives shape {array.shape}, type rule {kind} = {shape}")
    return array


def _array_arg(arg: Arg, known: Mapping[Value, Array]) -> Any:
    if isinstance(arg, tuple):
        return tuple(known[v] for v in arg)
    return None if arg is None else known[arg]


def _check_ranges(node: Node, known: Mapping[Value, Array], env: Mapping[str, int]) -> None:
    for r in node.ranges:
        arg = node.arg(r.operand)
        if not isinstance(arg, Value):
            continue
        low, high = dims.evaluate(r.low, env), dims.evaluate(r.high, env)
        array = known[arg]
        if array.size and not (low <= int(array.min()) and int(array.max()) <= high):
            worst = int(array.min()) if int(array.min()) < low else int(array.max())
            numbers = "" if (low, high) == (r.low, r.high) else f" = {low}..{high}"
            problem = f"{r.operand} holds {worst}, outside {r.low}..{r.high}{numbers}{r.added}"
            raise ValueRangeError(message(node.op.name, problem, _operand_types(node.op, node.args), node.loc))


def bind_attr(value: Any, env: Mapping[str, int]) -> Any:
    """An attribute as a `numpy` rule takes it: sizes as ints, a graph as a function of arrays."""
    if isinstance(value, dims.Expr):
        return dims.evaluate(value, env)
    if isinstance(value, tuple):
        return tuple(bind_attr(v, env) for v in value)
    if isinstance(value, Graph):
        return InterpretedBody(value, env)
    return value


@dataclass(frozen=True)
class InterpretedBody:
    """A graph that an attribute holds, as a function of arrays."""

    graph: Graph
    env: Mapping[str, int]

    def __call__(self, *arrays: Any) -> list[Array]:
        """The outputs in order."""
        return evaluate(self.graph, arrays, self.env)

    def zeros(self) -> list[Array]:
        """Zeros of the outputs' types: what they look like where the graph is not run."""
        types = [v.type for v in self.graph.outputs]
        return [np.zeros([dims.evaluate(d, self.env) for d in t.shape], t.dtype.numpy) for t in types]
