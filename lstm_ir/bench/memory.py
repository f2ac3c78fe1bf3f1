"""Peak memory of one point in a fresh process, what importing took subtracted.

    python -m lstm_ir.bench.memory POINT RUNNER [PACKAGE]

RUNNER is lstm-ir, torch, torch.compile, onnxruntime or jax. Prints bytes after three calls. This project runs from
an exported package: what compiling takes is another process's matter there.
"""

from __future__ import annotations

import importlib
import resource
import subprocess
import sys
from pathlib import Path

from lstm_ir.bench.subject import Subject
from lstm_ir.ir.temporary import new_folder
from lstm_ir.measurement.side_by_side import OURS

MODULES = {
    OURS: ("lstm_ir.api", "lstm_ir.backends.run.package", "iree.runtime"), "torch": ("torch",),
    "torch.compile": ("torch", "torch._dynamo", "torch._inductor"), "jax": ("jax", "jax.numpy"),
    "onnxruntime": ("onnxruntime", "onnx"),
}  # fmt: skip


def measure(point: Subject, who: str, target: str = "cpu") -> int:
    """Bytes of a fresh process that runs the point; ours was exported for `target`."""
    with new_folder() as folder:
        command = [sys.executable, "-m", "lstm_ir.bench.memory", point.name, who]
        if who == OURS:
            import lstm_ir as li
            from lstm_ir.bench.measure import exported

            package = folder / "point.lirpkg"
            li.export(point.program(names=True), package, targets=[exported(target)])
            command.append(str(package))
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return int(done.stdout)


def resident() -> int:
    """Peak resident bytes of this process so far."""
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage counts the parent's peak too where it forked
        lines = status.read_text(encoding="ascii").splitlines()
        return next(1024 * int(t.split()[1]) for t in lines if t.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main(name: str, who: str, package: str = "") -> None:
    """Run the point here."""
    from lstm_ir.bench.lists import MODELS, POINTS
    from lstm_ir.bench.points import grid
    from lstm_ir.measurement.machine import cores

    point = next(p for p in (*POINTS, *MODELS, *grid()) if p.name == name)
    for module in MODULES[who]:
        importlib.import_module(module)
    calls, peers = point.calls(3), {**point.peers(), **point.peers_elsewhere()}
    before = resident()
    if who == OURS:
        import lstm_ir as li

        runner = point.runner(li.load(package))
    else:
        made = peers[who](cores())
        assert made is not None, f"{who} does not run {name}"
        runner = made
    for call in calls:
        runner.run(call)
    print(resident() - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
