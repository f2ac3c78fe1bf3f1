"""Whether the library may change how the system schedules the threads that call it.

For the length of a call, or for a moment of it, a caller's thread gets another processor affinity
(`affinity.py`) or scheduling policy (`policy.py`). A process that runs in a sandbox, or places its
threads itself, refuses that: a call then sets neither.
"""

from __future__ import annotations

import os

from lstm_ir.ir.errors import DeviceError

VARIABLE = "LSTM_IR_SCHEDULE_CALLER"  # 0: never in this process


def may_schedule(wanted: bool) -> bool:
    """Whether it may, where an executable's option is `wanted`: the environment can refuse too."""
    word = os.environ.get(VARIABLE, "")
    if word not in ("", "0", "1"):
        raise DeviceError(f"{VARIABLE} is {word!r}; expected 0 or 1")
    return wanted and word != "0"
