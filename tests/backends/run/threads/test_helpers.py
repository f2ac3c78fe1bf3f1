"""Helper threads: right numbers whoever comes, nobody stays, nothing hangs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import aarch64
import numpy as np
import pytest
from child import python, script
from device import qemu
from lstm_graph import SIZES, lstm

import lstm_ir as li
from lstm_ir.api import build, prepare
from lstm_ir.backends import queue
from lstm_ir.backends.compile import compiler
from lstm_ir.backends.run import helper_pool, runtime
from lstm_ir.backends.run.devices import resolve
from lstm_ir.backends.run.threads import choice


def child(*words: object) -> str:
    return script("helpers_child.py", *words, timeout=280, silent=True)


def worst(out: str) -> float:
    found = re.search(r"worst (\S+)", out)
    assert found is not None, out
    return float(found[1])


def until(what: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not what() and time.monotonic() < end:
        time.sleep(1e-3)
    return what()


def _awake_at(there: helper_pool.Queue) -> bool:
    return any(h.awake and h.queue is there for h in helper_pool._helpers)


# Polls of a helper that comes too late for a call, by a busy processor, and is there for the next: some 0.05 s.
LATE = 1 << 28

SLOW = [pytest.param(*c, marks=pytest.mark.slow) for c in ((4, 1), (9, 2))]


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "callers"), [(2, 1), (3, 3), *SLOW])
def test_bodies_and_gradients(threads: int, callers: int, seed: int) -> None:
    """One helper and more helpers than processors, for one caller and for several."""
    assert worst(child(threads, callers, 4, seed % 10000)) < 1


@pytest.mark.slow
def test_they_finish_on_a_loaded_machine(seed: int) -> None:
    """Every processor taken by others: whoever waits for a helper's part gets it."""
    spin = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        assert worst(child(4, 2, 1, seed % 10000)) < 1
    finally:
        for p in others:
            p.kill()
            p.wait()


def test_the_same_bits_with_and_without(rng: np.random.Generator) -> None:
    graph = lstm()
    exe, alone = li.compile(graph), li.compile(graph, options={"helpers": False})
    assert (exe.helped, alone.helped) == (True, False)
    assert exe.device == "local-sync"
    assert [n for n in exe.report.notes if n.startswith("driver local-sync with helpers: ")]
    for _ in range(200):
        x = rng.standard_normal(SIZES[:3]).astype(np.float32)
        np.testing.assert_array_equal(exe(x=x)["y"], alone(x=x)["y"])


