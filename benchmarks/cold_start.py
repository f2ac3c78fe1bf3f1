"""Cold starts: from the start of a process to its first result, beside onnxruntime and torch, and the floor.

    python benchmarks/cold_start.py [--starts 20]

The floor is Python, NumPy, IREE's bindings, a device of the processor and one call of a module that adds four
numbers. The model is an LSTM of 20 steps, one row, 32 to 64 units. All take turns; medians, minima, and what each
distribution takes on disk.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from importlib import metadata
from pathlib import Path
from statistics import median

import numpy as np

import lstm_ir as li
from lstm_ir.api import build
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.temporary import new_folder
from lstm_ir.measurement.machine import machine
from lstm_ir.verification.cold import ours_cold, start_seconds

T, B, I, H = 20, 1, 32, 64
GIVEN = "import numpy\nx = numpy.load({arrays!r})['x']\n"
FLOOR = """\
from iree._runtime_libs import _runtime as rt
instance = rt.VmInstance()
device = rt.get_cached_hal_driver("local-sync").create_default_device()
module = rt.VmModule.mmap(instance, {module!r})
context = rt.VmContext(instance, [rt.create_hal_module(instance, device), module])
view = device.allocator.allocate_buffer_copy(
    memory_type=int(rt.MemoryType.DEVICE_LOCAL) | int(rt.MemoryType.HOST_VISIBLE),
    allowed_usage=int(rt.BufferUsage.DEFAULT) | int(rt.BufferUsage.MAPPING),
    device=device, buffer=x.reshape(-1)[:4].copy(), element_type=rt.HalElementType.FLOAT_32,
)
given, results = rt.VmVariantList(1), rt.VmVariantList(1)
given.push_ref(view)
context.invoke(module.lookup_function("main"), given, results)
assert results.size == 1
"""
RUNTIMES = ("import numpy, iree.runtime\n", "import numpy, iree.runtime, lstm_ir\n")
PEERS = {
    "onnxruntime": "import onnxruntime\nonnxruntime.InferenceSession({onnx!r}).run(None, {{'x': x}})\n",
    "torch": "import torch\ntorch.jit.load({script!r})(torch.from_numpy(x))\n",
}
WEIGHT = ("lstm-ir", "iree-base-runtime", "numpy", "onnxruntime", "torch")


def codes(folder: Path) -> dict[str, str]:
    """What each process runs."""
    rng = np.random.default_rng(0)
    w, r = (0.1 * rng.standard_normal(s).astype(np.float32) for s in ((4 * H, I), (4 * H, H)))
    x, four = li.input("x", ("T", "B", I)), li.input("four", (4,))
    graph = li.Graph("cold", [x], {"y": li.lstm(x, li.weight("w", w), li.weight("r", r))[0]})
    package = li.export(graph, folder / "cold.lirpkg")
    tiny = folder / "tiny.vmfb"
    tiny.write_bytes(build(li.Graph("tiny", [four], {"y": four + four}), resolve("cpu"))[1])
    arrays = folder / "x.npz"
    np.savez(arrays, x=rng.standard_normal((T, B, I)).astype(np.float32))
    given = GIVEN.format(arrays=str(arrays))
    found = {
        "NumPy and iree.runtime": RUNTIMES[0], "the same and import lstm_ir": RUNTIMES[1],
        "floor": given + FLOOR.format(module=str(tiny)), "lstm-ir": ours_cold(package, arrays),
    }  # fmt: skip
    return found | _peers(folder, given)


def _peers(folder: Path, given: str) -> dict[str, str]:
    try:
        import torch
    except ImportError:
        return {}
    files = {"onnx": str(folder / "cold.onnx"), "script": str(folder / "cold.pt")}
    layer, zero = torch.nn.LSTM(I, H), torch.zeros(T, B, I)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(layer, zero).save(files["script"])
        torch.onnx.export(layer, (zero,), files["onnx"], dynamo=False, input_names=["x"])
    return {name: given + code.format(**files) for name, code in PEERS.items()}


def mebibytes(name: str) -> float | None:
    """What the distribution's files take, as pip installed them."""
    try:
        files = metadata.files(name)
    except metadata.PackageNotFoundError:
        return None
    if not files or any("__editable__" in str(f) for f in files):
        folder = Path(li.__file__).parents[1]
        paths = [p for part in ("lstm_ir", "passes", "backends") for p in (folder / part).rglob("*.py")]
        paths += (folder / "lstm_ir" / "data").glob("*")
    else:
        paths = [Path(str(f.locate())) for f in files]
    return sum(p.stat().st_size for p in paths if p.is_file() and p.suffix != ".pyc") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=20)
    starts = parser.parse_args().starts
    print(machine())
    with new_folder() as folder:
        # Compiled Python files of all lie beside the sources, as pip leaves them; the first start of each writes them.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
        processes = codes(folder)
        start_seconds(processes, 1)
        for name, seconds in start_seconds(processes, starts).items():
            print(f"{name:28} median {median(seconds) * 1e3:6.0f} ms, least {min(seconds) * 1e3:6.0f} ms, of {starts}")
    for name in WEIGHT:
        size = mebibytes(name)
        print(f"{name:20} " + ("not installed" if size is None else f"{size:8.1f} MiB"))


if __name__ == "__main__":
    sys.exit(main())
