"""Memory that calls have freed serves later ones of equal sizes; it is bounded, and outlives nobody's arrays."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.run import freed_memory, tuned

HOLDERS = (
    "import builtins; builtins.held = held",
    "import sys; sys.held = held",
    "cycle = [held]; cycle.append(cycle)",
)
PROGRAM = """
import numpy as np
import lstm_ir as li
x = li.input("x", ("N", 1000))
exe = li.compile(li.Graph("g", [x], {"y": li.tanh(x)}), device=%r)
held = [exe(x=np.ones((n, 1000), "f4"))["y"] for n in (1, 1000, 3000)]
%s
print("done")
"""


def executable(device: str) -> li.Executable:
    x = li.input("x", ("N", 1000), "f32")
    return li.compile(li.Graph("g", [x], {"y": x + 1.0}), device=device)


def where(a: np.ndarray) -> int:
    return int(a.__array_interface__["data"][0])


def releases(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by one where memory is given back; sizes that earlier tests met are not counted."""
    calls: list[int] = []
    monkeypatch.setattr(freed_memory, "release", lambda: calls.append(1))
    monkeypatch.setattr(freed_memory, "_seen", freed_memory._Counts())
    return calls


@pytest.mark.parametrize("device", ["local-sync", "local-task"])
def test_a_result_takes_the_memory_of_one_that_is_gone(device: str) -> None:
    exe, ones = executable(device), np.ones((500, 1000), np.float32)
    first = [where(exe(x=ones)["y"]) for _ in range(6)]
    assert len(set(first)) < len(first)


@pytest.mark.parametrize("device", ["local-sync", "local-task"])
def test_a_result_that_is_held_stays(device: str) -> None:
    exe = executable(device)
    held = [exe(x=np.full((300, 1000), k, np.float32))["y"] for k in range(5)]
    assert len({where(a) for a in held}) == 5
    for k, a in enumerate(held):
        assert (a == k + 1).all()


@pytest.mark.parametrize("device", ["local-sync", "local-task"])
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_process_ends_while_something_holds_a_result(holder: str, device: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM % (device, holder)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "done\n", "")


def test_many_sizes_keep_a_bounded_number_of_bytes() -> None:
    """Of results of 100 sizes, 4 to 8 MB each, no more stay than the bound."""
    exe = executable("local-sync")
    rows = np.ones((2000, 1000), np.float32)
    before = _resident()
    for k in range(100):
        exe(x=rows[: 1000 + 10 * k])
    assert _resident() - before < freed_memory.kept_bytes() + (64 << 20)


@pytest.mark.slow  # 280 MB
def test_a_large_result_goes_with_the_next_call() -> None:
    """One of more than is kept stays alone, until another buffer is made."""
    x = li.input("x", ("N",), "f32")
    exe = li.compile(li.Graph("g", [x], {"y": li.expand_dims(x, 1) + li.zeros((1, 1000))}), device="local-sync")
    before = _resident()
    assert exe(x=np.ones(70_000, np.float32))["y"].nbytes > freed_memory.kept_bytes()
    exe(x=np.ones(3, np.float32))
    assert _resident() - before < 64 << 20


def test_new_sizes_let_old_ones_go(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = releases(monkeypatch)
    exe = executable("local-sync")
    for k in range(2 * tuned.FREED_SHAPES):
        exe(x=np.ones((k + 1, 1000), np.float32))
    assert len(calls) == 2


def test_a_session_that_is_closed_gives_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = releases(monkeypatch)
    with executable("local-sync") as exe:
        exe(x=np.ones((3, 1000), np.float32))
        assert not calls
    assert calls


def _resident() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * 4096
