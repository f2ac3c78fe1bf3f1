"""`precision`: products with weights in fewer bits, in a loop's body and outside of loops.

    weights=bf16, f16     dot(x, w)   ->   dot(x, convert(convert(w, bf16), f32))
    weights=int8          `int8_products.py`, with rows=f32, int8 or int24

Weights' part is done once, at load. Sums are f32; those of two int8 are i32, and exact. Rows are f32, but numbers of 24
bits where weights are int8 and the target multiplies bytes four at a time by one instruction: three of it take the
place of the twelve that widen, convert and multiply 64 weights.

The results change by these roundings, so no target's pipeline has this pass: it is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from lstm_ir import ops
from lstm_ir.ir import dims
from lstm_ir.ir.errors import PassError
from lstm_ir.ir.graph import Graph, Node, Value, make, transform
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.moves import stored_narrow
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.reach import fixed, reached
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.hoist_invariants import HoistInvariants
from lstm_ir.passes.hoist_projection import hoisted
from lstm_ir.passes.int8_products import Int8Product
from lstm_ir.passes.tuned import BYTES_HOISTED, BYTES_ROWS

STORED = ("bf16", "f16", "int8")
NOTES = {
    "f32": "weights in int8", "int8": "weights and rows in int8", "int24": "weights in int8, rows in 24 bits",
}  # fmt: skip
ROWS = ("auto", "f32", "int24", "int8")


@register
@dataclass(frozen=True)
class Precision(Pass):
    """f32 weights of dots stored as `weights` (bf16, f16 or int8); with rows=int8 or int24 dots of int8."""

    name: ClassVar[str] = "precision"
    weights: str = "bf16"
    rows: str = "auto"

    def __post_init__(self) -> None:
        for option, words in (("weights", STORED), ("rows", ROWS)):
            if getattr(self, option) not in words:
                raise PassError(f"pass precision: {option} is {getattr(self, option)!r}, not one of {', '.join(words)}")
        if self.rows in ("int8", "int24") and self.weights != "int8":
            raise PassError(f"pass precision: rows={self.rows} goes with weights=int8, not {self.weights}")

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with narrow weights, made outside of its loops."""
        has = {"bf16": target is None or target.has_bf16, "f16": target is None or target.has_f16}
        if not has.get(self.weights, True):
            raise PassError(f"pass precision: target {target} cannot load {self.weights}")
        kernels = self.weights == "int8" and target is not None and target.kind == "cpu"
        rows = self._rows(target)
        if kernels and rows != "f32":  # rows become bytes once for all steps, and their weights are read once
            graph = hoisted(graph, notes, None if rows == "int8" else partial(_outgrows, target))
        narrow = self._dots(graph, (), notes, rows, alone=kernels)
        return graph if narrow is graph else HoistInvariants().run(narrow, Notes(), target)

    def _rows(self, target: TargetInfo | None) -> str:
        """What rows become."""
        bytes_ = self.weights == "int8" and target is not None and target.has_vpdpbusd
        return self.rows if self.rows != "auto" else "int24" if bytes_ else "f32"

    def _dots(self, graph: Graph, known: Iterable[Value], notes: Notes, rows: str, alone: bool) -> Graph:
        """`alone`: products outside of loops become loops of one step, which have kernels."""
        before = fixed(graph, known)
        users = Counter([*graph.outputs, *(v for n in graph.nodes for v in n.inputs)])
        counts = iter([users[n.values[0]] if n.values else 0 for n in graph.nodes])
        made: dict[Value, Int8Product] = {}  # loops of one step whose result one node reads

        def one(n: Node) -> tuple[Value, ...] | None:
            read = next(counts)
            if n.op.name == "add":
                return _with_bias(n, made)
            loop = Loop.of(n, until=True)
            if loop is not None:
                body = self._dots(loop.body, loop.const_params, notes, rows, alone=False)
                same = body is loop.body
                return None if same else make(n.op, *n.args, loc=n.loc, **{**n.attrs, "body": body}).values
            if n.op.name != "dot_general" or n.types[0].dtype is not DType.f32:
                return None
            weights = [v in before and v.type.is_static and not _stored(v) for v in n.inputs]
            if all(v in before for v in n.inputs) or not any(weights):
                return None
            with at(n.loc.through(self.name)):
                if weights[1]:
                    return (narrow(n, read),)
                other, order = _other_way(n)
                return (ops.transpose(narrow(other, read), order),)

        def narrow(n: Node, read: int) -> Value:
            """Of a product whose second operand is the weight."""
            lhs, rhs = n.inputs
            if self.weights != "int8":
                notes.fire(f"weights in {self.weights}", n.loc)
                wide = ops.convert(ops.convert(rhs, self.weights), DType.f32)
                return make(n.op, lhs, wide, **n.attrs).values[0]
            product = Int8Product(n, rows)
            notes.fire(NOTES[product.rows], n.loc)
            if alone and product.is_of_directions:
                return product.of_directions()
            if not (alone and product.is_of_rows):
                return product.value()
            out = product.in_a_loop()
            if read == 1:
                made[out] = product
            return out

        return transform(graph, one)


def _other_way(n: Node) -> tuple[Node, list[int]]:
    """The product with its operands exchanged, and the order of its axes that is that of `n`."""
    (lhs, rhs), a = n.inputs, n.attrs
    summed = a["rhs_contracting_dimensions"], a["lhs_contracting_dimensions"]
    batching = a["rhs_batching_dimensions"], a["lhs_batching_dimensions"]
    shared, columns = len(batching[0]), rhs.rank - len(batching[0]) - len(summed[0])
    rank = n.types[0].rank
    order = [*range(shared), *range(shared + columns, rank), *range(shared, shared + columns)]
    return ops.dot_general(rhs, lhs, summed, batching).node, order


def _outgrows(target: TargetInfo | None, loop: Loop) -> bool:
    """Whether each step of a row or two would read more weights than L2 holds, in int8. Products of all steps take
    memory, and a product of three bytes by many rows takes as long in the loop."""
    rows = next((t.shape[-2] for t in loop.carry_types if t.rank > 1), 1)
    few = isinstance(rows, int) and rows <= BYTES_ROWS
    if target is None or not few or not isinstance(loop.length, int) or loop.until:
        return False
    before, carried = fixed(loop.body, loop.const_params), reached(loop.body.nodes, loop.carry_params)
    products = [n for n in loop.body.nodes if n.op.name == "dot_general" and n.inputs[1] in before]
    weights = [dims.product(n.inputs[1].shape) for n in products]
    made = [dims.product(n.types[0].shape) for n in products if n.inputs[0] not in carried]
    read, kept = dims.total(weights), dims.mul(dims.total(made), DType.f32.bytes * loop.length)
    return dims.at_least(read, target.l2_bytes + 1) is True and dims.at_least(kept, BYTES_HOISTED + 1) is False


def _with_bias(n: Node, products: Mapping[Value, Int8Product]) -> tuple[Value, ...] | None:
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


def _stored(v: Value) -> bool:
    """Already narrow, up to rearrangement after it was widened."""
    while Trait.data_movement in v.node.op.traits and len(v.node.inputs) == 1:
        v = v.node.inputs[0]
    return stored_narrow(v)
