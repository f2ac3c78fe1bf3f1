"""Packages (`.lirpkg`): written, read, and opened with the module for the device that is here."""

from __future__ import annotations

import re
from pathlib import Path

from lstm_ir.backends import bindings, process
from lstm_ir.backends.files.archive import ModuleFile, Package, read_package, write_package
from lstm_ir.backends.files.manifest import PackedTarget
from lstm_ir.backends.run import runtime
from lstm_ir.backends.run.executable import Executable
from lstm_ir.backends.run.loaded import CallOptions
from lstm_ir.backends.targets import cpus
from lstm_ir.backends.targets.target import Target
from lstm_ir.ir.errors import DeviceError, LstmIrError, PackageError, TargetError
from lstm_ir.ir.signature import starts
from lstm_ir.ir.types import DType, TensorType

_HOST = "cpu:host"  # a word of exports: a module has the name of what it was then
_PLACE = r"[0-9]+|//.*"  # which device of a kind: its number, or where the driver finds it
__all__ = ["ModuleFile", "Package", "open_package", "read_package", "write_package"]


def open_package(
    path: str | Path,
    device: str | None = None,
    *,
    require_key: bytes | str | None = None,
    driver: str | None = None,
    options: CallOptions | None = None,
) -> Executable:
    """The first target, in the order of export, that this machine can run.

    `device` is a kind (`cpu`, `vulkan`, …), a device word as for Executable, or the name of one of the package's
    modules (`cpu:x86-64-v2`), which is taken then. Of several CPU modules otherwise the one that uses most of this
    processor; `cpu:host`, as of an export, is this too.
    """
    process.enter()
    device = "cpu" if device == _HOST else device
    mapped = options is not None and options.map_weights
    found = read_package(path, require_key=require_key, mapped=mapped)
    if (release := other_release(found)) is not None:
        raise PackageError(f"{path}: {release}")
    _same_weights(found)
    _same_state(found)
    reasons: list[str] = []
    for target in _order(found, device):
        why = why_not(target)
        if why is None:
            try:
                return _load(found, target, device, driver, options)
            except (DeviceError, TargetError) as e:
                why = str(e)
        reasons.append(f"{target.info.name}: {why}")
    if not reasons:
        raise TargetError(f"{path}: {_unknown(found, device)}")
    raise TargetError(
        f"{path}: no module runs here: {'; '.join(reasons)}. This machine is {cpus.here()}. {_again(found)}"
    )


def stored_module(package: Package, target: str | None = None) -> PackedTarget:
    """The package's target of that name (`cpu`, `cpu:host`: the best here), without one the first that runs here."""
    target = "cpu" if target == _HOST else target
    chosen = [t for t in package.targets if target is None or target in (t.info.name, t.info.kind)]
    runs = [t for t in _order(package, None) if t in chosen and why_not(t) is None]
    exact = [t for t in chosen if t.info.name == target]
    if not chosen or not (exact or runs):
        have = ", ".join(t.info.name for t in package.targets)
        which = "runs here" if target is None else f"is for {target}"
        raise TargetError(f"{package.path}: no module {which}; the package has {have}: name one")
    return (exact or runs)[0]


def _again(package: Package) -> str:
    """What to do where no module fits."""
    if package.manifest.recipe is None:
        make = f"lstm-ir compile GRAPH.lir --weights {package.path} -o NEW.lirpkg"
        return f"It has no graph: where the compiler is, `{make}` makes it again, of the graph's text"
    return f"Where the compiler is, `lstm-ir compile {package.path} -t TARGET -o NEW.lirpkg` makes it again"


def _load(
    package: Package, target: PackedTarget, device: str | None, driver: str | None,
    options: CallOptions | None,
) -> Executable:  # fmt: skip
    kind = target.info.kind
    drivers = runtime.CPU_DRIVERS if kind == "cpu" else (kind,)
    where = None if device in (kind, target.info.name) else device
    made = Executable(
        package.signature,
        package.blobs[target.file],
        package.weights,
        Target(target.info, (), drivers),
        where,
        package.extra.get("report"),
        driver=driver if kind == "cpu" else None,
        state=package.state,
        work=target.work,
        options=options,
    )
    made.package, made.digest = Path(package.path).absolute(), package.digest
    return made


def _order(package: Package, device: str | None) -> list[PackedTarget]:
    """The modules that `device` asks for, the best first; none where it is no word for one of them."""
    named = [t for t in package.targets if t.info.name == device]
    if named:
        return named
    word, _, place = ("", "", "") if device is None else device.partition(":")
    if place and (word == "cpu" or not re.fullmatch(_PLACE, place)):
        return []
    kind = "cpu" if word in runtime.CPU_DRIVERS else word
    chosen = [t for t in package.targets if device is None or t.info.kind == kind]
    best = iter(sorted((t for t in chosen if t.info.kind == "cpu"), key=lambda t: -len(t.features)))
    return [next(best) if t.info.kind == "cpu" else t for t in chosen]


def _unknown(package: Package, device: str | None) -> str:
    names = [t.info.name for t in package.targets]
    kinds = dict.fromkeys(t.info.kind for t in package.targets)
    words = [*kinds, *(runtime.CPU_DRIVERS if "cpu" in kinds else ()), *(f"{k}:0" for k in kinds if k != "cpu")]
    return (
        f"no module for device {device}; the package has {', '.join(names)}: name "
        f"one of them, or where it runs: {', '.join(words)}"
    )


def why_not(target: PackedTarget) -> str | None:
    """Why this machine does not run the module; None where it may."""
    if target.info.kind == "cpu":
        return cpus.refusal(target.info.triple, target.features)
    return _absent(target)


def _absent(target: PackedTarget) -> str | None:
    """Why no present GPU runs the target; None if one may."""
    kind, detail = target.info.kind, target.info.detail
    names, reason = runtime.devices_of(kind)
    if not names:
        return reason
    from lstm_ir.backends.run import devices  # target words, and with them the compiler: for GPUs alone

    if kind == "hip" and (here := devices.hip_name()) not in (None, detail):
        return f"the device here is {here}"
    if kind == "cuda" and (here := devices.cuda_name()) is not None:
        if _number(here) < _number(detail):
            return f"the device here is {here}"
    return None


def _number(sm: str) -> int:
    found = re.search(r"\d+", sm)
    return int(found[0]) if found is not None else 0


def other_release(package: Package) -> str | None:
    """What to do where the runtime is of another release, whose modules IREE promises nothing about; None where not."""
    here = bindings.version()
    if package.manifest.iree.split(".")[:2] == here.split(".")[:2]:
        return None
    return (
        f"made with IREE {package.manifest.iree}, the runtime here is {here}; "
        f"install that release of iree-base-runtime. {_again(package)}"
    )


def _same_weights(package: Package) -> None:
    types = package.signature.weights
    for name in {*types, *package.weights}:
        a = package.weights.get(name)
        try:
            fits = a is not None and (a.shape, a.dtype) == (types[name].shape, types[name].dtype.numpy)
        except (KeyError, LstmIrError):
            fits = False
        if not fits:
            raise PackageError(f"{package.path}: weight {name!r} is not what the signature says")


def _same_state(package: Package) -> None:
    variables = package.signature.state
    for name in {*variables, *package.state}:
        a = package.state.get(name)
        try:
            fits = a is not None and starts(TensorType(a.shape, DType.of(a.dtype)), variables[name].type)
        except (KeyError, LstmIrError):
            fits = False
        if not fits:
            raise PackageError(f"{package.path}: state {name!r} does not start what the signature says")
