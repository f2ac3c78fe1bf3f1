"""Which devices are here, and what can be compiled: the facts behind `lstm-ir targets`."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from lstm_ir.backends.run import runtime
from lstm_ir.backends.targets import targets
from lstm_ir.backends.targets.target import Target
from lstm_ir.backends.targets.targets import CUDA, CUDA_ALIAS, HIP

_MAJOR, _MINOR = 75, 76  # CUdevice_attribute: compute capability


@dataclass(frozen=True, slots=True)
class Availability:
    """One kind of target: whether it compiles here, the devices that run it, and why not."""

    kind: str
    compiles: bool
    devices: tuple[str, ...]
    reason: str  # "" where devices were found


def available() -> list[Availability]:
    """Every kind of target, on this machine."""
    compiles = util.find_spec("iree") is not None and util.find_spec("iree.compiler") is not None
    out = []
    for kind in targets.KINDS:
        names, reason = runtime.devices_of("local-task" if kind == "cpu" else kind)
        if kind == "cpu":
            names = tuple("processor" for _ in names)
        out.append(Availability(kind, compiles, names, reason))
    return out


def resolve(word: str) -> Target:
    """The target that `word` names on this machine: plain `cuda` and `hip` are the device here."""
    return targets.resolve(word, lambda kind: cuda_name() if kind == "cuda" else hip_name())


def cuda_name() -> str | None:
    """`sm_80` of the first NVIDIA device, by the driver library; None without one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return None
    for place, attribute in ((major, _MAJOR), (minor, _MINOR)):
        if driver.cuDeviceGetAttribute(ctypes.byref(place), attribute, device) != 0:
            return None
    name = f"sm_{major.value}{minor.value}"
    if name in CUDA or name in CUDA_ALIAS:
        return name
    # PTX of an older generation runs on a newer one.
    number = 10 * major.value + minor.value
    older = [n for n in CUDA if int(n[3:]) <= number]
    return older[-1] if older else None


def hip_name(root: Path = Path("/sys/class/kfd/kfd/topology/nodes")) -> str | None:
    """`gfx942` of the first AMD device that the kernel lists; None without one."""
    for place in sorted(root.glob("*/properties")):
        try:
            found = re.search(r"^gfx_target_version (\d+)$", place.read_text(), re.M)
        except OSError:
            continue
        number = int(found[1]) if found is not None else 0
        if number > 0:
            name = f"gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}"
            return name if name in HIP else None
    return None
