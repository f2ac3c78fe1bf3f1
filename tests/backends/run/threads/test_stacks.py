"""Threads that run dispatches have the stack that the compiler lets a dispatch take, and more."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from child import script

import lstm_ir as li
from lstm_ir.backends.run import helper_pool
from lstm_ir.backends.run.threads import stacks
from lstm_ir.ir.errors import DeviceError

linux = pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="needs Linux's /proc")


@linux
def test_workers_have_the_stack_that_they_are_asked_to_have() -> None:
    assert all(size >= stacks.WORKER for size, _ in json.loads(script("stacks_child.py", "nothing")))


def _in_small_thread(size: int, run: Callable[[], None]) -> None:
    """`run` in a thread whose stack is as small as is asked.

    The C library gives a new thread the stack of one that ended, of up to four times the size: threads
    that got such a stack keep it until there is one that did not.
    """
    done, claim = threading.Event(), threading.Lock()
    ran: list[bool] = []

    def first_of_its_size() -> None:
        found = stacks._size()
        assert found is not None
        if found >= size + (64 << 10) and not ran:
            done.wait(60)
            return
        with claim:
            try:
                if not ran:
                    run()
                    ran.append(True)
            finally:
                done.set()

    old = threading.stack_size(size)
    threads: list[threading.Thread] = []
    try:
        while not done.is_set() and len(threads) < 64:
            threads.append(threading.Thread(target=first_of_its_size))
            threads[-1].start()
            done.wait(0.1)
    finally:
        threading.stack_size(old)
    done.wait(60)
    for t in threads:
        t.join()
    assert ran


def _in_thread(size: int) -> list[object]:
    """A call of a new executable in a thread with such a stack, or what it raised."""
    x = li.input("x", (3,))
    exe = li.compile(li.Graph("twice", [x], {"y": x + x}), device="local-sync")
    found: list[object] = []

    def run() -> None:
        try:
            found.append(exe(x=np.ones(3, "f4"))["y"].tolist())
        except DeviceError as e:
            found.append(str(e))

    _in_small_thread(size, run)
    return found


@linux
@pytest.mark.parametrize("kib", [64, 128, 256, 512])
def test_a_caller_with_a_small_stack_is_refused(kib: int) -> None:
    (got,) = _in_thread(kib << 10)
    if kib << 10 < stacks.CALLER:
        assert "this thread's stack is" in str(got)
        assert "threading.stack_size" in str(got)
    else:
        assert got == [2.0, 2.0, 2.0]


@linux
def test_a_call_that_was_refused_costs_nothing() -> None:
    """The next call, of a thread with room, finds a context."""
    x = li.input("x", (3,))
    exe = li.compile(li.Graph("twice", [x], {"y": x + x}), device="local-sync")
    seen: list[str] = []

    def run() -> None:
        for _ in range(9):
            with pytest.raises(DeviceError) as refused:
                exe(x=np.ones(3, "f4"))
            seen.append(str(refused.value))

    _in_small_thread(64 << 10, run)
    assert len(seen) == 9
    assert exe(x=np.ones(3, "f4"))["y"].tolist() == [2.0] * 3


@linux
def test_helpers_have_room_whatever_python_s_threads_have(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int | None] = []
    monkeypatch.setattr(helper_pool._Helper, "_run", lambda _: sizes.append(stacks._size()))
    old = threading.stack_size(64 << 10)
    try:
        helper_pool._Helper(None).end()
        assert threading.stack_size() == 64 << 10
    finally:
        threading.stack_size(old)
    assert sizes[0] is not None
    assert sizes[0] >= stacks.WORKER - (64 << 10)
