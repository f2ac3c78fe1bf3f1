"""A process may refuse what calls do to the affinity and the policy of the thread that calls."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lstm_graph import lstm

import lstm_ir as li
from lstm_ir.backends.run.threads import affinity, caller

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or not hasattr(os, "SCHED_BATCH"), reason="needs Linux"
)
SIZES = (60, 4, 64, 128)
OFF = {"schedule_caller": False}
DEVICES = ["local-task", "local-sync", None]  # None: the caller with helpers


@pytest.fixture(autouse=True)
def _scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(caller.VARIABLE, raising=False)


def x() -> np.ndarray[Any, Any]:
    return np.random.default_rng(4).standard_normal(SIZES[:3]).astype(np.float32)


State = tuple[int, frozenset[int]]


def state(thread: int) -> State:
    """Policy and processors of a thread, which any thread of the process may read."""
    return os.sched_getscheduler(thread), frozenset(os.sched_getaffinity(thread))


@contextmanager
def watched() -> Iterator[set[State]]:
    """What another thread sees of this one, before, during and after."""
    me, seen, over = threading.get_native_id(), set[State](), threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.add(state(me))

    other = threading.Thread(target=look)
    seen.add(state(me))
    other.start()
    try:
        yield seen
    finally:
        over.set()
        other.join()
        seen.add(state(me))


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What this thread asks of the system."""
    me, asked = threading.get_ident(), list[str]()

    def counting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if threading.get_ident() == me:
                asked.append(name)
            return original(*arguments)

        return call

    with monkeypatch.context() as m:
        for name in ("sched_setaffinity", "sched_setscheduler", "sched_getscheduler"):
            m.setattr(os, name, counting(name, getattr(os, name)))
        yield asked


def refused(option: bool, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options of an executable that is refused by its option, or by the environment."""
    if not option:
        monkeypatch.setenv(caller.VARIABLE, "0")
    return OFF if option else {}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Callers are never where they should be: each call would move them, by a placement of this test's own."""
    kept = affinity.of_process
    own = affinity.Placement(lambda: -1, pause=0.0, first_worker=kept.first_worker)
    with monkeypatch.context() as m:
        m.setattr(affinity, "of_process", own)
        yield
    kept.first_worker = own.first_worker  # of a device that was opened meanwhile


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("option", [True, False], ids=["option", "environment"])
@pytest.mark.usefixtures("elsewhere")
def test_refused_a_caller_keeps_affinity_and_policy(
    device: str | None, option: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = li.compile(lstm(SIZES), device=device, options=refused(option, monkeypatch))
    assert exe.helped is (device is None)
    want = exe(x=x())["y"]
    before = state(0)
    with watched() as seen:
        for _ in range(30):
            np.testing.assert_array_equal(exe(x=x())["y"], want)
    assert seen == {before}
    with counted(monkeypatch) as asked:
        exe(x=x())
        with exe.session() as session:
            session(x=x())
    assert asked == []


@pytest.mark.parametrize("option", [True, False], ids=["option", "environment"])
def test_a_package_is_refused_too(option: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = li.export(lstm(SIZES), tmp_path / "m.lirpkg")
    with counted(monkeypatch) as asked:
        li.load(path, device="local-task")(x=x())
        assert "sched_setscheduler" in asked
    exe = li.load(path, device="local-task", options=refused(option, monkeypatch))
    with counted(monkeypatch) as asked:
        exe(x=x())
    assert asked == []


def test_a_watcher_sees_a_policy_that_is_not_refused() -> None:
    exe = li.compile(lstm(SIZES), device="local-task")
    with watched() as seen:
        for _ in range(2000):
            exe(x=x())
            if os.SCHED_BATCH in {policy for policy, _ in list(seen)}:
                break
    assert os.SCHED_BATCH in {policy for policy, _ in seen}
    assert state(0)[0] == os.SCHED_OTHER


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", [{}, OFF], ids=["on", "off"])
@pytest.mark.usefixtures("elsewhere")
def test_a_system_that_refuses(device: str | None, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As seccomp does: EPERM for whoever asks."""

    def no(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    want = li.compile(lstm(SIZES), device="local-sync")(x=x())["y"]
    monkeypatch.setattr(os, "sched_setaffinity", no)
    monkeypatch.setattr(os, "sched_setscheduler", no)
    if options:
        monkeypatch.setattr(os, "sched_getscheduler", no)
    exe = li.compile(lstm(SIZES), device=device, options=options)
    for _ in range(5):
        np.testing.assert_allclose(exe(x=x())["y"], want, rtol=1e-5, atol=1e-6)


def test_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert caller.may_schedule(True)
    assert not caller.may_schedule(False)
    for word, allowed in (("0", False), ("1", True), ("", True)):
        monkeypatch.setenv(caller.VARIABLE, word)
        assert caller.may_schedule(True) is allowed
        assert not caller.may_schedule(False)
    monkeypatch.setenv(caller.VARIABLE, "no")
    with pytest.raises(li.DeviceError, match="LSTM_IR_SCHEDULE_CALLER is 'no'; expected 0 or 1"):
        li.compile(lstm(SIZES))
    with pytest.raises(li.CompileError, match="option schedule_caller is 0; expected True or False"):
        li.load(tmp_path / "m.lirpkg", options={"schedule_caller": 0})
    with pytest.raises(li.OptionError, match=r"unknown option .kernels.: .* here there are helpers, schedule_caller"):
        li.load(tmp_path / "m.lirpkg", options={"kernels": True})
