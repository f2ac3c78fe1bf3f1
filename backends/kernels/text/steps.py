"""One step of a loop: its rows of scanned and stacked tensors, its copies of the carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lstm_ir.backends.kernels.body.atoms import MemorySource
from lstm_ir.backends.kernels.body.plan import LoopPlan
from lstm_ir.backends.kernels.text.evaluate import Evaluator
from lstm_ir.backends.kernels.text.memory import Memory, load_scalar
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.text import Text

NO_ROWS: Mapping[MemorySource, TextOperand] = {}


def counted_steps(t: Text, count: Memory | None, length: TextOperand) -> TextOperand:
    """min(max(count, 0), T), or T without a run-time count."""
    if count is None:
        return length
    n = t.op("arith.index_cast {} : {} to index", load_scalar(t, count, []), count.element)
    return t.binary("minsi", t.binary("maxsi", n, t.index(0)), length)


def backward(plan: LoopPlan, m: MemorySource) -> bool | None:
    """Whether the last row of `m` comes first; None for what has no row for each step."""
    loop = plan.loop
    if m.kind == "scan":
        return loop.x_reverse[m.index]
    if m.kind == "projection":
        return loop.x_reverse[plan.projections[m.index].scan]
    return loop.y_reverse[m.index] if m.kind == "stack" else None


@dataclass(frozen=True)
class TimeStep:
    """Step `at` of `steps`: reads the copy `parity` of every carry and writes the other one."""

    at: TextOperand
    back: TextOperand  # steps - 1 - at
    parity: TextOperand
    other: TextOperand

    @classmethod
    def make(cls, t: Text, at: TextOperand, last: TextOperand) -> TimeStep:
        """Step `at` where the last one is `last`."""
        back = t.binary("subi", last, at)
        parity = t.binary("remui", at, t.index(2))
        return cls(at, back, parity, t.binary("subi", t.index(1), parity))

    def evaluator(
        self, t: Text, plan: LoopPlan, memories: Mapping[MemorySource, Memory],
        rows: Mapping[MemorySource, TextOperand] = NO_ROWS, kind: type[Evaluator] = Evaluator,
    ) -> Evaluator:  # fmt: skip
        """Atoms and stores of this step; `rows`: row numbers that are known already."""

        def prefix(m: MemorySource, store: bool) -> list[TextOperand]:
            if m in rows:
                return [rows[m]]
            if m.kind == "carry":
                return [self.other if store else self.parity]
            turned = backward(plan, m)
            return [] if turned is None else [self.back if turned else self.at]

        number = t.op("arith.index_cast {} : index to i32", self.at)
        return kind(t, memories, prefix, number, plan.rounds)
