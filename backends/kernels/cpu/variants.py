"""The variants of a loop's kernel in one module, picked by the sizes of the call.

A loop whose rows or steps are named may be called with few rows, where products of scanned rows are
best made before the loop, or with many, or for one step, where they belong into it. The module holds
both, never more: `scf.if` on two sizes, once per call.
"""

from __future__ import annotations

import functools
import math
from contextlib import suppress

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.for_loop import number_of_steps
from lstm_ir.backends.emit.mlir_types import tensor
from lstm_ir.backends.emit.places import mlir_loc
from lstm_ir.backends.kernels.body.access import RefusedError
from lstm_ir.backends.kernels.body.plan import LoopPlan, UntilCarry
from lstm_ir.backends.kernels.body.planner import make_plan
from lstm_ir.backends.kernels.call.call import Values
from lstm_ir.backends.kernels.cpu.dispatch import Dispatch
from lstm_ir.backends.kernels.cpu.ending import numbered, steps_run
from lstm_ir.backends.kernels.cpu.machine import FOLD_ROWS, HOISTED_BYTES
from lstm_ir.backends.kernels.cpu.schedule import LoopSchedule, choose, hoists, product_forms
from lstm_ir.ir.graph import Node
from lstm_ir.ir.loop import Loop


def on_cpu(e: Emitter, n: Node, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> tuple[Values, str]:
    """The loop's results, and what --explain says; RefusedError for a body without kernels."""
    assert e.target is not None
    wanted = hoists(n)
    plan = _plan(e, n, wanted is not False)
    length = Loop(n).length
    if wanted and isinstance(length, int) and length >= _long(plan):
        with suppress(RefusedError):
            plan = _plan(e, n, False)
    schedule = choose(plan, e.target, e.options.helpers)
    if wanted is None and plan.projections and e.at_top:
        with suppress(RefusedError):  # too many tensors; the other way may have fewer
            folded = _plan(e, n, False)
            other = choose(folded, e.target, e.options.helpers)
            few = choose(plan, e.target, e.options.helpers, FOLD_ROWS - 1)
            both = _Pair(e, n, (folded, other), (plan, few))
            note = f"{few.note}; from {FOLD_ROWS} rows or {_long(plan)} steps on, or for one step, {other.note}"
            return both.run(consts, init, xs, count), note
    with mlir_loc(n.loc, "product" if schedule.panel else n.op.name):
        out = Dispatch(e, plan, schedule=schedule).run(consts, init, xs, count)
    return out, "" if schedule.panel else schedule.note


def until_on_cpu(
    e: Emitter, n: Node, consts: Values, init: Values, xs: Values, count: ir.Value | None
) -> tuple[Values, str]:
    """As `on_cpu`, of a loop with `until`: last carries, how many steps ran, stacked rows."""
    assert e.target is not None
    loop, counted = Loop(n), numbered(n)
    at = len(loop.init)
    ended = Loop(counted).init[at]
    plan = _plan(e, counted, hoists(counted) is not False, UntilCarry(n, at))
    schedule = choose(plan, e.target, e.options.helpers)
    with mlir_loc(n.loc, n.op.name):
        start = e.full(0, ended.type)
        out = Dispatch(e, plan, schedule=schedule).run(consts, [*init, start], xs, count)
        length = number_of_steps(e, e.size(loop.length), count)
        out[at] = steps_run(e, out[at], ended.type, length)
    return out, f"{schedule.note}, ends by what its steps compute"


def _plan(e: Emitter, n: Node, hoist: bool, ending: UntilCarry | None = None) -> LoopPlan:
    assert e.target is not None
    plan = make_plan(n, hoist, product_forms(e.target), ending, e.decided.nodes)
    plan.join_rest()
    return plan


def _long(plan: LoopPlan) -> int:
    """Steps from which rows that were multiplied before the loop would take more than HOISTED_BYTES."""
    types = [p.graph(plan.loop.xs[p.scan].type).outputs[0].type for p in plan.projections]
    sizes = [[d if isinstance(d, int) else FOLD_ROWS - 1 for d in t.shape[1:]] for t in types]
    each = sum(math.prod(s) * t.dtype.bytes for s, t in zip(sizes, types, strict=True))
    return max(2, int(HOISTED_BYTES // max(1, each)))


class _Pair:
    """Both variants, and the choice."""

    def __init__(
        self, e: Emitter, n: Node, folded: tuple[LoopPlan, LoopSchedule], hoisted: tuple[LoopPlan, LoopSchedule]
    ) -> None:
        self.e, self.n, self.folded, self.hoisted = e, n, folded, hoisted

    def run(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Values:
        e, n = self.e, self.n
        kinds = [tensor(t) for t in n.types]
        with mlir_loc(n.loc, n.op.name):
            choice = e.make("scf.if", [self._folds()], kinds, regions=2)
            e.outside = choice
            places = [ir.InsertionPoint(region.blocks.append()) for region in choice.regions]
            try:
                planned = []
                for place, (plan, schedule) in zip(places, (self.folded, self.hoisted), strict=True):
                    with place:
                        made = Dispatch(e, plan, schedule=schedule)
                        planned.append(made.planned(consts, init, xs, count))
                for place, put in zip(places, planned, strict=True):
                    with place:
                        e.make("scf.yield", put(), [])
            except BaseException:
                choice.erase()
                raise
            finally:
                e.outside = None
            return [e.tie(v, t) for v, t in zip(choice.results, n.types, strict=True)]

    def _folds(self) -> ir.Value:
        """Whether there are many rows, many steps, or a single one."""
        i1 = ir.IntegerType.get_signless(1)
        plan, length = self.hoisted[0], Loop(self.n).length
        tests = []
        for size, way, bound in ((plan.rows, "uge", FOLD_ROWS), (length, "ule", 1), (length, "uge", _long(plan))):
            if not isinstance(size, int):
                tests.append(self.e.compare(way, self.e.size(size), self.e.size(bound)))
        return functools.reduce(lambda a, b: self.e.make("arith.ori", [a, b], [i1]).result, tests)
