"""How many workgroups: from the workers found at run time, never from the machine that compiled."""

from __future__ import annotations

from collections.abc import Callable

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.kernels.body.plan import Component, LoopPlan
from lstm_ir.backends.kernels.call.call import insert_first, module_of_insertion
from lstm_ir.backends.kernels.cpu import machine
from lstm_ir.backends.kernels.cpu.chains import chains, shared
from lstm_ir.backends.kernels.cpu.schedule import LoopSchedule
from lstm_ir.backends.kernels.cpu.step_size import work_of_step
from lstm_ir.backends.kernels.cpu.team import Work
from lstm_ir.backends.kernels.cpu.tile import work_of
from lstm_ir.ir.dims import Dim

SYMBOL = "lstm_ir.workers"
# In an initializer with the index 0 as %c0. %n is the number of a device's workers: local-task answers with those of
# its executor, local-sync with 1.
QUERY = """%device = hal.devices.get %c0 : !hal.device
    %ok, %n = hal.device.query<%device : !hal.device>
      key("hal.dispatch" :: "concurrency") : i1, i64 = 1 : i64"""
_GLOBAL = f"""module {{
  util.global private @{SYMBOL} : index
  util.initializer {{
    %c0 = arith.constant 0 : index
    {QUERY}
    %i = arith.index_cast %n : i64 to index
    util.global.store %i, @{SYMBOL} : index
    util.return
  }}
}}"""


def workers(e: Emitter) -> ir.Value:
    """How many share the work: what a call brings, or the workers of the device.

    Of the device, asked once when the module is loaded.
    """
    if e.workers is not None:
        return e.make("arith.index_cast", [e.workers], [ir.IndexType.get()]).result
    block = module_of_insertion().regions[0].blocks[0]
    names = [op.attributes["sym_name"].value for op in block if "sym_name" in op.attributes]
    if SYMBOL not in names:
        insert_first(_GLOBAL)
    attrs = {"global": ir.FlatSymbolRefAttr.get(SYMBOL)}
    return ir.Operation.create("util.global.load", results=[ir.IndexType.get()], attributes=attrs).result


def grid(
    e: Emitter, const: Callable[[Dim], ir.Value], plan: LoopPlan, schedule: LoopSchedule
) -> tuple[ir.Value, ir.Value]:
    """(chunks of rows, members per chunk) as index values."""
    arith = e.arith
    one, rows = const(1), const(plan.rows)
    found = workers(e)
    each = arith("ceildivui", found, const(len(plan.components)))  # workers per component
    least = _least(schedule)
    whole = "ceildivui" if schedule.row_lanes else "divui"  # a vector's rows may be fewer
    most = arith("maxui", arith(whole, rows, const(least)), one)
    # Members of one team look at the flags of all rows.
    chunks = one if schedule.columns or schedule.few or plan.one_chunk else arith("minui", each, most)
    if schedule.panel:
        chunks = arith("maxui", chunks, arith("ceildivui", rows, const(schedule.panel)))
    if schedule.resident:  # as many for each worker
        rounds = arith("ceildivui", rows, arith("muli", each, const(schedule.resident)))
        chunks = arith("maxui", chunks, arith("minui", arith("muli", each, rounds), rows))
    if schedule.panel or schedule.resident:
        chunks = _taken_evenly(e, const, chunks, len(plan.components), found)
    if schedule.apart:
        blocks = min(schedule.tiles[s].blocks(s.width, schedule.lanes) for c in plan.components for s in c.sweeps)
        return chunks, arith("minui", arith("ceildivui", each, chunks), const(blocks))
    if not schedule.share:
        return chunks, one
    left = arith("divui", each, chunks)
    # A member needs enough work between two waits: there is one for each sweep that is shared out.
    steps = [work_of_component(plan, c, schedule) for c in plan.components]
    work, waits = arith("muli", rows, const(work_of_step(plan))), max(1, *map(len, steps))
    pair = arith("minui", const(2), arith("divui", work, const(waits * machine.PAIR_FLOPS)))
    chosen = e.options.thresholds.shared_step
    each_more = waits * machine.SHARE_FLOPS if chosen is None else chosen
    useful = arith("maxui", pair, arith("divui", work, const(each_more)))
    blocks = max((sum(w.blocks for w in sweeps) for sweeps in steps), default=1)
    members = arith("minui", left, arith("minui", const(blocks), useful))
    return chunks, arith("maxui", members, one)


def _taken_evenly(
    e: Emitter, const: Callable[[Dim], ir.Value], chunks: ir.Value, components: int, workers: ir.Value
) -> ir.Value:
    """So many chunks or a few more, of which every worker takes as many.

    A worker of IREE takes one at a time, or RESERVED where there are so many for each: of 25 one of two took 16.
    """
    turn = e.arith("muli", workers, const(machine.RESERVED))
    few = e.compare("ult", e.arith("muli", chunks, const(components)), turn)
    unit = e.arith("select", few, workers, turn)
    alone = e.make("arith.ori", [e.compare("eq", workers, const(1)), e.compare("ult", chunks, workers)], [few.type])
    even = e.arith("muli", e.arith("ceildivui", chunks, unit), unit)
    return e.arith("select", alone.result, chunks, even)


def most_teams(plan: LoopPlan, schedule: LoopSchedule, rows: int) -> int | None:
    """Teams of all components, however many workers there are, where a call has at most so many rows."""
    if schedule.panel:
        return None
    return len(plan.components) * (1 if plan.one_chunk or schedule.few else max(1, rows // _least(schedule)))


def most_members(plan: LoopPlan, schedule: LoopSchedule) -> int:
    """Members of a team, however many workers there are: as `grid` bounds them."""
    if not schedule.share:
        return 1
    return max(max(1, sum(w.blocks for w in work_of_component(plan, c, schedule))) for c in plan.components)


def _least(schedule: LoopSchedule) -> int:
    """Rows of a chunk, about."""
    return max((schedule.row_unit, *(t.chunk for t in schedule.tiles.values())))


def work_of_component(plan: LoopPlan, c: Component, schedule: LoopSchedule) -> list[Work]:
    """What a team shares out in one step, chain by chain."""
    found = shared(chains(plan, c, schedule.tiles))
    return [work_of(s, schedule.tiles[s], schedule.lanes) for s, *_ in found]


def flags_needed(plan: LoopPlan, schedule: LoopSchedule, before: list[Work]) -> int:
    """Flags of a team: the count, those of the first and last copy, one for each piece of a step,
    and of what comes `before` the steps, how many members have come, and how many have left."""
    steps = [work_of_component(plan, c, schedule) for c in plan.components]
    return 5 + max((pieces(w) for w in steps), default=0) + pieces(before)


def pieces(work: list[Work]) -> int:
    """Of all sweeps."""
    return sum(w.pieces for w in work)
