"""Time per dispatch, from IREE's own device profile, with the nodes and lines behind it.

The module runs in IREE's benchmark program, twice: once as it is, for the time of a call, and once
under the device profiler, for the parts. The profiler is truthful where it can be: the local drivers
give begin and end of every dispatch on the host and the sum over its workgroups, Vulkan, CUDA and HIP
give the device's timestamps.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstm_ir.backends import bindings, queue
from lstm_ir.backends.run import runtime
from lstm_ir.backends.run.dispatch_places import DispatchPlace, call_sites, dispatch_places
from lstm_ir.backends.run.threads import stacks
from lstm_ir.ir.errors import DeviceError
from lstm_ir.ir.signature import Signature
from lstm_ir.ir.temporary import new_folder
from lstm_ir.ir.types import DType

if TYPE_CHECKING:
    from lstm_ir.backends.targets.target import Target

Array = np.ndarray[Any, Any]
RUNS = 5  # of the benchmark; the median counts
SECONDS = 0.1  # of each run
LIMIT = 300  # seconds of one of IREE's programs
SLOW = 1.0  # seconds of a call from which one is enough
_MODES = {"cpu": "queue-events,host-execution,executable-metadata"}
_ROWS = {"cpu": "host_execution_function"}
_TYPES = {DType.u8: "ui8", DType.u32: "ui32"}


@dataclass(frozen=True)
class ProfileRow:
    """One dispatch: seconds of one call, summed over how often the call runs it."""

    name: str
    count: float  # per call
    seconds: float
    busy: float  # seconds of all workers together; 0 where the driver does not say
    places: tuple[DispatchPlace, ...] = ()
    sites: int = 1  # places of the module that call it


@dataclass(frozen=True)
class Profile:
    """Where the time of one entry goes, for one set of inputs."""

    entry: str
    device: str
    workers: int  # 0 for devices that are not processors
    seconds: float  # of a call without the profiler, as a median of RUNS runs
    calls: int  # that were profiled
    rows: tuple[ProfileRow, ...]  # longest first

    @property
    def inside(self) -> float:
        """Seconds in dispatches; more than those of a call where dispatches overlap."""
        return sum(r.seconds for r in self.rows)

    def lines(self) -> dict[str, float]:
        """Seconds by the user's line, longest first; a dispatch of several lines counts for the set."""
        found: dict[str, float] = {}
        for r in self.rows:
            where = dict.fromkeys(f"{p.file}:{p.line}" for p in r.places)
            key = ", ".join(where) if where else "no line known"
            found[key] = found.get(key, 0.0) + r.seconds
        return dict(sorted(found.items(), key=lambda kv: -kv[1]))

    def picture(self) -> str:
        """The parts as bars, in SVG."""
        from lstm_ir.view.profile_picture import bars  # of notebooks alone

        parts = [(r.name, "; ".join(_grouped(r.places)), r.seconds) for r in self.rows]
        title = f"{self.entry} on {self.device}: {_time(self.seconds)} per call"
        return bars(title, parts, max(0.0, self.seconds - self.inside))

    def __str__(self) -> str:
        who = f"{self.device}, {self.workers} workers" if self.workers else self.device
        out = [f"{self.entry} on {who}: {_time(self.seconds)} per call, parts from {self.calls} profiled calls"]
        whole = max(self.inside, self.seconds)
        for r in self.rows:
            where = "; ".join(_grouped(r.places)) if r.places else "no line known"
            times = f"{r.count:g} x" if r.count != 1 else ""
            out.append(f"{_time(r.seconds):>11} {r.seconds / whole:6.1%} {times:>6} {r.name}")
            out.append(f"{'':26}{where}")
        rest = self.seconds - self.inside
        if rest > 0:
            out.append(f"{_time(rest):>11} {rest / whole:6.1%} {'':6} outside dispatches")
        out.append("by line:")
        out += [f"{_time(s):>11} {s / whole:6.1%}        {k}" for k, s in self.lines().items()]
        return "\n".join(out)


def _grouped(places: Iterable[DispatchPlace]) -> list[str]:
    """Ops of one line together: `add, tanh at model.py:7`."""
    at: dict[str, dict[str, None]] = {}
    for p in places:
        at.setdefault(f"{p.file}:{p.line}", {})[p.op] = None
    return [f"{', '.join(ops)} at {where}" for where, ops in at.items()]


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.1f} us"


@dataclass(frozen=True)
class Profiled:
    """What is profiled: an entry of a module, on the device that runs it."""

    blob: bytes
    signature: Signature
    weights: Mapping[str, Array]
    kind: str  # of the target
    device: str
    entry: str
    publishes: bool  # whether its kernels take the queue of the helpers


