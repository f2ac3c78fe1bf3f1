"""examples/c against a build of IREE's runtime: results are Python's, bad input ends with IREE's text and code 1.

The program is compiled with checks of addresses, of undefined behaviour and of leaks.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import iree_build
import numpy as np
import pytest
from c_programs import R, W, encoder, streamed, table, trained
from device import IREE_BUILD, need
from paths import DOCS, EXAMPLES
from plain_lstm import plain_lstm
from tolerances import SAME_MODULE

import lstm_ir as li
from lstm_ir.cli.group import run
from lstm_ir.ir.program import Program

Array = np.ndarray[Any, Any]
FOREIGN = "cpu:x86-64-v2" if platform.machine() == "aarch64" else "cpu:aarch64"


class Example:
    """A package's files in a folder, as docs/c.md makes them, and the program beside them."""

    def __init__(self, program: li.Graph | Program, folder: Path) -> None:
        self.folder, self.package = folder, folder / "m.lirpkg"
        li.export(program, self.package, ["cpu:host", FOREIGN])
        self.lay(self.package, "m.vmfb", "m.irpa")
        self.lay(self.package, "foreign.vmfb", "same.irpa", "-t", FOREIGN)
        assert run(["show", "--c", str(self.package), "-o", str(folder / "m.h")]) == 0
        with zipfile.ZipFile(self.package) as z:
            if "state.safetensors" in z.namelist():
                z.extract("state.safetensors", folder)
        self.program = iree_build.run_entry(folder, folder / "build")

    def lay(self, package: Path, module: str, weights: str, *words: str) -> None:
        at = ["-o", str(self.folder / module), "--weights-to", str(self.folder / weights)]
        assert run(["show", str(package), "--stage", "module", *at, *words]) == 0

    def shares(self, entry: str) -> bool:
        """As the header has it."""
        pattern = rf'"{entry}", "module.{entry}", \d+, \w+, \d+, \w+, ([01]),'
        (found,) = re.findall(pattern, (self.folder / "m.h").read_text())
        return bool(int(found))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *words], cwd=self.folder, capture_output=True, text=True, timeout=120, check=False
        )

    def call(self, entry: str, inputs: list[Array], *words: str) -> tuple[bytes, str]:
        """What it writes for these arrays, and what it prints."""
        (self.folder / "x.bin").write_bytes(b"".join(a.tobytes() for a in inputs))
        done = self.run("m.vmfb", "m.irpa", entry, "x.bin", "y.bin", *words)
        assert (done.returncode, done.stderr) == (0, "")
        return (self.folder / "y.bin").read_bytes(), done.stdout


Examples = Callable[[Callable[[], li.Graph | Program]], Example]


@pytest.fixture(scope="module")
def made() -> dict[str, Example]:
    return {}


@pytest.fixture
def example(made: dict[str, Example], tmp_path_factory: pytest.TempPathFactory) -> Examples:
    """That of a program, made once."""
    need(IREE_BUILD)

    def of(make: Callable[[], li.Graph | Program]) -> Example:
        name = make.__name__
        if name not in made:
            made[name] = Example(make(), tmp_path_factory.mktemp(name))
        return made[name]

    return of


def close(found: Array, wanted: Array) -> None:
    np.testing.assert_allclose(found, wanted, rtol=0, atol=SAME_MODULE)


def split(data: bytes, *shapes: tuple[int, ...]) -> Iterator[Array]:
    """Arrays of f32, one after the other, and nothing behind them."""
    for shape in shapes:
        size = 4 * int(np.prod(shape))
        yield np.frombuffer(data[:size], np.float32).reshape(shape)
        data = data[size:]
    assert data == b""


@pytest.mark.parametrize(("t", "b"), [(1, 1), (9, 3), (40, 17), (0, 3), (4, 0)])
def test_an_lstm_of_open_sizes(example: Examples, t: int, b: int, rng: np.random.Generator) -> None:
    """Its kernel may share its work, so that it takes a queue."""
    ours = example(encoder)
    assert ours.shares("main")
    x = rng.standard_normal((t, b, 5)).astype(np.float32)
    data, printed = ours.call("main", [x], f"T={t}", f"B={b}")
    y, h = split(data, (t, b, 7), (b, 7))
    assert printed.startswith(f"y {t}x{b}x7xf32=")
    want = li.load(ours.package)(x=x)
    close(y, want["y"])
    close(h, want["h"])
    if t:
        np.testing.assert_allclose(y, plain_lstm(x, W, R), atol=1e-5)