def test_they_come_and_go(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setattr(helper_pool._Pool, "polls", LATE)
    exe = li.compile(lstm())
    there = exe._calls.queue
    assert there is not None
    x = rng.standard_normal(SIZES[:3]).astype(np.float32)
    want = exe(x=x)["y"]

    def opened() -> int:
        """Whether a helper is there right after a call."""
        y, found = exe(x=x)["y"], there.helpers
        np.testing.assert_array_equal(y, want)
        return found

    assert until(lambda: opened() > 0)
    assert until(lambda: there.helpers == 0)  # home again, once nobody calls
    assert until(lambda: opened() > 0)
    exe.close()
    assert until(lambda: there.helpers == 0)
    with pytest.raises(li.DeviceError, match="closed"):
        exe(x=x)


def test_one_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is published by hand: the entry, the workgroups, the way out."""
    monkeypatch.setattr(helper_pool._Pool, "polls", LATE)
    exe = li.compile(lstm((800, 1, 64, 128)))
    there = exe._calls.queue
    assert there is not None
    x = np.ones((800, 1, 64), np.float32)

    taken: list[int] = []

    def all_taken() -> bool:
        """Each takes one more than there is, to see that none is left."""
        exe(x=x)
        taken.append(int(there._words[queue.NEXT_GROUP * 16]))
        return taken[-1] == 4

    # One kernel, two members: the caller and one helper ask for a third and a fourth.
    assert until(all_taken), (taken[-5:], exe.report.notes, helper_pool._helpers)
    assert there._words[queue.SERVING * 16] == 0
    assert there._words[queue.PUBLISHED * 16] % 2 == 0


def test_a_call_that_fails_ends(rng: np.random.Generator) -> None:
    """Lengths that only the call computes, and finds too long."""
    T, B, I, H = SIZES
    x, ends = li.input("x", (T, B, I)), li.input("ends", (B,), "i32")
    w, r = li.weight("w", np.ones((4 * H, I), "f4")), li.weight("r", np.ones((4 * H, H), "f4"))
    exe = li.compile(li.Graph("g", [x, ends], {"y": li.lstm(x, w, r, lengths=ends + ends)[0]}))
    there = exe._calls.queue
    assert there is not None
    good = {"x": rng.standard_normal((T, B, I)).astype(np.float32), "ends": np.full(B, 5, np.int32)}
    exe(good)
    with pytest.raises(li.ValueRangeError):
        exe(good | {"ends": np.full(B, T, np.int32)})
    assert there._words[queue.CALL] == 0
    assert until(lambda: there.helpers == 0)
    exe(good)


@pytest.mark.parametrize("where", [helper_pool.Queue.end_call, helper_pool.Queue.begin_call, helper_pool._Helper.call])
def test_a_signal_at_the_worst_moment(
    where: Any, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:  # fmt: skip
    """An exception at any line of what a call does about helpers: none spins, none is lost."""
    exe = li.compile(lstm())
    there = exe._calls.queue
    assert there is not None
    x = rng.standard_normal(SIZES[:3]).astype(np.float32)
    want = exe(x=x)["y"]
    lines = skipped = 0

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code is where.__code__ and event == "line":
            lines += 1
            if lines > skipped:
                raise KeyboardInterrupt
        return trace

    for skipped in range(12):  # noqa: B007  `trace` reads it
        assert until(lambda: there.helpers == 0)
        lines = 0
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            exe(x=x)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        assert until(lambda: not any(h.awake for h in helper_pool._helpers))  # home by itself
        np.testing.assert_array_equal(exe(x=x)["y"], want)
    monkeypatch.setattr(helper_pool._Pool, "polls", LATE)
    assert until(lambda: bool(exe(x=x)) and any(h.awake for h in helper_pool._helpers))


def test_executables_that_take_turns_have_helpers_both(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:  # fmt: skip
    """A helper that would wait at one queue for ever goes to the other, whose call wants it, and back."""
    executables = [li.compile(lstm()), li.compile(lstm())]
    queues = [exe._calls.queue for exe in executables]
    x = rng.standard_normal(SIZES[:3]).astype(np.float32)
    want = li.interpret(lstm(), {"x": x})["y"]
    executables[0](x=x)
    assert until(lambda: not any(h.awake for h in helper_pool._helpers))
    monkeypatch.setattr(helper_pool._Pool, "polls", 0x7FFFFFFF)  # about a second without a call
    for turn in (0, 1, 0, 1):
        queue = queues[turn]
        assert queue is not None
        queue.begin_call()
        assert any(queue in (h.queue, h.following) for h in helper_pool._helpers)
        queue.end_call()
        assert until(partial(_awake_at, queue))
        np.testing.assert_allclose(executables[turn](x=x)["y"], want, rtol=1e-5, atol=1e-6)
    for exe in executables:
        exe.close()
    assert until(lambda: not any(h.awake for h in helper_pool._helpers))


def test_no_thread_can_be_had(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    exe = li.compile(lstm())
    x = rng.standard_normal(SIZES[:3]).astype(np.float32)
    want = exe(x=x)["y"]

    def refuse(self: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    monkeypatch.setattr(helper_pool, "_helpers", [])
    monkeypatch.setattr(helper_pool._Pool, "again", 0.0)
    np.testing.assert_array_equal(exe(x=x)["y"], want)
    assert not helper_pool._Pool.closed
    assert helper_pool._helpers == []


def test_a_thread_that_cannot_be_had_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """After a pause; and a helper that ends is none any more."""
    exe = li.compile(lstm())
    x = rng.standard_normal(SIZES[:3]).astype(np.float32)
    start, tried = threading.Thread.start, [0]

    def fails_once(self: threading.Thread) -> None:
        tried[0] += 1
        if tried[0] == 1:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr("threading.Thread.start", fails_once)
    monkeypatch.setattr(helper_pool, "_helpers", [])
    monkeypatch.setattr(helper_pool._Pool, "again", 0.0)
    for _ in range(3):
        exe(x=x)
    assert tried == [1]
    monkeypatch.setattr(helper_pool._Pool, "again", 0.0)
    exe(x=x)
    helpers = list(helper_pool._helpers)
    assert helpers
    exe.close()
    monkeypatch.setattr(helper_pool._Pool, "closed", True)
    for h in helpers:
        h.end()
    assert helper_pool._helpers == []


def test_options_and_devices_say_who_works() -> None:
    graph = lstm()
    assert not li.compile(graph, device="local-sync").helped
    assert not li.compile(graph, device="local-task").helped
    assert not li.compile(graph, options={"kernels": False}).helped
    assert "lstm_ir.serve" not in prepare(graph, resolve("cpu")).text
    with pytest.raises(li.CompileError, match="option helpers is 1"):
        li.compile(graph, options={"helpers": 1})


def test_sessions_have_queues_of_their_own(rng: np.random.Generator) -> None:
    exe = li.compile(lstm())
    one, two = exe.session(), exe.session()
    assert len({id(s._calls.queue) for s in (exe, one, two)}) == 3
    x = rng.standard_normal(SIZES[:3]).astype(np.float32)
    np.testing.assert_array_equal(one(x=x)["y"], two(x=x)["y"])
    one.close()
    np.testing.assert_array_equal(exe(x=x)["y"], two(x=x)["y"])


def test_state(rng: np.random.Generator) -> None:
    """Calls that read and write state take a queue too."""
    T, B, I, H = SIZES
    x, states = li.input("x", (T, B, I)), [li.input(n, (1, B, H)) for n in ("h0", "c0")]
    w, r = (li.weight(n, rng.uniform(-0.1, 0.1, (4 * H, k)).astype(np.float32)) for n, k in (("w", I), ("r", H)))
    y, h_n, c_n = li.lstm(x, w, r, h0=states[0], c0=states[1])
    step = li.Graph("step", [x, *states], {"y": y, "h_n": h_n, "c_n": c_n})
    exe = li.compile(li.stateful(step, {"h0": "h_n", "c0": "c_n"}))
    assert exe.helped
    given = rng.standard_normal((T, B, I)).astype(np.float32)
    kept = {n: np.zeros((1, B, H), np.float32) for n in ("h0", "c0")}
    for _ in range(3):
        want = li.interpret(step, {"x": given, **kept})
        kept = {"h0": want["h_n"], "c0": want["c_n"]}
        np.testing.assert_allclose(exe.entries["step"](x=given)["y"], want["y"], rtol=2e-5, atol=2e-5)


def test_profile(rng: np.random.Generator) -> None:
    """The profiler's calls have a queue of their own, and one worker."""
    exe = li.compile(lstm())
    x = rng.standard_normal(SIZES[:3]).astype(np.float32)
    profile = exe.profile("main" if "main" in exe.entries else next(iter(exe.entries)), {"x": x})
    assert profile.workers == 1
    assert any("recurrence" in r.name for r in profile.rows)


def test_threads_are_fixed_by_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    li.compile(lstm())
    with pytest.raises(li.DeviceError, match="already run"):
        li.set_threads(runtime.threads() + 1)


ENDING = """
import sys, os
import numpy as np, lstm_ir as li
from lstm_graph import lstm, SIZES
li.set_threads(2)
exe = li.compile(lstm())
x = np.ones(SIZES[:3], np.float32)
for _ in range(50):
    exe(x=x)
"""


@pytest.mark.parametrize(
    "ending",
    ["", "exe.close()", "del exe", "sys.exit(0)",
     "import atexit; atexit.register(lambda: exe(x=x))",
     "if os.fork() == 0: sys.exit(0)\nassert os.wait()[1] == 0"],
)  # fmt: skip
def test_a_process_ends_while_they_are_there(ending: str, tmp_path: Path) -> None:
    """No crash, no word, no second of waiting."""
    path = tmp_path / "ending.py"
    path.write_text(ENDING + ending)
    python("-W", "ignore", path, timeout=120, silent=True)


def test_order_in_llvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What publish.py says of memory order is in the code that LLVM gets."""
    target = resolve("cpu:aarch64")
    text = prepare(lstm(), target, None, helpers=True).text
    flags = [*compiler.BASE_FLAGS, *target.flags, f"--iree-hal-dump-executable-intermediates-to={tmp_path}"]
    compiler.run(text, flags, name="order", target="cpu:aarch64", timeout=120)
    (codegen,) = tmp_path.glob("*linked*.optimized.ll")
    code = codegen.read_text()
    atomics = re.findall(r"atomicrmw \w+ .*", code)
    assert len(atomics) >= 8  # open and close, in and out, the next workgroup, what the team has
    assert [a for a in atomics if "acq_rel" not in a and "seq_cst" not in a] == []
    looks = re.findall(r"load atomic .*", code)
    assert len(looks) >= 5  # the entry, who serves, closed, the limit, a call
    assert [a for a in looks if " acquire, align 4" not in a] == []


def test_a_module_for_aarch64(tmp_path: Path, rng: np.random.Generator) -> None:
    """Compiles, and runs alone with a queue that nobody polls."""
    emulator = qemu()
    graph = lstm()
    lowered, blob = build(graph, resolve("cpu:aarch64"), None, helpers=True)
    (tmp_path / "m.vmfb").write_bytes(blob)
    from lstm_ir.backends.files import parameters

    weights = {n: np.ascontiguousarray(d.array) for n, d in lowered.program.weights.items()}
    parameters.index(weights).create_archive_file(str(tmp_path / "w.irpa"))
    x = rng.standard_normal(SIZES[:3]).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    (entry,) = lowered.optimized.entries
    command = [
        emulator, "-L", str(aarch64.sysroot()), str(aarch64.tool()), "--module=m.vmfb",
        "--parameters=model=w.irpa", f"--function={entry}", "--device=local-sync",
        "--input=@x.npy", f"--input={queue.BYTES}xi8=0", "--input=2", "--input=1", "--output=@y.npy",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    want = li.interpret(graph, {"x": x})["y"]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want, rtol=2e-5, atol=2e-5)


def test_kernels_without_room_are_not_offered() -> None:
    assert "lstm_ir.serve" in prepare(lstm(), resolve("cpu"), None, helpers=True).text
    few = {"thresholds": {"published_arguments": 1}}
    text = prepare(lstm(), resolve("cpu"), few, helpers=True).text
    assert "lstm_ir.serve" not in text
    assert "tensor<" + str(queue.BYTES) not in text
    assert "util.global.load @lstm_ir.workers" in text  # how many share the work: the device's workers


def test_no_helper_where_there_is_one_thread() -> None:
    assert script("one_thread_child.py") == "0 False\n"


def test_rows_of_a_matrix_are_shared_by_columns(rng: np.random.Generator, seed: int) -> None:
    """A product of one row with a large matrix; kernels of one step share columns, not rows."""
    x = li.input("x", (1, 1, 1024))
    arrays: Any = {"x": rng.standard_normal((1, 1, 1024)).astype(np.float32)}
    w, r = (li.weight(n, rng.uniform(-0.1, 0.1, (2048, k)).astype(np.float32)) for n, k in (("w", 1024), ("r", 512)))
    graph = li.Graph("g", [x], {"y": li.lstm(x, w, r)[0]})
    exe = li.compile(graph)
    assert exe.helped
    (work,) = exe.report.work.values()
    assert work.published > 0
    assert choice.choose(work.known(), work.loops, work.published, threads=2).helpers == 1
    want = li.interpret(graph, arrays)["y"]
    for _ in range(50):
        np.testing.assert_allclose(exe(arrays)["y"], want, rtol=2e-5, atol=2e-5)


def test_a_gradient_has_none() -> None:
    """Loops and products are five, and what is between them runs on one thread: workers are as fast."""
    graph = lstm()
    train = li.vjp(graph, ["y"], ["x", *graph.weights])
    assert "lstm_ir.serve" not in prepare(train, resolve("cpu"), None, helpers=True).text
    assert "lstm_ir.serve" in prepare(train, resolve("cpu"), {"helpers": "always"}, helpers=True).text
