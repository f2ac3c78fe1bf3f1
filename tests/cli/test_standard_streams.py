"""Verbs of a process that began with a standard stream closed, as services and schedulers start them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lstm_ir as li


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """g.lir and its input."""
    path = tmp_path_factory.mktemp("streams")
    x = li.input("x", (3,))
    (path / "g.lir").write_text(str(li.Graph("g", [x], {"y": li.tanh(x)})))
    np.save(path / "x.npy", np.ones(3, np.float32))
    return path


def shell(folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    command = f"exec {sys.executable} -m lstm_ir {words}"
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("words", "made"),
    [
        ("opt g.lir -p cse -o made.lir", "made.lir"),
        ("compile g.lir -t cpu:host -o made.lirpkg", "made.lirpkg"),
        ("run g.lir --interpret -i x=x.npy -o made.npz", "made.npz"),
    ],
)
def test_what_is_written_to_a_file_needs_none(folder: Path, words: str, made: str, closed: str) -> None:
    (folder / made).unlink(missing_ok=True)
    done = shell(folder, f"{words} {closed}")
    assert done.returncode == 0, done.stderr
    assert "fault of lstm-ir" not in done.stderr
    assert (folder / made).stat().st_size > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("opt - -p cse <&-", "a graph is read from stdin, which is closed"),
        ("show <&-", "a graph is read from stdin, which is closed"),
        ("show g.lir >&-", "a text is written to stdout, which is closed"),
    ],
)
def test_a_closed_stream_that_is_needed_is_said(folder: Path, words: str, said: str) -> None:
    done = shell(folder, words)
    assert done.returncode == 1
    assert said in done.stderr
    assert "fault of lstm-ir" not in done.stderr


def test_a_pipe_that_breaks_where_stdout_is_closed(folder: Path) -> None:
    """Another file's pipe that nobody reads any more."""
    code = (
        "import os, sys\n"
        "from lstm_ir.cli import files, group\n"
        "def broken(*given, **more): raise BrokenPipeError\n"
        "files.write_text = broken\n"
        "assert sys.stdout is None\n"
        "sys.exit(group.run(['opt', 'g.lir', '-p', 'cse', '-o', 'other.lir']))\n"
    )
    command = ["bash", "-c", f'exec {sys.executable} -c "$0" >&-', code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 1
    assert done.stderr == ""