def test_integers_booleans_and_sizes_that_are_expressions(example: Examples, rng: np.random.Generator) -> None:
    ours = example(table)
    assert not ours.shares("main")
    at, mask = rng.integers(0, 28, 6).astype(np.int32), rng.integers(0, 2, (6, 1)).astype(bool)
    data, _ = ours.call("main", [at, mask], "2*B=6")
    (rows,) = split(data[: 6 * 7 * 4], (6, 7))
    np.testing.assert_array_equal(rows, np.where(mask, R[at], -R[at]))
    np.testing.assert_array_equal(np.frombuffer(data[6 * 7 * 4 :], np.int32), at + 1)


@pytest.mark.parametrize("start", [[], ["--state=state.safetensors"]], ids=["zeros", "file"])
def test_a_stream_keeps_its_state(example: Examples, start: list[str], rng: np.random.Generator) -> None:
    """Five calls of two steps are those of Python, a call of ten, and the equations where it starts at zeros."""
    ours = example(streamed)
    x = rng.standard_normal((10, 3, 5)).astype(np.float32)
    data, _ = ours.call("step", [x], "T=2", "B=3", *start)
    (y,) = split(data, (10, 3, 7))
    exe = li.load(ours.package)
    if not start:
        exe.entries["set_state"](h0=np.zeros((1, 3, 7), np.float32), c0=np.zeros((1, 3, 7), np.float32))
        np.testing.assert_allclose(y, plain_lstm(x, W, R), atol=1e-5)
    close(y, np.concatenate([exe.entries["step"](x=x[i : i + 2])["y"] for i in range(0, 10, 2)]))
    data, _ = ours.call("step", [x], "T=10", "B=3", *start)
    close(np.frombuffer(data, np.float32).reshape(10, 3, 7), y)


def test_entries_share_weights_and_start_with_the_state(example: Examples, rng: np.random.Generator) -> None:
    """`main` takes the state as inputs; `get_state` gives the start, row by row."""
    ours = example(streamed)
    assert (ours.folder / "m.irpa").read_bytes() == (ours.folder / "same.irpa").read_bytes()
    data, _ = ours.call("get_state", [], "B=3", "--state=state.safetensors")
    h0, c0 = split(data, (1, 3, 7), (1, 3, 7))
    np.testing.assert_array_equal(h0, np.broadcast_to(R[0], (1, 3, 7)))
    np.testing.assert_array_equal(c0, 0)
    x = rng.standard_normal((4, 3, 5)).astype(np.float32)
    stepped, _ = ours.call("step", [x], "T=4", "B=3", "--state=state.safetensors")
    whole, _ = ours.call("main", [x, h0, c0], "T=4", "B=3")
    y, _, _ = split(whole, (4, 3, 7), (1, 3, 7), (1, 3, 7))
    close(np.frombuffer(stepped, np.float32).reshape(4, 3, 7), y)
    assert ours.call("reset", [])[0] == b""


def test_training_steps(example: Examples, rng: np.random.Generator) -> None:
    ours = example(trained)
    x, label = rng.standard_normal((6, 3, 5)).astype(np.float32), rng.integers(0, 7, 3).astype(np.int32)
    step = [x, label, np.array(0.01, np.float32)]
    data, printed = ours.call("train", step * 4, "T=6", "B=3", "--state=state.safetensors")
    assert printed.startswith("loss f32=")
    train = li.load(ours.package).entries["train"]
    want = [train(x=x, label=label, lr=step[2]) for _ in range(4)]
    close(np.frombuffer(data, np.float32), np.array([(w["loss"], w["grad_norm"]) for w in want]).reshape(-1))
    assert want[3]["loss"] < want[0]["loss"]


