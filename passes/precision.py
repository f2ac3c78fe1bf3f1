"""`precision`: products with weights in fewer bits, in a loop's body and outside of loops.

    weights=bf16, f16     dot(x, w)   ->   dot(x, convert(convert(w, bf16), f32))
    weights=int8          dot(x, w)   ->   dot(x, convert(q, f32)) * s
    and rows=int8         dot(x, w)   ->   convert(dot(convert(p, i32), convert(q, i32)), f32) * r * s

`q` and `s` are symmetric int8 by output channel: s = max |w| / 127 over what is summed, and q = round(w / s), so no
element is further from q * s than s / 2; q is held at -127 and 127, since s of tiny weights is rounded. `p` and `r` are
the same of each row of x, made anew in each call and step. Weights' part is done once, at load. Sums are f32; those of
two int8 are i32, and exact.

The results change by these roundings, so no target's pipeline has this pass: it is asked for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from lstm_ir import ops
from lstm_ir.ir import dims
from lstm_ir.ir.errors import PassError
from lstm_ir.ir.graph import Graph, Node, Value, make, transform
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.moves import stored_narrow
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.reach import fixed
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.linear import free_axes
from lstm_ir.ops.scan.node import STEP, scan_node
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.hoist_invariants import HoistInvariants
from lstm_ir.passes.hoist_projection import HoistProjection

STORED = ("bf16", "f16", "int8")
ROWS = ("f32", "int8")
LARGEST = 127  # of int8, as it is used: symmetric
TERMS = (2**31 - 1) // LARGEST**2  # of a sum that i32 holds


@register
@dataclass(frozen=True)
class Precision(Pass):
    """f32 weights of dots stored as `weights` (bf16, f16 or int8); with rows=int8 dots of int8."""

    name: ClassVar[str] = "precision"
    weights: str = "bf16"
    rows: str = "f32"

    def __post_init__(self) -> None:
        for option, words in (("weights", STORED), ("rows", ROWS)):
            if getattr(self, option) not in words:
                raise PassError(f"pass precision: {option} is {getattr(self, option)!r}, not one of {', '.join(words)}")
        if self.rows == "int8" and self.weights != "int8":
            raise PassError(f"pass precision: rows=int8 goes with weights=int8, not {self.weights}")

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with narrow weights, made outside of its loops."""
        has = {"bf16": target is None or target.has_bf16, "f16": target is None or target.has_f16}
        if not has.get(self.weights, True):
            raise PassError(f"pass precision: target {target} cannot load {self.weights}")
        kernels = self.weights == "int8" and target is not None and target.kind == "cpu"
        if kernels and self.rows == "int8":  # rows become int8 once for all steps, and their weights are read once
            graph = HoistProjection("no").run(graph, notes, target)
        narrow = self._dots(graph, (), notes, alone=kernels)
        return graph if narrow is graph else HoistInvariants().run(narrow, Notes(), target)

    def _dots(self, graph: Graph, known: Iterable[Value], notes: Notes, alone: bool) -> Graph:
        """`alone`: products outside of loops become loops of one step, which have kernels."""
        before = fixed(graph, known)
        users = Counter([*graph.outputs, *(v for n in graph.nodes for v in n.inputs)])
        counts = iter([users[n.values[0]] if n.values else 0 for n in graph.nodes])
        made: dict[Value, _Product] = {}  # loops of one step whose result one node reads

        def one(n: Node) -> tuple[Value, ...] | None:
            read = next(counts)
            if n.op.name == "add":
                return _with_bias(n, made)
            loop = Loop.of(n, until=True)
            if loop is not None:
                body = self._dots(loop.body, loop.const_params, notes, alone=False)
                same = body is loop.body
                return None if same else make(n.op, *n.args, loc=n.loc, **{**n.attrs, "body": body}).values
            if n.op.name != "dot_general" or n.types[0].dtype is not DType.f32:
                return None
            lhs, rhs = n.inputs
            if rhs not in before or lhs in before or not rhs.type.is_static or _stored(rhs):
                return None
            with at(n.loc.through(self.name)):
                if self.weights != "int8":
                    notes.fire(f"weights in {self.weights}", n.loc)
                    wide = ops.convert(ops.convert(rhs, self.weights), DType.f32)
                    return make(n.op, lhs, wide, **n.attrs).values
                product = _Product(n, self.rows)
                notes.fire(f"weights {'and rows ' if product.of_both else ''}in int8", n.loc)
                if not (alone and product.is_of_rows):
                    return (product.value(),)
                out = product.in_a_loop()
                if read == 1:
                    made[out] = product
                return (out,)

        return transform(graph, one)


