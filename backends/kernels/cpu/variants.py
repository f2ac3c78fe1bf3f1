"""The variants of a loop's kernel in one module, picked by the sizes of the call.

A loop whose rows or steps are named may be called with few rows, where products of scanned rows are
best made before the loop, or with many, or for one step, where they belong into it. Narrow rows are
lanes where they are many (`row_lanes.py`). The module holds two, never more: `scf.if` on sizes, once
per call.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.for_loop import number_of_steps
from lstm_ir.backends.emit.places import mlir_loc
from lstm_ir.backends.kernels.body.access import RefusedError
from lstm_ir.backends.kernels.body.plan import LoopPlan, UntilCarry
from lstm_ir.backends.kernels.body.planner import make_plan
from lstm_ir.backends.kernels.call.call import Values
from lstm_ir.backends.kernels.call.joined_rows import joined_rows, result_types
from lstm_ir.backends.kernels.cpu.dispatch import Dispatch
from lstm_ir.backends.kernels.cpu.ending import numbered, steps_run
from lstm_ir.backends.kernels.cpu.machine import FOLD_ROWS, HOISTED_BYTES
from lstm_ir.backends.kernels.cpu.prologue import made_inside
from lstm_ir.backends.kernels.cpu.schedule import LoopSchedule, choose, hoists, lane_rows, product_forms, rows_as_lanes
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node
from lstm_ir.ir.loop import Loop

_Bound: TypeAlias = tuple[Dim, str, int]  # a size, a comparison, a number


def on_cpu(e: Emitter, n: Node, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> tuple[Values, str]:
    """The loop's results, and what --explain says; RefusedError for a body without kernels."""
    assert e.target is not None
    wanted = hoists(n)
    plan = _plan(e, n, wanted is not False)
    length = Loop(n).length
    schedule = choose(plan, e.target, e.options.helpers)
    long = _long(e, plan, schedule, count is not None) if wanted and isinstance(length, int) else None
    if long is not None and length >= long:
        with suppress(RefusedError):
            plan = _plan(e, n, False)
            schedule = choose(plan, e.target, e.options.helpers)
    for pair in _pairs(e, n, plan, wanted is None, count is not None):
        with suppress(RefusedError):  # too many tensors; others may have fewer
            return pair.run(consts, init, xs, count), pair.note
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


def _long(e: Emitter, plan: LoopPlan, schedule: LoopSchedule, counted: bool) -> int | None:
    """Steps from which rows that were multiplied before the loop would take more than HOISTED_BYTES; None where the
    loop's kernel multiplies them itself, block by block."""
    assert e.target is not None
    inside = made_inside(plan, schedule, e.target, e.options.helpers, counted)
    before = [p for k, p in enumerate(plan.projections) if k not in inside]
    if not before:
        return None
    types = [p.graph(plan.loop.xs[p.scan].type).outputs[0].type for p in before]
    sizes = [[d if isinstance(d, int) else FOLD_ROWS - 1 for d in t.shape[1:]] for t in types]
    each = sum(math.prod(s) * t.dtype.bytes for s, t in zip(sizes, types, strict=True))
    return max(2, int(HOISTED_BYTES // max(1, each)))


def _pairs(e: Emitter, n: Node, plan: LoopPlan, either: bool, counted: bool) -> Iterator[_Pair]:
    """Pairs of variants, the best one first. either: products of scanned rows may stand before the loop or in it;
    counted: a call says how many steps run."""
    if not e.at_top:
        return
    folded = None
    if either and plan.projections:
        with suppress(RefusedError):
            folded = _plan(e, n, False)
    if (pair := _narrow_rows(e, n, plan, plan if folded is None else folded)) is not None:
        yield pair
    if folded is not None:
        yield _hoisted(e, n, plan, folded, counted)


def _narrow_rows(e: Emitter, n: Node, plan: LoopPlan, folded: LoopPlan) -> _Pair | None:
    """Lanes that are rows where a call has many; None where it is known how many there are, or they are wide."""
    assert e.target is not None
    if isinstance(plan.rows, int) or (least := lane_rows(folded, e.target)) is None:
        return None
    few = choose(plan, e.target, e.options.helpers, least - 1)
    many = rows_as_lanes(folded, e.target)
    note, bound = f"{few.note}; from {least} rows on, {many.note}", (plan.rows, "uge", least)
    return _Pair(e, n, (folded, many), (plan, few), [bound], note, joined=True)


def _hoisted(e: Emitter, n: Node, plan: LoopPlan, folded: LoopPlan, counted: bool) -> _Pair:
    """Products of scanned rows before the loop, `plan`, or in its steps, `folded`."""
    assert e.target is not None
    many, few = choose(folded, e.target, e.options.helpers), choose(plan, e.target, e.options.helpers, FOLD_ROWS - 1)
    length, long = Loop(n).length, _long(e, plan, few, counted)
    steps = "" if long is None else f" or {long} steps"
    note = f"{few.note}; from {FOLD_ROWS} rows{steps} on, or for one step, {many.note}"
    sizes: list[_Bound] = [(plan.rows, "uge", FOLD_ROWS), (length, "ule", 1)]
    if long is not None:
        sizes.append((length, "uge", long))
    return _Pair(e, n, (folded, many), (plan, few), sizes, note)


@dataclass
class _Pair:
    """Both variants, and the choice: `many` where one of the sizes is beyond its bound."""

    e: Emitter
    n: Node
    many: tuple[LoopPlan, LoopSchedule]
    few: tuple[LoopPlan, LoopSchedule]
    sizes: list[_Bound]
    note: str
    joined: bool = False  # apart, weights that both read are kept once

    def run(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Values:
        """Results leave the branches as kernels keep them: what another dispatch makes of one lies elsewhere in the
        memory of both in one branch alone, for which IREE 3.13 takes 0 (docs/iree-workarounds.md)."""
        e, n = self.e, self.n
        stored = result_types(n, joined_rows(n, e.within))
        with mlir_loc(n.loc, n.op.name):
            choice = e.choice(self._many(), stored)
            e.outside = choice
            places = [ir.InsertionPoint(region.blocks.append()) for region in choice.regions]
            try:
                planned = []
                for place, (plan, schedule) in zip(places, (self.many, self.few), strict=True):
                    with place:
                        made = Dispatch(e, plan, schedule=schedule, joined=self.joined)
                        planned.append(made.planned(consts, init, xs, count))
                for place, put in zip(places, planned, strict=True):
                    with place:
                        e.make("scf.yield", put(), [])
            except BaseException:
                choice.erase()
                raise
            finally:
                e.outside = None
            return made.unpacked([e.tie(v, t) for v, t in zip(choice.results, stored, strict=True)])

    def _many(self) -> ir.Value:
        """Whether a size of the call is beyond its bound."""
        i1 = ir.IntegerType.get_signless(1)
        tests = [
            self.e.compare(way, self.e.size(size), self.e.size(bound))
            for size, way, bound in self.sizes
            if not isinstance(size, int)
        ]
        return functools.reduce(lambda a, b: self.e.make("arith.ori", [a, b], [i1]).result, tests)