def profile(of: Profiled, values: Sequence[Array], flow: str | None = None) -> Profile:
    """Run the entry on `values` (its inputs, then the state it reads).

    `flow` is the module's text with locations (`flow_text`); without
    it no lines are known. Raises DeviceError where IREE's tools are missing or fail.
    """
    entry, device, signature = of.entry, of.device, of.signature
    called = signature.entries[entry]
    with new_folder() as work:
        folder = str(work)
        (work / "module.vmfb").write_bytes(of.blob)
        command = ["--module=module.vmfb", f"--function={entry}", f"--device={_device(device)}"]
        if of.weights:
            _archive(work / "weights.irpa", of.weights)
            command.append("--parameters=model=weights.irpa")
        workers = {"local-task": runtime.threads(), "local-sync": 1}.get(device, 0)
        if device == "local-task":
            command.append(f"--task_topology_group_count={runtime.threads()}")
            command.append(f"--task_worker_stack_size={stacks.WORKER}")
        types = [p.type.dtype for p in called.inputs]
        types += [signature.state[n].type.dtype for n in called.reads]
        for i, (a, t) in enumerate(zip(values, types, strict=True)):
            command.append(_input(work, i, a, t))
        if of.publishes:  # the tool has no helpers: a queue nobody polls
            command += [f"--input={queue.BYTES}xi8=0", f"--input={workers}", "--input=0"]
        seconds = _benchmark(command, folder, "1x", 1)
        calls = 1
        if seconds < SLOW:
            seconds = _benchmark(command, folder, f"{SECONDS}s", RUNS)
            calls = int(min(200, max(5, SECONDS / seconds)))
        rows = _profiled(command, folder, of.kind, calls)
    places, sites = ({}, {}) if flow is None else (dispatch_places(flow), call_sites(flow))
    shown = [
        ProfileRow(n, c / calls, s / calls, b / calls, places.get(n, ()), sites.get(n, 1))
        for n, (c, s, b) in rows.items()
    ]
    shown.sort(key=lambda r: -r.seconds)
    return Profile(entry, device, workers, seconds, calls, tuple(shown))


def flow_text(text: str, target: Target, options: Mapping[str, Any] | None = None) -> str:
    """The module `text` after IREE formed its dispatches, with a location on every line."""
    from lstm_ir.backends.compile import compiler  # where a profile compiles

    more = ("--compile-to=flow", "--mlir-print-debuginfo", "--mlir-print-local-scope")
    flags = [*compiler.BASE_FLAGS, *target.flags, *compiler.option_flags(options, target.info.kind)]
    out = compiler.run(text, [*flags, *more], name="profile", target=target.info.name, timeout=300)
    return out.decode("utf-8", "replace")


def _device(word: str) -> str:
    """`vulkan:1` as IREE's tools have it."""
    name, _, index = word.partition(":")
    return f"{name}://{index}" if index.isdigit() else word


def _archive(path: Path, weights: Mapping[str, Array]) -> None:
    from lstm_ir.backends.files import parameters  # as above

    parameters.index(weights).create_archive_file(str(path))


def _input(work: Path, i: int, a: Array, dtype: DType) -> str:
    """An array as raw bytes: NumPy's files have no bfloat16."""
    (work / f"in{i}.bin").write_bytes(np.ascontiguousarray(a).tobytes())
    shape = "x".join([*map(str, a.shape), _TYPES.get(dtype, dtype.value)])
    return f"--input={shape}=@in{i}.bin"


def _tool(name: str) -> str:
    spec = importlib.util.find_spec("iree._runtime_libs")
    for place in (spec.submodule_search_locations if spec is not None else None) or ():
        found = Path(place) / name
        if found.is_file():
            return str(found)
    raise DeviceError(f"{name} is not installed: it comes with iree-base-runtime")


def _run(name: str, arguments: Sequence[str], folder: str) -> str:
    from lstm_ir.backends.compile.child import bounded  # as above

    command = bounded([_tool(name), *arguments], LIMIT)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise DeviceError(f"{name} ran past its time limit of {LIMIT} s") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace")
        raise DeviceError(f"{name} failed: {bindings.short(said)}")
    return done.stdout.decode("utf-8", "replace")


def _benchmark(command: Sequence[str], folder: str, min_time: str, runs: int) -> float:
    """Median seconds of a call over so many runs of at least so many seconds, or calls."""
    more = [f"--benchmark_min_time={min_time}", f"--benchmark_repetitions={runs}", "--benchmark_format=json"]
    said = json.loads(_run("iree-benchmark-module", [*command, *more], folder))
    unit = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
    times = [b["real_time"] * unit[b["time_unit"]] for b in said["benchmarks"] if b["run_type"] == "iteration"]
    return float(statistics.median(times))


def _profiled(command: Sequence[str], folder: str, kind: str, calls: int) -> dict[str, tuple[float, float, float]]:
    """Dispatch -> how often it ran, its seconds, and those of its workers, over all calls."""
    mode = _MODES.get(kind, "queue-events,dispatch-events,executable-metadata")
    more = [
        f"--benchmark_min_time={calls}x",
        f"--device_profiling_mode={mode}",
        "--device_profiling_output=calls.ireeprof",
    ]
    _run("iree-benchmark-module", [*command, *more], folder)
    said = _run("iree-profile", ["statistics", "--format=jsonl", "calls.ireeprof"], folder)
    found: dict[str, tuple[float, float, float]] = {}
    for line in said.splitlines():
        row = json.loads(line)
        if row.get("row_type") != _ROWS.get(kind, "dispatch_function"):
            continue
        name = row["function_name"]
        count, seconds, busy = found.get(name, (0.0, 0.0, 0.0))
        found[name] = (
            count + row["sample_count"],
            seconds + row["total_duration_ns"] * 1e-9,
            busy + row["tile_duration_sum_ns"] * 1e-9,
        )
    if not found:
        raise DeviceError(f"the profile of {kind} has no time of its dispatches")
    return found
