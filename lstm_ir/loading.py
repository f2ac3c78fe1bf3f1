"""Packages: loaded, and turned into graphs again.

What loads and runs a package imports this, and with it neither graphs nor ops nor the compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstm_ir.ir.errors import DeviceError, PackageError
from lstm_ir.ir.foreign_errors import refusals_become
from lstm_ir.options import LOAD_OPTIONS, checked, device_word

if TYPE_CHECKING:
    from lstm_ir.backends.run.executable import Executable


@refusals_become(DeviceError, "load")
def load(path: str | Path, device: str | None = None, options: Mapping[str, Any] | None = None) -> Executable:
    """The package at `path`, ready to call; needs iree-base-runtime and NumPy only.

    options: helpers, whether helper threads may take part in calls on the CPU (default: on);
    schedule_caller, whether calls on the CPU may set the processor affinity and the
    scheduling policy of the thread that calls, for as long as they run (default: on). The environment
    variable LSTM_IR_SCHEDULE_CALLER=0 refuses that for every executable of the process.
    """
    from lstm_ir.backends.run.loaded import CallOptions
    from lstm_ir.backends.run.package import open_package

    if not isinstance(path, (str, Path)):
        raise PackageError(f"load: takes the path of a package, got {type(path).__name__}")
    given = checked(options, LOAD_OPTIONS)
    device_word(device)
    return open_package(path, device, options=CallOptions(**given))


def set_threads(n: int) -> None:
    """Worker threads of the CPU; an error once an executable by local-task has started others."""
    from lstm_ir.backends.run.runtime import set_threads as set_

    set_(n)
