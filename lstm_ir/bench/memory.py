"""Peak memory of one point in a fresh process, what importing took subtracted.

    python -m lstm_ir.bench.memory POINT RUNNER THREADS [PACKAGE]

RUNNER is lstm-ir, torch, torch.compile, onnxruntime or jax. Prints bytes after three calls: the peak of what comes
after the imports, which may have had a higher one, less what was resident then. This project runs from
an exported package: what compiling takes is another process's matter there.
"""

from __future__ import annotations

import importlib
import subprocess
import sys

from lstm_ir.bench.subject import Subject
from lstm_ir.ir.temporary import new_folder
from lstm_ir.measurement import memory
from lstm_ir.measurement.machine import cores
from lstm_ir.measurement.side_by_side import OURS

MODULES = {
    OURS: ("lstm_ir.api", "lstm_ir.backends.run.package", "iree.runtime"), "torch": ("torch",),
    "torch.compile": ("torch", "torch._dynamo", "torch._inductor"), "jax": ("jax", "jax.numpy"),
    "onnxruntime": ("onnxruntime", "onnx"),
}  # fmt: skip


def measure(point: Subject, who: str, target: str = "cpu", threads: int | None = None) -> int:
    """Bytes of a fresh process that runs the point; ours was exported for `target`. threads: default: all usable."""
    used = cores() if threads is None else threads
    with new_folder() as folder:
        command = [sys.executable, "-m", "lstm_ir.bench.memory", point.name, who, str(used)]
        if who == OURS:
            import lstm_ir as li
            from lstm_ir.bench.measure import exported

            package = folder / "point.lirpkg"
            li.export(point.program(names=True), package, targets=[exported(target)])
            command.append(str(package))
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return int(done.stdout)


def main(name: str, who: str, threads: int, package: str = "") -> None:
    """Run the point here."""
    from lstm_ir.bench.lists import MODELS, POINTS
    from lstm_ir.bench.points import grid

    point = next(p for p in (*POINTS, *MODELS, *grid()) if p.name == name)
    for module in MODULES[who]:
        importlib.import_module(module)
    calls, peers = point.calls(3), {**point.peers(), **point.peers_elsewhere()}
    before = memory.set_back()
    if who == OURS:
        import lstm_ir as li

        li.set_threads(threads)
        runner = point.runner(li.load(package))
    else:
        made = peers[who](threads)
        assert made is not None, f"{who} does not run {name}"
        runner = made
    for call in calls:
        runner.run(call)
    print(memory.peak() - before)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
