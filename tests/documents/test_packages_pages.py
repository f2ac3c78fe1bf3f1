"""What docs/packages.md and docs/deployment.md show runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from paths import DOCS

import lstm_ir as li
from lstm_ir.cli.group import run

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
pytestmark = pytest.mark.slow


def blocks(page: str, kind: str) -> list[str]:
    return [text for name, text in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")) if name == kind]


def graph(*sizes: int | str) -> li.Graph:
    x = li.input("x", (*sizes, 5))
    w, r = (np.full(s, 0.25, np.float32) for s in ((28, 5), (28, 7)))
    return li.Graph("g", [x], {"y": li.lstm(x, li.weight("w", w), li.weight("r", r))[0]})


def test_the_commands_of_the_page_on_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, target in (("old.lirpkg", "cpu:host"), ("m.lirpkg", "cpu")):
        li.export(graph("T", 3), name, [target])
    np.save("x.npy", np.ones((4, 3, 5), np.float32))
    lines = [line for text in blocks("packages.md", "sh") for line in text.splitlines()]
    assert len(lines) == 8
    for line in lines:
        tool, *words = shlex.split(line, comments=True)
        if tool == "lstm-ir":
            assert run(words) == 0, line
            continue
        found = Path(sys.executable).parent / tool
        if found.exists():
            queue = "--input=1104xi8=0 --input=1 --input=0"  # this module's kernels may share their work
            assert queue in (DOCS / "packages.md").read_text(encoding="utf-8")
            done = subprocess.run(
                [found, *words, *queue.split()], capture_output=True, text=True, timeout=120, check=False
            )
            assert done.returncode == 0, done.stderr
            assert "4x3x7xf32=" in done.stdout
    np.testing.assert_array_equal(
        li.load("old.lirpkg")(x=np.load("x.npy"))["y"].shape, li.load("m.lirpkg")(x=np.load("x.npy"))["y"].shape
    )
    assert str(li.source("new.lirpkg")) == str(graph("T", 3))


def test_the_program_of_the_page_on_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    x = li.input("x", ("T", "B", 8))
    w = li.weight("w", np.full((8, 2), 0.5, np.float32))
    scores = li.sum(x, 0) @ w
    g = li.Graph("sign", [x], {"loss": li.mean(scores), "scores": scores})
    li.export(li.train_step(g, "loss", li.sgd(0.1)).only("train", "infer"), "sign.lirpkg", ["cpu:host"])
    (code,) = blocks("deployment.md", "python")
    exec(compile(code, "deployment.md", "exec"), {})
    assert capsys.readouterr().out == "(3, 2)\n"