GOOD = ["m.vmfb", "m.irpa", "step", "in.bin", "y.bin", "T=2", "B=3"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["none.vmfb", *GOOD[1:]], "NOT_FOUND; failed to open file 'none.vmfb'"),
        (["m.vmfb", "none.irpa", *GOOD[2:]], "NOT_FOUND; failed to open file 'none.irpa'"),
        ([*GOOD[:3], "none.bin", *GOOD[4:]], "NOT_FOUND; failed to open file 'none.bin'"),
        ([*GOOD, "--state=none.safetensors"], "NOT_FOUND; failed to open file 'none.safetensors'"),
        (["foreign.vmfb", *GOOD[1:]], "INCOMPATIBLE; "),
        (["cut.vmfb", *GOOD[1:]], "INVALID_ARGUMENT; "),
        (["in.bin", *GOOD[1:]], "INVALID_ARGUMENT; "),
        (["m.vmfb", "cut.irpa", *GOOD[2:]], "OUT_OF_RANGE; "),
        (["m.vmfb", "other.irpa", *GOOD[2:]], "NOT_FOUND; "),
        (["other.vmfb", "other.irpa", *GOOD[2:]], "NOT_FOUND; "),
        ([*GOOD, "--state=other.irpa"], "no parameter found in index with key 'h0'"),
        ([*GOOD, "--state=cut.safetensors"], "OUT_OF_RANGE; "),
        ([*GOOD, "--state=wrong.safetensors"], "h0 of the state file is no start of f32[1,B,7]"),
        (GOOD[:6], "the call has a size B: give B=NUMBER"),
        ([*GOOD[:6], "B=-3"], "B=-3 is no size"),
        ([*GOOD[:6], "B=three"], "B=three is no size"),
        ([*GOOD[:6], "B=3x"], "B=3x is no size"),
        ([*GOOD, "b=3"], "b=3 is no SIZE=NUMBER of the header"),
        ([*GOOD[:5], "--state=s.safetensors", *GOOD[5:]], "--state=s.safetensors is no SIZE=NUMBER of the header"),
        ([*GOOD[:5], "T=999999999999999", "B=9999999999"], "x: f32[T,B,5] of these sizes is too large"),
        ([*GOOD[:6], "B=4"], "in.bin has 240 bytes, and a call takes 160"),
        ([*GOOD[:5], "T=0", "B=3"], "in.bin has 240 bytes, and a call takes 0"),
        ([*GOOD[:4], "none/y.bin", *GOOD[5:]], "NOT_FOUND; none/y.bin is not opened"),
        ([*GOOD[:4], "/dev/full", *GOOD[5:]], "/dev/full is not written"),
        (["m.vmfb", "m.irpa", "stepp", *GOOD[3:]], "the header has no entry stepp"),
    ],
    ids=str,
)
def test_bad_input_ends_with_a_text(example: Examples, words: list[str], text: str) -> None:
    ours = example(streamed)
    if not (ours.folder / "cut.safetensors").exists():
        spoil(ours)
    done = ours.run(*words)
    assert done.returncode == 1
    assert text in done.stderr
    assert "Sanitizer" not in done.stderr
    assert "runtime error" not in done.stderr


def spoil(ours: Example) -> None:
    """Files that are no good for the program."""
    here = ours.folder
    (here / "in.bin").write_bytes(np.zeros((4, 3, 5), np.float32).tobytes())
    x = li.input("x", ("B", 3))
    other = li.Graph("other", [x], {"y": x + li.weight("other", np.ones(3, np.float32))})
    ours.lay(li.export(other, here / "other.lirpkg", ["cpu:host"]), "other.vmfb", "other.irpa")
    for name in ("m.vmfb", "m.irpa", "state.safetensors"):
        data = (here / name).read_bytes()
        (here / f"cut.{name.partition('.')[2]}").write_bytes(data[: len(data) // 4])
    entry = {"dtype": "F32", "shape": [1, 1, 8], "data_offsets": [0, 32]}
    head = json.dumps({"h0": entry}).encode()
    (here / "wrong.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(32))


def test_the_commands_of_the_page(example: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = example(streamed)
    monkeypatch.chdir(ours.folder)
    files, _, program = blocks("sh")
    for line in files.splitlines():
        tool, *words = shlex.split(line, comments=True)
        assert (tool, run(words) if tool == "lstm-ir" else 0) in (("lstm-ir", 0), ("unzip", 0))
    Path("examples").symlink_to(EXAMPLES)
    Path("iree-build").symlink_to(iree_build.folder())
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", program], env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert [t[:12] for t in done.stdout.splitlines()[-2:]] == ["y 2x3x7xf32="] * 2
    exe = li.load(ours.package)
    want = [exe.entries["step"](x=np.ones((2, 3, 5), np.float32))["y"] for _ in range(2)]
    close(np.fromfile("y.bin", np.float32).reshape(4, 3, 7), np.concatenate(want))


def test_the_page_shows_calls_that_are_compiled() -> None:
    """Needs no build: each is a part of model.c."""
    (shown,) = blocks("c")
    compiled = flat((EXAMPLES / "c" / "model.c").read_text(encoding="utf-8"))
    calls = [c for c in re.sub(r"/\*.*?\*/", "", shown, flags=re.S).split(";") if c.strip()]
    assert len(calls) > 15
    for call in calls:
        assert flat(call) in compiled, call


def blocks(kind: str) -> list[str]:
    page = (DOCS / "c.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", page, re.M | re.S)


def flat(code: str) -> str:
    return re.sub(r"\s+", "", code)


def test_it_says_how_it_is_used(example: Examples) -> None:
    done = example(streamed).run("m.vmfb")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
