"""Memory that calls have freed serves later ones of equal sizes; it is bounded, and outlives nobody's arrays."""

from __future__ import annotations

import subprocess
import sys

import child
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


SMALL = """
import os

import numpy as np
import lstm_ir as li
from lstm_ir.backends.run import freed_memory
from memory_maps import kilobytes

freed_memory.usable_bytes = lambda: 1  # the least is kept then
x = li.input("x", ("N", 10))
wide = li.broadcast_to(li.expand_dims(x, 2), ("N", 10, 100)) + 1.0
exe, rows = li.compile(li.Graph("g", [x], {"y": wide}), device="local-sync"), np.ones((70_000, 10), "f4")
exe(x=rows[:3])
before = kilobytes(os.getpid())["Rss"]
for n in %s:
    exe(x=rows[:n])
print(kilobytes(os.getpid())["Rss"] - before)
"""


@pytest.mark.parametrize(("sizes", "most"), [
    pytest.param("[10_000 + 100 * k for k in range(63)]", tuned.FREED_LEAST, id="many sizes, 40 to 65 MB"),
    pytest.param("[70_000, 3]", 0, id="a large result goes with the next call"),
])  # fmt: skip
def test_a_bounded_number_of_bytes_is_kept(sizes: str, most: int) -> None:
    assert int(child.python("-c", SMALL % sizes)) << 10 < most + (96 << 20)


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
