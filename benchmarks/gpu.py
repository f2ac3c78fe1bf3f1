"""GPU kernels beside the StableHLO loop and torch (cuDNN), in one process, interleaved; and the tests.

    python benchmarks/gpu.py                    # every CUDA and Vulkan device here; some 15 minutes
    python benchmarks/gpu.py --smoke --no-tests --device vulkan

It runs the tests that execute on the device, then measures. Prints devices, drivers and versions,
writes gpu.json and gpu.md, the table for docs/performance.md. What is not here is named, not compared.
A time is that of one call from NumPy arrays to NumPy arrays: every runner copies its input to the
device and its results back. Every runner is held to the interpreter before it is timed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lstm_ir as li
from lstm_ir.backends.run.runtime import devices_of
from lstm_ir.bench import models, peers
from lstm_ir.bench.models import Weights
from lstm_ir.bench.points import Point
from lstm_ir.bench.subject import BenchCall, TimedRun
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.measurement.differences import largest, relative
from lstm_ir.measurement.side_by_side import OURS, Times, interleaved

ROOT = Path(__file__).resolve().parents[1]
LOOP, TORCH = "StableHLO loop", "torch (cuDNN)"
# Relative to the largest entry: f32 sums of up to T * B products in another order, without TF32.
LIMIT = 1e-4
POINTS = (
    *(Point("lstm", t, b, h, h) for t, b, h in (
        (100, 1, 64), (100, 1, 128), (100, 1, 256), (100, 1, 512), (100, 1, 1024),
        (100, 32, 128), (100, 32, 256), (100, 64, 512), (100, 16, 1024), (1000, 1, 128), (1, 1, 256),
    )),
    Point("gru", 100, 1, 128, 128),
    Point("gru", 100, 32, 256, 256),
    Point("lstm", 100, 32, 128, 128, directions=2),
    Point("lstm", 100, 32, 128, 128, training=True),
    Point("lstm", 100, 32, 256, 256, training=True),
    Point("lstm", 100, 64, 512, 512, training=True),
    Point("gru", 100, 32, 256, 256, training=True),
)  # fmt: skip
SMOKE = (Point("lstm", 4, 2, 16, 24), Point("gru", 4, 2, 16, 24), Point("lstm", 4, 2, 16, 24, training=True))


@dataclass
class Measured:
    """One point on one device: times by runner, errors by runner, and what went wrong."""

    device: str
    point: Point
    times: Times | None = None
    errors: dict[str, float] = field(default_factory=dict)
    chosen: list[str] = field(default_factory=list)
    compile_seconds: float = 0.0
    problems: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Figures for a file."""
        t = self.times
        return {
            "device": self.device,
            "point": self.point.name,
            "median_ms": {} if t is None else {w: 1e3 * t.median(w) for w in t.seconds},
            "spread_ms": {} if t is None else {w: 1e3 * t.spread(w) for w in t.seconds},
            "calls": {} if t is None else {w: len(s) for w, s in t.seconds.items()},
            "errors": self.errors,
            "kernels": self.chosen,
            "compile_seconds": self.compile_seconds,
            "problems": self.problems,
        }


def torch_runner(point: Point, sets: tuple[Weights, Weights]) -> TimedRun:
    """torch.nn.LSTM / GRU on its CUDA device; ImportError where it has none. TF32 is off."""
    import torch as t

    if not t.cuda.is_available():
        raise ImportError("torch is here, but sees no CUDA device")
    t.backends.cudnn.allow_tf32 = t.backends.cuda.matmul.allow_tf32 = False
    modules = [m.cuda() for m in peers.torch_modules(point, sets)]
    for m in modules:
        m.flatten_parameters()

    def infer(call: BenchCall) -> Any:
        with t.inference_mode():
            return modules[0](t.from_numpy(call.arrays["x"]).cuda())[0].cpu()

    def train(call: BenchCall) -> Any:
        m = modules[call.turn]
        m.zero_grad(set_to_none=True)
        x = t.from_numpy(call.arrays["x"]).cuda().requires_grad_()
        y = m(x)[0]
        (y * y).mean().backward()
        return x.grad.cpu(), [p.grad.cpu() for p in m.parameters()]

    return TimedRun(train, peers.torch_gradients) if point.training else TimedRun(infer, lambda y: {"y": y.numpy()})


def compiled(m: Measured, sets: tuple[Weights, Weights], kernels: bool) -> TimedRun:
    """This project's module of the point, with kernels or with loops alone."""
    program = models.program_of(m.point, sets[0])
    exe = li.compile(program, m.device, options={"kernels": kernels, "cache": False})
    if kernels:
        notes = (n for n in exe.report.notes if n.startswith("scan at"))
        m.chosen = [n.split(": ", 1)[1] for n in notes]
        m.compile_seconds = exe.report.compile_seconds
    return models.of_executable(m.point, sets, exe)


