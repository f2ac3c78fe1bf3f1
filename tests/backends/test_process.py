"""Forked children, and the end of a process whose threads are inside of native work."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from child import environment, script

from lstm_ir.backends import process

MACHINE = Path(__file__).parents[1] / "machine"


def test_a_forked_child_refuses_at_once_whatever_its_parents_threads_hold(tmp_path: Path) -> None:
    *acts, code, first, second = script("forked_child.py", tmp_path).splitlines()
    said = dict(line.split(": ") for line in acts)
    assert [said.pop(name) for name in ("close a session", "close", "collect")] == ["nothing"] * 3
    assert len(said) == 11
    assert set(said.values()) == {"a forked child cannot use executables"}
    assert (code, first, second) == ("5", "2.0", "2.0")  # and the parent's sessions go on


@pytest.mark.parametrize(("how", "code"), [
    ("exit", 7), pytest.param("error", 1, marks=pytest.mark.slow), pytest.param("main", 0, marks=pytest.mark.slow),
])  # fmt: skip
def test_the_end_of_a_process_waits_for_calls(how: str, code: int) -> None:
    command = [
        sys.executable,
        str(MACHINE / "ending_child.py"),
        how,
        "0.05",
        "caller",
        "workers",
        "stream",
        "load",
        "train",
        "lower",
    ]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr[-2000:]
    assert "mine" in done.stderr if how == "error" else done.stderr == ""


ENDS = """
import atexit, sys, threading, time
from pathlib import Path
late = []
atexit.register(lambda: late[0]())  # runs after what the library does at the end
from lstm_ir.backends import process
from lstm_ir.backends.compile import compiler
folder = Path(sys.argv[1])
compiler.executable = lambda: str(folder / "iree-compile")
begun = threading.Event()

def compile():
    begun.set()
    compiler.run("module {}", [], name="m", target="t", timeout=500)

def stay():
    with process.work():
        begun.set()
        time.sleep(600)

threading.Thread(target=globals()[sys.argv[2]], daemon=True).start()
begun.wait()
while sys.argv[2] == "compile" and not (folder / "pid").exists():
    time.sleep(0.01)
late.append(lambda: process.check() or print("still", time.monotonic()))
sys.exit(7)
"""


@pytest.mark.parametrize("work", ["compile", "stay"])
def test_the_end_interrupts_compilations_and_waits_for_the_rest_as_long_as_it_says(work: str, tmp_path: Path) -> None:
    compiler, scratch = tmp_path / "iree-compile", tmp_path / "scratch"
    scratch.mkdir()
    compiler.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    compiler.chmod(0o755)
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", ENDS, str(tmp_path), work],
        env={**environment(), "TMPDIR": str(scratch)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.startswith("still ")
    assert list(scratch.iterdir()) == []
    if work == "compile":
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)
    else:
        assert process.WAIT <= time.monotonic() - start < 60


FIRST_USE = """
import os, signal, sys, threading, time
import lstm_ir as li
x = li.input("x", ("T", 3))
graph = li.Graph("g", [x], {"y": x * 2.0})
use = {"compile": lambda: li.compile(graph).close(), "load": lambda: li.load("nowhere.lirpkg")}[sys.argv[1]]

def tried():
    try:
        use()
    except li.PackageError:
        pass

threading.Thread(target=tried).start()
time.sleep(float(sys.argv[2]))
child = os.fork()
if child == 0:
    signal.alarm(60)
    tried()
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("use", "after"), [("compile", 0.05), ("load", 0.01)])
def test_a_fork_waits_for_first_uses_in_other_threads(use: str, after: float) -> None:
    """They import: a child that lacks the thread would wait for the locks of its modules for ever."""
    command = [sys.executable, "-c", FIRST_USE, use, str(after)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=200)
    assert (done.stdout, done.returncode) == ("5\n", 0), done.stderr[-2000:]


SLOW_IMPORT = """
import threading, time
import lstm_ir as li
import logging  # its hook of forks is younger than the library's: it runs first, and takes the lock of logging
threading.Thread(target=__import__, args=["h5py"]).start()
time.sleep(0.1)
"""
IMPORT_AFTER_THE_HOOK = """
import os, threading, time
go = threading.Event()
os.register_at_fork(before=lambda: (go.set(), time.sleep(0.3)))  # older than the library's: it runs after it
import lstm_ir as li
threading.Thread(target=lambda: (go.wait(), __import__("h5py"))).start()
"""
FORKED = """
import os, signal
start = time.monotonic()
child = os.fork()
if child == 0:
    signal.alarm(20)
    import h5py
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), time.monotonic() - start)
"""


@pytest.mark.parametrize("begin", [SLOW_IMPORT, IMPORT_AFTER_THE_HOOK], ids=["logging", "begins"])
def test_a_fork_waits_for_imports_that_begin_or_log(tmp_path: Path, begin: str) -> None:
    """One that logs waited for the fork, which waited for it; one began between the hook and the fork."""
    (tmp_path / "h5py.py").write_text("import time\ntime.sleep(0.6)\nimport logging\nlogging.getLogger('h5py')\n")
    paths = {"PYTHONPATH": os.pathsep.join([str(tmp_path), environment().get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", begin + FORKED]
    done = subprocess.run(command, env={**environment(), **paths}, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    code, seconds = done.stdout.split()
    assert code == "5", done.stdout
    assert float(seconds) < 15
