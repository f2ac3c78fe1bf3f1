"""What follows a stencil's sums, on vectors of results before they are stored, which are places of one output.

An operand beside them differs along batches, outputs and places, or along some of these: as a bias along outputs
alone, as a mask along batches and places. Of one that does not differ along places all lanes have the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from iree.compiler import ir

from lstm_ir.backends.kernels.text.elementwise import Ops
from lstm_ir.backends.kernels.text.memory import Memory, load_vector
from lstm_ir.backends.kernels.text.node_values import computed
from lstm_ir.backends.kernels.text.statements import Name, TextOperand, argument
from lstm_ir.backends.kernels.text.text import Text, stored_type
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.types import DType, TensorType

BATCHES, EVERY = argument("batches"), argument("every")  # outputs of all groups


class Along(NamedTuple):
    """What an operand differs along."""

    batches: bool
    outputs: bool
    places: bool


class AfterOperand(NamedTuple):
    """A tensor beside the sums: of each batch and output, or of one of both, all places, or one number."""

    inside: Value  # of the results' shape
    given: ir.Value
    type: TensorType  # [lines, places], or [lines]
    along: Along


@dataclass(frozen=True)
class AfterSums:
    """Elementwise nodes from the sums to the result, operands first."""

    nodes: tuple[Node, ...]
    sums: Value
    result: Value
    operands: tuple[AfterOperand, ...]
    rounds: bool  # whether products round before something is added (`decisions.py`)


class AfterText:
    """Those nodes in a kernel; `lines` and `places` are the sizes of the results' memory."""

    def __init__(self, t: Text, after: AfterSums, lines: Name, places: Name) -> None:
        self.t, self.after, self.ops, self.along = t, after, Ops(t, after.rounds), dict[Value, Along]()
        self.memories = dict[Value, Memory]()
        for k, o in enumerate(after.operands):
            by_batch = lines if o.along.outputs else BATCHES
            rows: int | TextOperand = by_batch if o.along.batches else EVERY if o.along.outputs else 1
            sizes = (rows, places) if o.along.places else (rows,)
            self.along[o.inside] = o.along
            self.memories[o.inside] = Memory(f"%m_after{k}", stored_type(o.type.dtype), sizes)

    def put(self, outer: TextOperand, kinds: TextOperand, outputs: TextOperand) -> Iterator[Memory]:
        """The sizes of these memories, from those of the results; the memories."""
        self.t.binary("divui", outer, kinds, to=BATCHES)
        self.t.binary("muli", kinds, outputs, to=EVERY)
        return iter(self.memories.values())

    def result(self, sums: TextOperand, line: TextOperand, place: TextOperand, mask: TextOperand | None) -> TextOperand:
        """The vector of a line of results, from this place on."""
        read = partial(self._read, line, place, mask)
        return computed(self.ops, self.after.nodes, {self.after.sums: sums}, read)[self.after.result]

    def _read(self, line: TextOperand, place: TextOperand, mask: TextOperand | None, v: Value) -> TextOperand:
        t, m, along = self.t, self.memories[v], self.along[v]
        row = self._row(along, line)
        out: TextOperand
        if along.places:
            out = load_vector(t, m, [row, place], mask)
        else:
            out = t.op("vector.broadcast {} : {} to {}", m.load(t, [row]), m.element, t.vector(m.element))
        if v.dtype is not DType.i1:
            return out
        return self.ops.convert(out, DType.i8, DType.i1, True)

    def _row(self, along: Along, line: TextOperand) -> TextOperand:
        if along.batches and along.outputs:
            return line
        if along.batches:
            return self.t.binary("divui", line, EVERY)
        return self.t.binary("remui", line, EVERY) if along.outputs else self.t.index(0)
