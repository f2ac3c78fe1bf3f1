"""Writers that are killed at random times: the target is the whole old file or the whole new one, and what is left
beside it, among temporary files, and of processes is gone after the next writer.

`python tests/campaigns/kills.py --seconds 60 [--seed S] [--trial K]`
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import campaign
import numpy as np

import lstm_ir as li
from lstm_ir.backends.compile import compiler
from lstm_ir.backends.files import archive, parameters, state_file
from lstm_ir.cli import files, group

SIZE = 1 << 16  # elements of a weight
ADD = """module @m { func.func @main(%a: tensor<7xf32>) -> tensor<7xf32> {
  %0 = stablehlo.add %a, %a : tensor<7xf32>
  return %0 : tensor<7xf32> } }"""


def graph(value: float) -> li.Graph:
    x = li.input("x", (SIZE,))
    return li.Graph("g", [x], {"y": x + li.weight("w", np.full(SIZE, value, np.float32))})


def export(folder: Path, value: float) -> None:
    li.export(graph(value), folder / "target.lirpkg", targets=["cpu:host"])


def export_anew(folder: Path, value: float) -> None:
    li.export(graph(value), folder / "target.lirpkg", targets=["cpu:host"], options={"cache": False})


def state(folder: Path, value: float) -> None:
    state_file.write(folder / "target.safetensors", {"w": np.full(SIZE, value, np.float32)})


def arrays(folder: Path, value: float) -> None:
    files.write_arrays(folder / "target.npz", {"w": np.full(SIZE, value, np.float32)})


def compile_alone(folder: Path, value: float) -> None:
    compiler.run(ADD, ["--compile-to=input"], name="m", target="cpu", timeout=60)


def command_line(folder: Path, value: float) -> None:
    (folder / "g.lir").write_text(str(graph(value)))
    np.savez(folder / "w.npz", w=np.full(SIZE, value, np.float32))
    words = ["compile", str(folder / "g.lir"), "-w", str(folder / "w.npz"), "-o", str(folder / "target.lirpkg")]
    code = group.run(words)
    if code:
        os._exit(code)


WRITERS: dict[str, Callable[[Path, float], None]] = {
    "export": export, "export anew": export_anew, "state": state, "arrays": arrays, "compile": compile_alone,
    "command line": command_line,
}  # fmt: skip


def value_of(folder: Path) -> float | None:
    """The value that the target holds; None without a target."""
    found = [p for p in folder.iterdir() if p.name.startswith("target")]
    if not found:
        return None
    (file,) = found
    if file.suffix == ".lirpkg":
        values = archive.read_package(file).weights["w"]
    else:
        values = parameters.read_weights(file)["w"]
    assert values.shape == (SIZE,)
    assert (values == values[0]).all(), f"{file.name}: two files in one"
    return float(values[0])


def write_for_ever(writer: str, folder: Path, pipe: int) -> NoReturn:
    """What the process that is killed runs; it says when it begins."""
    code = 99
    try:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 2)
        WRITERS[writer](folder, 1.0)
        os.write(pipe, b"begun")
        value = 1.0
        while True:
            value += 1
            WRITERS[writer](folder, value)
    finally:
        os._exit(code)


def trial(rng: np.random.Generator, number: int) -> str:
    """One writer is killed, or two that write the same; then one writes to its end."""
    writer, count = str(rng.choice(list(WRITERS))), int(rng.integers(1, 3))
    count = 1 if writer == "command line" else count  # which share a file of weights here
    how = signal.SIGKILL if rng.random() < 0.7 else signal.SIGTERM
    root = Path(tempfile.mkdtemp(dir=Path.cwd()))
    os.environ["LSTM_IR_CACHE"] = str(Path.cwd() / "cache")
    folder, scratch = root / "out", root / "scratch"
    folder.mkdir()
    scratch.mkdir()
    before, tempfile.tempdir = tempfile.tempdir, str(scratch)
    try:
        return _killed(rng, writer, count, how, folder, scratch)
    finally:
        tempfile.tempdir = before


def _killed(rng: np.random.Generator, writer: str, count: int, how: signal.Signals, folder: Path, scratch: Path) -> str:
    ready, pipe = os.pipe()
    pids = [os.fork() or write_for_ever(writer, folder, pipe) for _ in range(count)]
    os.close(pipe)
    try:
        assert os.read(ready, 5) == b"begun", f"{writer} ended by itself"
        time.sleep(float(rng.uniform(0, 0.15)))
    finally:
        for pid in pids:
            os.kill(pid, how)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        os.close(ready)
    expected = {-how, 143} if how == signal.SIGTERM and writer == "command line" else {-how}
    assert set(codes) <= expected, f"{writer}: codes {codes} after {how.name}"
    end = time.monotonic() + 15  # a compiler that begins ends once it looks for its parent
    while (running := children_in(scratch)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not running, f"{writer}: the compiler still runs: {running}"
    assert (value_of(folder) is None) == (writer == "compile"), f"{writer}: no target after {how.name}"
    left = [*scratch.iterdir(), *folder.glob(".*")]
    assert not left or 143 not in codes, f"{writer}: SIGTERM left {left}"
    WRITERS[writer](folder, 99.0)
    compile_alone(folder, 0)  # the next that makes a temporary folder
    beside = [p.name for p in folder.glob(".*")] + [p.name for p in scratch.iterdir()]
    assert not beside, f"{writer}: left after the next writer: {beside}"
    assert value_of(folder) == (None if writer == "compile" else 99.0)
    return f"{writer} {how.name}{', something left' if left else ''}"


def children_in(folder: Path) -> list[str]:
    """Processes that work below `folder`."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder) in os.readlink(place / "cwd"):
                found.append((place / "cmdline").read_text())
        except OSError:
            continue
    return found


if __name__ == "__main__":
    campaign.main(trial, seconds=120)
