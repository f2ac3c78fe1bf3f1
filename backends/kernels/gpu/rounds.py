"""How many rounds the loops of one thread of a kernel run, as a driver counts them that ends loops early."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lstm_ir.backends.kernels.gpu.machine import ENDING
from lstm_ir.backends.kernels.text.statements import Body, Constant, Operation, TextOperand


@dataclass(frozen=True)
class Rounds:
    """Of a dispatch: `fixed`, and `each` for every step; loops over rows of a tile count once."""

    fixed: int
    each: int

    def most_steps(self, rounds: int) -> int:
        """Steps of a dispatch of so many rounds; 0 where not one fits."""
        return max(0, (rounds - self.fixed) // max(1, self.each))


def count_rounds(body: Body, per_step: Collection[TextOperand]) -> Rounds:
    """The rounds of `body`, whose loops that end at one of `per_step` go over steps."""
    fixed = each = 0
    for s in body:
        if not isinstance(s, Operation):
            continue
        parts = [count_rounds(r.body, per_step) for r in s.regions]
        inner, steps = sum(p.fixed for p in parts), sum(p.each for p in parts)
        each += steps
        if not s.spelling[0].startswith("scf.for"):
            fixed += inner
            continue
        _, _, high, by, *_ = s.operands
        if isinstance(high, Constant) and isinstance(by, Constant):  # from 0, or from a thread's number on
            fixed += ENDING + -(-int(high.literal) // int(by.literal)) * (1 + inner)
        elif high in per_step:
            fixed += ENDING
            each += 1 + inner
        else:
            fixed += ENDING + 1 + inner
    return Rounds(fixed, each)
