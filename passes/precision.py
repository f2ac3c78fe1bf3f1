"""`precision`: the weights of dots stored in half the space; products and sums stay f32.

    dot(x, w)      ->      dot(x, convert(convert(w, bf16), f32))

The inner conversion is done once, at load; the outer one where the dot reads its operand, in a
loop's body inside it. The results change by the rounding of the weights, so no target's pipeline
has this pass: it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from lstm_ir import ops
from lstm_ir.ir.errors import PassError
from lstm_ir.ir.graph import Graph, Node, Value, make, transform
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.reach import fixed
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.hoist import in_loops, moved_out
from lstm_ir.passes.hoist_invariants import widened
from lstm_ir.passes.lift import Kind, Lift

STORED = ("bf16", "f16")


@register
@dataclass(frozen=True)
class Precision(Pass):
    """f32 weights of dots stored as `weights` (bf16 or f16), f32 accumulation."""

    name: ClassVar[str] = "precision"
    weights: str = "bf16"

    def __post_init__(self) -> None:
        if self.weights not in STORED:
            raise PassError(f"pass precision: weights is {self.weights!r}, not one of {', '.join(STORED)}")

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with narrow weights."""
        fits = target is None or (target.has_bf16 if self.weights == "bf16" else target.has_f16)
        if not fits:
            raise PassError(f"pass precision: target {target} cannot load {self.weights}")
        graph = self._dots(graph, (), notes)

        def out_of(loop: Loop) -> dict[Value, Value] | None:
            lift = Lift(loop, self.name)
            narrow = [v for v in loop.body.users if self._is_narrow(v) and lift.kind[v] is Kind.fixed]
            return moved_out(loop, narrow, [], lift) if narrow else None

        return in_loops(graph, self.name, out_of)

    def _is_narrow(self, v: Value) -> bool:
        return v.op == "convert" and v.dtype is DType(self.weights) and v.node.inputs[0].dtype is DType.f32

    def _dots(self, graph: Graph, known: Iterable[Value], notes: Notes) -> Graph:
        before = fixed(graph, known)

        def one(n: Node) -> tuple[Value, ...] | None:
            loop = Loop.of(n)
            if loop is not None:
                body = self._dots(loop.body, loop.const_params, notes)
                same = body is loop.body
                return None if same else make(n.op, *n.args, loc=n.loc, **{**n.attrs, "body": body}).values
            if n.op.name != "dot_general" or n.types[0].dtype is not DType.f32:
                return None
            lhs, rhs = n.inputs
            if rhs not in before or lhs in before or _stored(rhs):
                return None
            notes.fire(f"weights in {self.weights}", n.loc)
            with at(n.loc.through(self.name)):
                wide = ops.convert(ops.convert(rhs, self.weights), DType.f32)
                return make(n.op, lhs, wide, **n.attrs).values

        return transform(graph, one)


def _stored(v: Value) -> bool:
    """Already narrow, up to rearrangement after it was widened."""
    while Trait.data_movement in v.node.op.traits and len(v.node.inputs) == 1:
        v = v.node.inputs[0]
    return widened(v)
