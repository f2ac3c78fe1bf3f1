"""How much a step of a loop computes and reads, and what follows for the rows of a chunk."""

from __future__ import annotations

from lstm_ir.backends.kernels.body.plan import LoopPlan, Sweep, walk
from lstm_ir.backends.kernels.cpu.machine import NUMBER_LINES, PAIR_FLOPS, Machine
from lstm_ir.backends.memory import LINE


def work_of_step(plan: LoopPlan) -> int:
    """Multiplications and additions of one row in one step, of the largest component; where rows meet, all ops: one
    chunk has all rows."""
    return max(
        (
            sum(2 * s.width * k.length * len(k.gates) for s in c.sweeps for k in s.loops)
            + (sum(_ops(s) for s in c.sweeps) if plan.meet else 0)
            for c in plan.components
        ),
        default=0,
    )


def _ops(s: Sweep) -> int:
    """Elementwise ones of a row, and those of sums over rows."""
    return max(1, s.width) * len({a for r in s.roots for a in walk(r.atom) if a.args})


def bytes_of_step(plan: LoopPlan) -> int:
    """Weights of the largest component."""
    return max(
        sum(
            k.length * s.width * matrix.value.dtype.bits // 8
            for s in c.sweeps
            for k in s.loops
            for _, matrix in k.gates
        )
        for c in plan.components
    )


def row_unit(plan: LoopPlan, m: Machine) -> int:
    """Rows of which a chunk has a multiple, where a step makes numbers of each row, such as means, and little else.

    The number of a row lies beside that of the next one, and two workers that write one line of a cache wait for it.
    """
    numbers = [t.atom.dtype.bits // 8 for t in plan.temps if not (t.width or t.loops or t.common)]
    if not numbers or max(m.heights) * work_of_step(plan) >= PAIR_FLOPS:
        return 1
    return NUMBER_LINES * LINE // max(1, min(numbers))
