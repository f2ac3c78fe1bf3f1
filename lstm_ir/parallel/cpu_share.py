"""How many workers of the CPU a process of many uses."""

from __future__ import annotations

import sys

from lstm_ir.backends.run import runtime
from lstm_ir.ir.errors import DeviceError


def use_threads(threads: int | None) -> None:
    """So many workers; without a number the share of the processor that Ray gave to this actor or task.

    Ray bounds nothing itself: two actors of a machine that each start a worker per core would take turns on them. An
    actor without a share gets one worker. Where workers run already their number stays, unless one is asked for.
    """
    asked = threads if threads is not None else _share()
    if asked is None or asked == runtime.threads():
        return
    try:
        runtime.set_threads(asked)
    except DeviceError:
        if threads is not None:
            raise


def _share() -> int | None:
    """Whole processors of this Ray worker; None outside of one."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized() or ray.get_runtime_context().worker.mode != ray.WORKER_MODE:
        return None
    cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1.0)
    return max(1, min(int(cpus), runtime.MAX_THREADS))