def reference(point: Point, sets: tuple[Weights, Weights], call: BenchCall) -> dict[str, Any]:
    """What the interpreter gives, as runners name it."""
    program = models.program_of(point, sets[0])

    def interpret(given: Any) -> dict[str, Any]:
        return li.interpret(program, given)

    runner = models.of_executable(point, sets, interpret)
    return runner.read(runner.run(call))


def measure(device: str, point: Point, seconds: float) -> Measured:
    """One point on one device."""
    m = Measured(device, point)
    sets, calls = models.weights(point), models.calls(point)
    makers = {
        OURS: lambda: compiled(m, sets, True),
        LOOP: lambda: compiled(m, sets, False),
        TORCH: lambda: torch_runner(point, sets),
    }
    want, runs = reference(point, sets, calls[0]), {}
    for name, make in makers.items():
        try:
            runner = make()
            got = runner.read(runner.run(calls[0]))
        except (ImportError, LstmIrError, RuntimeError) as e:
            m.problems[name] = f"{type(e).__name__}: {e}".splitlines()[0][:300]
            continue
        m.errors[name] = largest(relative(got[k], w) for k, w in want.items())
        if not m.errors[name] <= LIMIT:
            m.problems[name] = f"wrong: {m.errors[name]:.2g} from the interpreter"
            continue
        runs[name] = runner.run
    if OURS in runs:
        try:
            m.times = interleaved(runs, calls, seconds)
        except LstmIrError as e:  # such as a device without memory left
            m.problems[OURS] = f"{type(e).__name__}: {e}".splitlines()[0][:300]
    return m


def table(found: Sequence[Measured]) -> str:
    """Markdown: a row per point and device."""
    lines = [
        f"| device | point | kernel ms | {LOOP} ms | {TORCH} ms | loop / kernel | torch / kernel | form |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for m in found:
        cells = ["not measured"] * 3
        ratios = ["-"] * 2
        if m.times is not None:
            ms = {w: 1e3 * m.times.median(w) for w in m.times.seconds}
            cells = [f"{ms[w]:.3g}" if w in ms else "not measured" for w in (OURS, LOOP, TORCH)]
            ratios = [f"{ms[w] / ms[OURS]:.2f}" if w in ms else "-" for w in (LOOP, TORCH)]
        form = "; ".join(dict.fromkeys(n.split(",")[1].strip() for n in m.chosen if "," in n))
        row = [m.device, m.point.name, *cells, *ratios, form]
        lines.append(f"| {' | '.join(row)} |")
        lines += [f"\n{m.point.name}, {w}: {why}\n" for w, why in m.problems.items() if w == OURS]
    return "\n".join(lines) + "\n"


def about() -> dict[str, Any]:
    """Machine, drivers, versions."""
    versions = {}
    for name in ("iree-base-compiler", "iree-base-runtime", "numpy", "torch"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    out: dict[str, Any] = {"system": platform.platform(), "python": platform.python_version()}
    out |= {"versions": versions, "nvidia": _nvidia()}
    try:
        import torch as t

        if t.cuda.is_available():
            out["torch CUDA"] = t.version.cuda
            out["cuDNN"] = t.backends.cudnn.version()
    except ImportError:
        pass
    return out


def _nvidia() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return "no nvidia-smi"


def tests(devices: Sequence[str]) -> dict[str, Any]:
    """The tests that execute on these devices; a device that is not used is a failure."""
    words = " or ".join(devices)
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-m", words, "-o", "addopts="]
    env = {**os.environ, "LSTM_IR_REQUIRE": ",".join(devices)}
    done = subprocess.run([*command, "tests"], cwd=ROOT, env=env, capture_output=True, text=True)
    tail = done.stdout.strip().splitlines()[-30:]
    print("\n".join(tail))
    return {"command": " ".join(command[1:]), "code": done.returncode, "summary": tail[-1:]}


def main() -> int:
    """Exit code 1 where a test or a comparison failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", action="append", choices=("cuda", "vulkan"))
    parser.add_argument("--seconds", type=float, default=2.0, help="per runner and point")
    parser.add_argument("--smoke", action="store_true", help="three tiny points")
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=Path("."), help="folder")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    here, facts = [], about()
    for kind in args.device or ("cuda", "vulkan"):
        names, reason = devices_of(kind)
        facts[kind] = list(names) or f"not measured: {reason}"
        here += [kind] if names else []
    print(json.dumps(facts, indent=1))
    if not here:
        print("no device to measure on")
        return 1
    tested = {} if args.no_tests else tests(here)
    found = []
    for device in here:
        for point in SMOKE if args.smoke else POINTS:
            found.append(measure(device, point, args.seconds))
            print(json.dumps(found[-1].as_json()), flush=True)
    data = {"about": facts, "tests": tested, "points": [m.as_json() for m in found]}
    (args.output / "gpu.json").write_text(json.dumps(data, indent=1), encoding="utf-8")
    text = table(found)
    (args.output / "gpu.md").write_text(text, encoding="utf-8")
    print(text)
    wrong = [m for m in found if OURS in m.problems or m.times is None]
    return 1 if wrong or tested.get("code") else 0


if __name__ == "__main__":
    sys.exit(main())
