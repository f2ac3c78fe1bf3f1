"""Whether lanes are rows (`row_lanes.py`) or columns: by what a step's vectors hold."""

from __future__ import annotations

import math

from lstm_ir.backends.kernels.body.access import ROW, LoopAxis
from lstm_ir.backends.kernels.body.atoms import Atom
from lstm_ir.backends.kernels.body.expressions import COSTLY
from lstm_ir.backends.kernels.body.plan import LoopPlan, Sweep, walk
from lstm_ir.backends.kernels.cpu.machine import COSTLY_OPS, GATHERED, LANE_BYTES, LANE_GAIN, ONE_BY_ONE
from lstm_ir.backends.kernels.cpu.row_lanes import as_int, stack_forms
from lstm_ir.backends.kernels.text.text import stored_dtype

_OTHERS = ("pick", "over_rows", "turns")  # each lane would read another place, or all lanes meet; none is written


def possible(plan: LoopPlan) -> bool:
    """Whether rows can be lanes: every result has rows, which do not meet, and its sizes besides are numbers.

    Not where sums over columns decide something: all copies of these have one order, whichever loop computes them.
    """
    if not plan.carries or plan.loop.length == 1 or plan.one_chunk:
        return False
    sweeps = [s for c in plan.components for s in c.sweeps]
    if any(s.own or s.common or any(k.in_words or k.in_pairs for k in s.loops) for s in sweeps):
        return False
    if any(ROW not in r.access for s in sweeps for r in s.roots):
        return False
    atoms = atoms_of(sweeps)
    if any(a.op in _OTHERS or (a.op == "dot" and not a.rows) for a in atoms):
        return False
    if plan.rounds and any(a.op == "reduce" for a in atoms):
        return False
    forms = [f for c in plan.components for f in stack_forms(plan, c).values()]
    return all(isinstance(d, int) for _, sizes, _ in forms for d in sizes)


def paying_rows(plan: LoopPlan, columns: int, rows: int, gathers: bool) -> int | None:
    """How many of the rows of a vector, `rows`, a call needs so that they gain over vectors of so many columns.

    None where even all do not, or the stack does not hold what they keep. gathers: as the processor does.
    """
    kept = 0
    for c in plan.components:
        for source, (dtype, sizes, _) in stack_forms(plan, c).items():
            twice = 2 if source.kind == "carry" else 1
            kept += twice * math.prod(map(as_int, sizes)) * rows * stored_dtype(dtype).bytes
    sweeps = [s for c in plan.components for s in c.sweeps]
    by_columns, by_rows = (float(sum(_ops(s, lanes) for s in sweeps)) for lanes in (columns, 1))
    by_rows += sum(_products(s, 1) for s in sweeps)  # each loads its weight, which a tile of columns does for many rows
    each = (GATHERED if gathers else ONE_BY_ONE) * rows
    by_rows += each * sum(_elements(s) for s in sweeps)
    least = max(2, math.ceil(LANE_GAIN * by_rows / by_columns))
    return least if kept <= LANE_BYTES and least <= rows else None


def _ops(s: Sweep, lanes: int) -> int:
    """Of one step, additions in the main: those of a block of `lanes` columns are one."""
    atoms = atoms_of([s])
    width = max(1, s.width, *(a.width for a in atoms))
    blocks, total = -(-width // lanes), 0
    for a in atoms:
        if a.args or a.op == "load":
            total += _turns(a) * (blocks if a.cols else 1) * (COSTLY_OPS if a.op in COSTLY else 1)
    return total + _products(s, lanes)


def _products(s: Sweep, lanes: int) -> int:
    """Of a row in one step, where a block of `lanes` columns is one."""
    return sum(k.length * len(k.gates) for k in s.loops) * -(-s.width // lanes)


def _elements(s: Sweep) -> int:
    """Elements of a row in one step that others made or read: their rows do not lie side by side."""
    read = [a for a in atoms_of([s]) if a.op == "load" and a.source is not None and ROW in a.access]
    given = [(a.access, _turns(a)) for a in read if a.source is not None and a.source.kind not in ("carry", "temp")]
    stored = [(r.access, _turns(r.atom)) for r in s.roots if r.dest.kind == "stack"]
    return sum(turns * (max(1, s.width) if access[-1] != ROW else 0) for access, turns in (*given, *stored))


def _turns(a: Atom) -> int:
    """How often loops inside of the kernel compute it; a named size counts as eight."""
    loops = {at.level: at for at in (*a.loops, *(i for i in a.access if isinstance(i, LoopAxis)))}
    return math.prod(at.room if isinstance(at.room, int) else 8 for at in loops.values())


def atoms_of(sweeps: list[Sweep]) -> list[Atom]:
    """What they compute, each once."""
    seen: set[Atom] = set()
    return [a for s in sweeps for r in s.roots for a in walk(r.atom, seen)]