def _with_bias(n: Node, products: Mapping[Value, _Product]) -> tuple[Value, ...] | None:
    """A sum with a loop's product and a bias, made in the loop; None for others."""
    for sum_, other in (n.inputs, n.inputs[::-1]):
        product = sum_.node.inputs[0] if sum_.op == "reshape" and sum_ not in products else sum_
        bias = _row_of(other)
        if product in products and bias is not None and product.shape[-1] == sum_.shape[-1]:
            return (ops.reshape(products[product].in_a_loop(bias), sum_.shape),)
    return None


def _row_of(v: Value) -> Value | None:
    """The row [N] that is repeated to [.., N]; None for others."""
    N = v.shape[-1] if v.rank else None
    while v.op == "broadcast_in_dim" and v.rank and v.node.attrs["broadcast_dimensions"][-1:] == (v.rank - 1,):
        v = v.node.inputs[0]
    return v if v.rank == 1 and v.shape == (N,) else None


class _Product:
    """A product whose operands become int8: `left` rows, `right` weights."""

    def __init__(self, n: Node, rows: str) -> None:
        a, self.node = n.attrs, n
        self.summed = a["lhs_contracting_dimensions"], a["rhs_contracting_dimensions"]
        self.batching = a["lhs_batching_dimensions"], a["rhs_batching_dimensions"]
        self.of_both = rows == "int8" and math.prod(int(n.inputs[1].shape[axis]) for axis in self.summed[1]) <= TERMS

    def value(self) -> Value:
        """dot(x, convert(q, f32)) * s, or convert(dot(convert(p, i32), convert(q, i32)), f32) * r * s."""
        q, columns = self._int8(1)
        if not self.of_both:
            return self._dot(self.node.inputs[0], ops.convert(q, DType.f32)) * columns
        p, rows = self._int8(0)
        return ops.convert(self._dot(ops.convert(p, DType.i32), ops.convert(q, DType.i32)), DType.f32) * rows * columns

    def _dot(self, lhs: Value, rhs: Value) -> Value:
        return make(self.node.op, lhs, rhs, **self.node.attrs).values[0]

    @property
    def is_of_rows(self) -> bool:
        """[.., K] by a matrix."""
        rows, matrix = self.node.inputs
        return not self.batching[0] and self.summed[0] == (rows.rank - 1,) and matrix.rank == 2 and rows.rank > 1

    def in_a_loop(self, bias: Value | None = None) -> Value:
        """`value` plus a bias [N], in the body of a loop of one step."""
        rows, matrix = self.node.inputs
        many = dims.product(rows.shape[:-1])
        x, w = parameter("x", rows.type.with_shape((many, rows.shape[-1]))), parameter("w", matrix.type)
        dot = ops.dot_general(x, w, ((1,), self.summed[1]))
        y = _Product(dot.node, "int8" if self.of_both else "f32").value()
        consts = {w: matrix}
        if bias is not None:
            b = parameter("b", bias.type)
            y, consts[b] = y + ops.broadcast_in_dim(b, y.shape, (1,)), bias
        body = Graph("product", [parameter("step", STEP), *consts, x], [y])
        one = ops.reshape(rows, (1, *x.shape))
        out = scan_node(body, tuple(consts.values()), (), (one,), length=1, reverse=(False, False)).values[0]
        return ops.reshape(out, self.node.types[0].shape)

    def _int8(self, side: int) -> tuple[Value, Value]:
        """An operand as int8, and its scale as the product has axes."""
        x, summed, batching = self.node.inputs[side], self.summed[side], self.batching[side]
        largest = ops.max(ops.abs(x), tuple(sorted(summed)))
        scale = ops.select(ops.compare(largest, 0.0, "EQ"), 1.0, largest / float(LARGEST))
        kept = [axis for axis in range(x.rank) if axis not in summed]
        q = ops.round(x / ops.broadcast_in_dim(scale, x.shape, tuple(kept)))
        if side:
            q = ops.clamp(float(-LARGEST), q, float(LARGEST))
        free = free_axes(x.rank, batching, summed)
        first = len(batching) + (side and self.node.inputs[0].rank - len(batching) - len(self.summed[0]))
        places = {axis: i for i, axis in enumerate(batching)} | {axis: first + i for i, axis in enumerate(free)}
        order = sorted(range(len(kept)), key=lambda i: places[kept[i]])
        turned = scale if order == sorted(order) else ops.transpose(scale, order)
        wide = ops.broadcast_in_dim(turned, self.node.types[0].shape, tuple(places[kept[i]] for i in order))
        return ops.convert(q, DType.i8), wide


def _stored(v: Value) -> bool:
    """Already narrow, up to rearrangement after it was widened."""
    while Trait.data_movement in v.node.op.traits and len(v.node.inputs) == 1:
        v = v.node.inputs[0]
    return stored_narrow(v)
