"""`sink-elementwise`: what is computed of rows for one loop alone is computed by the loop, row by row.

    P = X W;  F = logistic(P + b);  loop over F          ->      P = X W;  loop over P: f = logistic(p + b)

A kernel computes it in registers, where a tensor of all steps would be written and read again. Only elementwise ops and
slices of columns move, each of which nothing else reads. Rows that a product of the loop reads stay: a kernel reads
them where they lie. Rows beside a matrix state stay: a step would compute them for each of its rows (an mLSTM took 1.1
to 1.4 times as long).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lstm_ir.ir.clone import clone
from lstm_ir.ir.graph import Graph, Node, Value, make, substitute
from lstm_ir.ir.leaf import constant, parameter
from lstm_ir.ir.literals import splat
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.scan.node import scan_node
from lstm_ir.passes.base import KernelPass, Notes, register
from lstm_ir.passes.rewrite import with_bodies
from lstm_ir.passes.tuned import LOOP_TENSORS

KERNEL_OPS = frozenset((
    "add", "subtract", "multiply", "divide", "negate", "abs", "maximum", "minimum", "select", "compare", "convert",
    "exponential", "log", "logistic", "tanh", "sqrt", "rsqrt", "log_plus_one", "exponential_minus_one",
))  # fmt: skip
"""What every kernel computes: with another op inside, a loop would be no kernel."""
KERNEL_TYPES = (DType.f32, DType.f64, DType.i1)


def of_elements(n: Node) -> bool:
    """Whether every kernel computes the node, element by element."""
    known = n.op.name in KERNEL_OPS and all(v.dtype in KERNEL_TYPES for v in (*n.inputs, *n.values))
    return known and not n.ranges


@register
@dataclass(frozen=True)
class SinkElementwise(KernelPass):
    """Elementwise work on scanned rows, in the loop that reads them."""

    name: ClassVar[str] = "sink-elementwise"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with such work in its loops; only a CPU's kernels gain by it."""
        if not self.for_cpu_kernels(target):
            return graph
        return self._sunk(graph, notes)

    def _sunk(self, graph: Graph, notes: Notes) -> Graph:
        graph = with_bodies(graph, lambda body: self._sunk(body, notes))
        new: dict[Value, Value] = {}
        for n in graph.nodes:
            loop = Loop.of(n, until=True)
            if loop is None:
                continue
            with at(n.loc.through(self.name)):
                found = _Sinking(graph, loop).results()
            if found is not None:
                notes.fire("elementwise work on rows, in the loop", n.loc)
                new |= found
        read = set(graph.outputs) | set(graph.users)
        return substitute(graph, {v: w for v, w in new.items() if v in read})


