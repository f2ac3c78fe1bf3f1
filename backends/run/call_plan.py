"""How calls with one combination of input shapes run, and for how many combinations that is kept."""

from __future__ import annotations

from typing import Any, NamedTuple

from lstm_ir.backends.run import transfer
from lstm_ir.backends.run.loaded import Runner
from lstm_ir.ir.signature import CallSizes

Shapes = tuple[tuple[int, ...], ...]
_SHAPES = 64  # combinations of input shapes whose plans an entry keeps: a server with mixed lengths has as many
_SLOT_BYTES = 16 << 20  # of their reusable inputs, each below KEPT_BYTES: as many as 16 of the largest


class CallPlan(NamedTuple):
    """For one combination of input shapes: the VM function, who runs it, reusable inputs, and its sizes."""

    vm: Any
    runner: Runner
    slots: transfer.Slots | None
    bound: CallSizes


def remember(plans: dict[Shapes, CallPlan], shapes: Shapes, plan: CallPlan) -> None:
    """Keep a plan. Where there are too many the oldest goes; where they hold too much, the oldest ones' buffers."""
    if shapes not in plans and len(plans) >= _SHAPES:
        del plans[next(iter(plans))]
    plans[shapes] = plan
    held = sum(p.slots.block.nbytes for p in plans.values() if p.slots is not None)
    for old, other in list(plans.items()):
        if held <= _SLOT_BYTES:
            return
        if other.slots is not None and old != shapes:
            held -= other.slots.block.nbytes
            plans[old] = other._replace(slots=None)
