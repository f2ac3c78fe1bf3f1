"""Packages: loaded, and turned into graphs again.

What loads and runs a package imports this, and with it neither graphs nor ops nor the compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstm_ir.ir.called import told as told_words
from lstm_ir.ir.errors import DeviceError, KeyTypeError, PackageError
from lstm_ir.ir.foreign_errors import refusals_become
from lstm_ir.options import LOAD_OPTIONS, checked, device_word, told

if TYPE_CHECKING:
    import numpy as np

    from lstm_ir.backends.run.executable import Executable
    from lstm_ir.ir.graph import Graph
    from lstm_ir.ir.program import Program

_READERS = {
    **dict.fromkeys((".npz", ".safetensors"), "li.read_weights"),
    **dict.fromkeys((".keras", ".h5"), "li.from_keras"),
    ".pt2": "torch.export.load, before li.from_torch,",
    ".lir": "li.parse(Path(path).read_text())",
    ".onnx": "li.from_onnx",
    ".pb": "li.from_tf",
}
"""What reads files of other kinds, by their endings."""


@told(LOAD_OPTIONS)
@refusals_become(DeviceError, "load")
def load(
    path: str | Path,
    device: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    require_key: bytes | str | None = None,
) -> Executable:
    """The package at `path`, ready to call; needs iree-base-runtime and NumPy only.

    device: a kind (`cpu`, `vulkan`), a device (`vulkan:1`, `local-sync`), or one of the package's modules by its name
    (`cpu:x86-64-v2`); by default the best module that runs here.
    require_key: the secret that the package must be signed with; without that nothing but its manifest is read.
    options: helpers, whether helper threads may take part in calls on the CPU (default: on);
    schedule_caller, whether calls on the CPU may set the processor affinity and the
    scheduling policy of the thread that calls, for as long as they run (default: on). The environment
    variable LSTM_IR_SCHEDULE_CALLER=0 refuses that for every executable of the process;
    map_weights, whether weights stay in the file, mapped, so that processes share their memory (default: off): then
    the file may be replaced, but nobody may write into it or cut it off, which would change them or end the process.
    """
    from lstm_ir.backends.run.loaded import CallOptions
    from lstm_ir.backends.run.package import open_package

    if not isinstance(path, (str, Path)):
        raise PackageError(f"load: takes the path of a package, got {type(path).__name__}")
    given = checked(options, LOAD_OPTIONS)
    device_word(device)
    try:
        return open_package(path, device, require_key=require_key, options=CallOptions(**given))
    except KeyTypeError:
        raise
    except PackageError as e:
        reader = _READERS.get(Path(path).suffix.lower())
        if reader is None:
            raise
        raise PackageError(f"{e}; load reads packages, .lirpkg; {reader} reads such files") from e


@refusals_become(PackageError, "read_weights")
def read_weights(path: str | Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a .safetensors or .npz file by name, such as `save_state` writes; PackageError for another file."""
    from lstm_ir.backends.files import parameters

    return parameters.read_weights(path)


@told_words({"key": "require_key", "file": "path"})
@refusals_become(PackageError, "source")
def source(path: str | Path, *, require_key: bytes | str | None = None) -> Graph | Program:
    """The graph or program that the package at `path` was made of, with its weights and its state.

    So it can be compiled again, for another target or another release of IREE, which the package's modules need not
    fit. PackageError for a package without its graph (`export(..., graph=False)`, or of a format before 4), and for
    one that is damaged. require_key: as in `load`.
    """
    from lstm_ir.backends.files.archive import read_package
    from lstm_ir.unpacking import unpacked

    found = unpacked(read_package(path, require_key=require_key)).program
    return found.entries["main"] if set(found.entries) == {"main"} and not found.state else found


@told_words(dict.fromkeys(("threads", "num_threads", "count"), "n"))
def set_threads(n: int) -> None:
    """Worker threads of the CPU; an error once an executable by local-task has started others."""
    from lstm_ir.backends.run.runtime import set_threads as set_

    set_(n)