@dataclass
class _Sinking:
    """One loop, and the rows that it will make itself."""

    graph: Graph
    loop: Loop
    consts: dict[Value, Value] = field(default_factory=dict)  # outside -> inside
    leaves: dict[tuple[Value, bool], Value] = field(default_factory=dict)  # scanned instead: (outside, reverse)
    _made: dict[tuple[Value, bool], Value] = field(default_factory=dict)

    def results(self) -> dict[Value, Value] | None:
        """Old results -> new ones; None where nothing moves."""
        loop = self.loop
        operands = list(zip(loop.xs, loop.x_params, loop.x_reverse, strict=True))
        self.free = {x for x in loop.xs if all(self._elementwise(p) for y, p, _ in operands if y is x)}
        self.free -= {*loop.consts, *loop.init}
        self.inner = self._moving()
        moved = [(x, p, r) for x, p, r in operands if x in self.inner]
        if not moved or loop.length == 1 or any(t.rank > x.rank - 1 for t in loop.carry_types for x, _, _ in moved):
            return None
        env = {p: self._row(x, r) for x, p, r in moved}
        if len(loop.node.inputs) + len(loop.node.values) + len(self.leaves) - len(moved) > LOOP_TENSORS:
            return None
        xs = [(x, p, r) for x, p, r in operands if p not in env]
        xs += [(x, p, r) for (x, r), p in self.leaves.items()]
        rows = [p for _, p, _ in xs]
        params = [loop.step, *loop.const_params, *self.consts.values(), *loop.carry_params, *rows]
        env |= {p: p for p in loop.body.params if p not in env}
        body = Graph(loop.body.name, params, clone(loop.body.outputs, env))
        node = scan_node(
            body, (*loop.consts, *self.consts), loop.init, tuple(x for x, _, _ in xs), length=loop.length,
            reverse=(*(r for _, _, r in xs), *loop.y_reverse), count=loop.count, until=loop.until,
        )  # fmt: skip
        return dict(zip(loop.node.values, node.values, strict=True))

    def _elementwise(self, p: Value) -> bool:
        """Whether the body does no more with a row than compute elements and cut columns."""
        users = self.loop.body.users.get(p, ())
        light = all(Trait.elementwise in u.op.traits or u.op.name == "slice" for u in users)
        return light and p not in self.loop.body.outputs

    def _moving(self) -> set[Value]:
        """Values that are computed for these rows alone."""
        inner, returned = set[Value](), frozenset(self.graph.outputs)
        for n in reversed(self.graph.nodes):
            v = n.values[0]
            users = self.graph.users.get(v, ())
            if not users or v in returned or not self._may(n):
                continue
            if all(u.values[0] in inner or (u is self.loop.node and v in self.free) for u in users):
                inner.add(v)
        return inner

    def _may(self, n: Node) -> bool:
        t = n.types[0]
        if len(n.types) > 1 or not t.rank or t.shape[0] != self.loop.length:
            return False
        if n.op.name == "slice":
            return bool(n.inputs[0].shape[0] == self.loop.length and n.attrs["strides"][0] == 1)
        return of_elements(n)

    def _row(self, v: Value, reverse: bool) -> Value:
        """One row of v, in the body."""
        made = self._made.get((v, reverse))
        if made is None:
            made = self._made[v, reverse] = self._made_row(v, reverse)
        return made

    def _made_row(self, v: Value, reverse: bool) -> Value:
        n = v.node
        if v not in self.inner:
            return self._given(v, reverse)
        if n.op.name == "slice":
            row = self._row(n.inputs[0], reverse)
            return make(n.op, row, **{k: a[1:] for k, a in n.attrs.items()}).values[0]
        return make(n.op, *(self._row(i, reverse) for i in n.inputs), **n.attrs).values[0]

    def _given(self, v: Value, reverse: bool) -> Value:
        """A row of what stays outside: the same for each step, or scanned."""
        number, n = splat(v), v.node
        if number is not None:
            return _repeated(constant(number, v.dtype), v, ())
        if not v.rank:
            return self._const(v)
        if n.op.name == "broadcast_in_dim":
            places = n.attrs["broadcast_dimensions"]
            if 0 not in places:
                return _repeated(self._const(n.inputs[0]), v, tuple(p - 1 for p in places))
            if n.inputs[0].shape[0] == self.loop.length:
                row = self._scanned(n.inputs[0], reverse)
                return _repeated(row, v, tuple(p - 1 for p in places[1:]))
        return self._scanned(v, reverse)

    def _const(self, v: Value) -> Value:
        return self.consts.setdefault(v, parameter(f"sunk{len(self.consts)}", v.type))

    def _scanned(self, v: Value, reverse: bool) -> Value:
        return self.leaves.setdefault((v, reverse), parameter(f"row{len(self.leaves)}", v.type.with_shape(v.shape[1:])))


def _repeated(v: Value, like: Value, places: tuple[int, ...]) -> Value:
    """v in the shape of a row."""
    shape = like.shape[1:]
    return broadcast_in_dim(v, shape, places) if v.shape != shape else v
