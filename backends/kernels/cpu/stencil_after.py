"""What follows a stencil's sums, on vectors of results before they are stored, which are places of one output.

A tensor of the results' shape is read where they are stored; of one number for each output, as of a bias, all lanes
have the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from iree.compiler import ir

from lstm_ir.backends.kernels.body.atoms import Atom
from lstm_ir.backends.kernels.text.elementwise import Ops
from lstm_ir.backends.kernels.text.memory import Memory, load_vector
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.text import Text, stored_type
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.types import DType, TensorType


class AfterOperand(NamedTuple):
    """A tensor beside the sums: [outputs, places], or one number for each output, or one: [numbers]."""

    inside: Value  # the results' shape
    given: ir.Value
    type: TensorType


@dataclass(frozen=True)
class AfterSums:
    """Elementwise nodes from the sums to the result, operands first."""

    nodes: tuple[Node, ...]
    sums: Value
    result: Value
    operands: tuple[AfterOperand, ...]
    rounds: bool  # whether products round before something is added (`decisions.py`)


class AfterText:
    """Those nodes in a kernel; `sizes` are those of the results' memory."""

    def __init__(self, t: Text, after: AfterSums, sizes: tuple[int | TextOperand, ...]) -> None:
        self.t, self.after, self.ops = t, after, Ops(t, after.rounds)
        self.memories = {
            o.inside: Memory(f"%m_after{k}", stored_type(o.type.dtype), sizes if o.type.rank == 2 else (_count(o),))
            for k, o in enumerate(after.operands)
        }

    def result(
        self, sums: TextOperand, at: Sequence[TextOperand], output: TextOperand, mask: TextOperand | None
    ) -> TextOperand:
        """The vector that is stored at these indices, of this output of all groups."""
        known = {self.after.sums: sums}
        for n in self.after.nodes:
            args = [known[v] if v in known else self._read(v, at, output, mask) for v in n.inputs]
            known[n.values[0]] = self.ops.emit(_atom(n), args, True)
        return known[self.after.result]

    def _read(self, v: Value, at: Sequence[TextOperand], output: TextOperand, mask: TextOperand | None) -> TextOperand:
        t, number = self.t, splat(v)
        if number is not None:
            return t.number(number, v.dtype, True)
        m = self.memories[v]
        if len(m.sizes) == 1:
            first = output if m.size(0) > 1 else t.index(0)
            out: TextOperand = t.op(
                "vector.broadcast {} : {} to {}", m.load(t, [first]), m.element, t.vector(m.element)
            )
        else:
            out = load_vector(t, m, list(at), mask)
        if v.dtype is not DType.i1:
            return out
        return t.op("arith.cmpi ne, {}, {} : {}", out, t.number(0, DType.i8, True), t.vector("i8"))


def _count(o: AfterOperand) -> int:
    (count,) = o.type.shape
    assert isinstance(count, int)
    return count


def _atom(n: Node) -> Atom:
    return Atom(n.op.name, n.types[0].dtype, tuple(Atom("load", v.dtype) for v in n.inputs), node=n)
