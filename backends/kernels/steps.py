"""One step of a loop: its rows of scanned and stacked tensors, its copies of the carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lstm_ir.backends.kernels.atoms import Source
from lstm_ir.backends.kernels.evaluate import Evaluator
from lstm_ir.backends.kernels.memory import Memory, load_scalar
from lstm_ir.backends.kernels.plan import Plan
from lstm_ir.backends.kernels.text import Text


def number_of_steps(t: Text, count: Memory | None, length: str) -> str:
    """min(max(count, 0), T), or T without a run-time count."""
    if count is None:
        return length
    n = t.op(f"arith.index_cast {load_scalar(t, count, [])} : {count.element} to index")
    return t.binary("minsi", t.binary("maxsi", n, t.index(0)), length)


@dataclass(frozen=True)
class Step:
    """Step `at` of `steps`: reads the copy `parity` of every carry and writes the other one."""

    at: str
    back: str  # steps - 1 - at
    parity: str
    other: str

    @classmethod
    def make(cls, t: Text, at: str, last: str) -> Step:
        """Step `at` where the last one is `last`."""
        back = t.binary("subi", last, at)
        parity = t.op(f"arith.remui {at}, {t.index(2)} : index")
        return cls(at, back, parity, t.binary("subi", t.index(1), parity))

    def evaluator(self, t: Text, plan: Plan, memories: Mapping[Source, Memory]) -> Evaluator:
        """Atoms and stores of this step."""
        flags = plan.node.attrs["reverse"]
        scanned = len(plan.scanned)

        def prefix(m: Source, store: bool) -> list[str]:
            if m.kind == "carry":
                return [self.other if store else self.parity]
            if m.kind == "scan":
                return [self.back if flags[m.index] else self.at]
            if m.kind == "projection":
                return [self.back if flags[plan.projections[m.index].scan] else self.at]
            if m.kind == "stack":
                return [self.back if flags[scanned + m.index] else self.at]
            return []

        number = t.op(f"arith.index_cast {self.at} : index to i32")
        return Evaluator(t, memories, prefix, number)
