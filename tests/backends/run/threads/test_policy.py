"""The policy of a thread that waits for workers, and after."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.run.threads import caller, policy

needs_policies = pytest.mark.skipif(policy.batch is policy.unchanged, reason="this system has no SCHED_BATCH")


@needs_policies
def test_a_caller_is_patient_for_the_call_alone() -> None:
    seen: list[int] = []
    policy.batch(lambda *a: seen.append(os.sched_getscheduler(0)), 1, 2)
    assert (seen, os.sched_getscheduler(0)) == ([os.SCHED_BATCH], os.SCHED_OTHER)


@needs_policies
def test_a_failing_call_leaves_the_policy_as_it_was() -> None:
    def fails() -> None:
        raise RuntimeError("failed")

    with pytest.raises(RuntimeError, match="failed"):
        policy.batch(fails)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@needs_policies
def test_a_policy_that_somebody_chose_stays() -> None:
    seen: list[int] = []

    def other() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        policy.batch(lambda: seen.append(os.sched_getscheduler(0)))
        seen.append(os.sched_getscheduler(0))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [os.SCHED_IDLE, os.SCHED_IDLE]


@needs_policies
def test_a_policy_that_somebody_chooses_meanwhile_stays() -> None:
    seen: list[int] = []

    def chosen() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    def other() -> None:
        policy.batch(chosen)
        seen.append(os.sched_getscheduler(0))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [os.SCHED_IDLE]


@needs_policies
@pytest.mark.parametrize("often", [1, 2])
def test_an_exception_of_a_signal_handler_leaves_no_policy(often: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: the policy is restored all the same. Twice: by the next call."""
    original, raised = os.sched_getscheduler, 0

    def interrupted(pid: int) -> int:
        nonlocal raised
        if original(0) == os.SCHED_BATCH and raised < often:
            raised += 1
            raise KeyboardInterrupt
        return original(pid)

    monkeypatch.setattr(os, "sched_getscheduler", interrupted)
    with pytest.raises(KeyboardInterrupt):
        policy.batch(lambda: None)
    assert raised == often
    assert original(0) == (os.SCHED_OTHER if often == 1 else os.SCHED_BATCH)
    policy.batch(lambda: None)
    assert original(0) == os.SCHED_OTHER


@needs_policies
def test_where_policies_are_forbidden_the_call_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuses)
    seen: list[tuple[int, ...]] = []
    policy.batch(lambda *a: seen.append(a), 3)
    assert seen == [(3,)]


@needs_policies
@pytest.mark.parametrize(("device", "policy"), [("local-task", "batch"), ("local-sync", "other")])
def test_only_calls_of_workers_wait(device: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(caller.VARIABLE, "1")
    set_: list[int] = []
    original = os.sched_setscheduler

    def spy(pid: int, chosen: int, param: os.sched_param) -> None:
        set_.append(chosen)
        original(pid, chosen, param)

    monkeypatch.setattr(os, "sched_setscheduler", spy)
    x = li.input("x", (3,))
    exe = li.compile(li.Graph("double", [x], {"y": x + x}), device=device)
    assert np.array_equal(exe(x=np.ones(3, np.float32))["y"], np.full(3, 2, np.float32))
    assert set_ == ([os.SCHED_BATCH, os.SCHED_OTHER] if policy == "batch" else [])
