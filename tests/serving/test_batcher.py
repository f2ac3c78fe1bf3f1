"""Requests of many threads in one call: results of their own calls, bounded queues, deadlines, a graceful end."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pytest
from paths import ROOT
from torch_batches import torch_lstm

import lstm_ir as li
from lstm_ir.ir import dims
from lstm_ir.ir.errors import BusyError, CallError, DeadlineError, DeviceError, ValueRangeError
from lstm_ir.ir.signature import Entry, Port
from lstm_ir.ir.types import TensorType
from lstm_ir.serving.batcher import submit_prepared
from lstm_ir.serving.rows import length_class
from lstm_ir.serving.scheduler import Job, Scheduler

I, H, C = 5, 7, 3
Array = np.ndarray[Any, Any]
WEIGHTS = {
    n: np.random.default_rng(3).uniform(-0.6, 0.6, s).astype(np.float32)
    for n, s in (("w_ih", (4 * H, I)), ("w_hh", (4 * H, H)), ("w_out", (C, H)))
}


def encoder(*, with_lengths: bool) -> li.Graph:
    """An LSTM's outputs for each step, and scores of its last step."""
    x = li.input("x", ("T", "B", I))
    lengths = li.input("lengths", ("B",), "i32") if with_lengths else None
    w = {n: li.weight(n, a) for n, a in WEIGHTS.items()}
    y, h_n, _ = li.lstm(x, w["w_ih"], w["w_hh"], lengths=lengths)
    inputs = [x] if lengths is None else [x, lengths]
    return li.Graph("encoder", inputs, {"y": y, "scores": li.dense(h_n[0], w["w_out"])})


@pytest.fixture(scope="module", params=["lengths", "equal"])
def exe(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = li.compile(encoder(with_lengths=request.param == "lengths"))
    yield made
    made.close()


def expected(x: Array, lengths: Array | None) -> dict[str, Array]:
    """By torch, one row after another."""
    return torch_lstm(x, WEIGHTS, lengths)


def close(found: Mapping[str, Array], want: Mapping[str, Array]) -> None:
    assert found.keys() == want.keys()
    for n in want:
        np.testing.assert_allclose(found[n], want[n], rtol=0, atol=2e-5)


def test_many_threads_get_their_own_results(exe: Any, rng: np.random.Generator) -> None:
    """Rows and steps differ from request to request; a third of them state lengths."""
    has = any(p.name == "lengths" for p in exe.inputs)
    requests = []
    for i in range(120):
        t, b = int(rng.integers(1, 14)), int(rng.integers(1, 5))
        x = rng.standard_normal((t, b, I), np.float32)
        lengths = rng.integers(1, t, b, dtype=np.int32, endpoint=True) if has and i % 3 == 0 else None
        requests.append((x, lengths))
    with li.Batcher(exe, max_batch=16, max_delay=0.02) as batcher, ThreadPoolExecutor(12) as threads:
        assert batcher.rows.pads is has
        given = [{"x": x} if n is None else {"x": x, "lengths": n} for x, n in requests]
        found = list(threads.map(lambda arrays: batcher(arrays), given))
        counters = batcher.counters
    assert counters.jobs == 120
    assert counters.groups < 100, "requests shared no calls"
    for got, (x, lengths) in zip(found, requests, strict=True):
        close(got, expected(x, lengths))
        assert not any(isinstance(a.base, np.ndarray) for a in got.values()), "a result keeps its call's memory"


def test_requests_share_a_call_and_keep_their_bits(exe: Any, rng: np.random.Generator) -> None:
    """Beside requests of NaN and infinity, which stay with whoever sent them."""
    x = rng.standard_normal((6, 1, I), np.float32)
    alone = exe(**_whole(exe, x))
    with li.Batcher(exe, max_batch=3, max_delay=30.0) as batcher:
        bad = [np.full((6, 1, I), value, np.float32) for value in (np.nan, np.inf)]
        futures = [batcher.submit({"x": a}) for a in (bad[0], x, bad[1])]
        found = [f.result(60) for f in futures]
        assert batcher.counters.groups == 1
    close(found[1], alone)
    assert np.isnan(found[0]["y"]).all()


def _whole(exe: Any, x: Array) -> dict[str, Array]:
    has = any(p.name == "lengths" for p in exe.inputs)
    return {"x": x, "lengths": np.full(x.shape[1], x.shape[0], np.int32)} if has else {"x": x}


def test_requests_without_rows_or_steps(exe: Any, rng: np.random.Generator) -> None:
    """They share calls as others do."""
    sizes = [(4, 1), (4, 0), (0, 2), (4, 2), (0, 0)]
    xs = [rng.standard_normal((t, b, I)).astype(np.float32) for t, b in sizes]
    with li.Batcher(exe, max_delay=0.2) as batcher:
        found = [f.result(60) for f in [batcher.submit({"x": x}) for x in xs]]
    for got, x, (t, b) in zip(found, xs, sizes, strict=True):
        assert got["y"].shape == (t, b, H)
        assert got["scores"].shape == (b, C)
        if t and b:
            close(got, expected(x, None))
        assert not got["scores"].any() or t, "what no step has changed is zero"


def test_tasks_of_one_loop_share_calls(exe: Any, rng: np.random.Generator) -> None:
    xs = [rng.standard_normal((4, 1, I), np.float32) for _ in range(20)]

    async def all_of_them(batcher: li.Batcher) -> list[dict[str, Array]]:
        return await asyncio.gather(*(asyncio.wrap_future(batcher.submit({"x": x})) for x in xs))

    with li.Batcher(exe, max_delay=0.05) as batcher:
        found = asyncio.run(all_of_them(batcher))
        assert batcher.counters.groups < 20
    for got, x in zip(found, xs, strict=True):
        close(got, expected(x, None))


PAIRS = TensorType((dims.name("B"), 2), li.DType.f32)


class Slow:
    """Twice its input, in calls that wait for `go`; an odd first number is an error of the call."""

    entry = Entry("main", (Port("x", PAIRS),), (Port("y", PAIRS),), dims=("B",))

    def __init__(self) -> None:
        self.go, self.entered, self.calls = threading.Event(), threading.Event(), 0

    def __call__(self, arrays: Mapping[str, Any], /) -> dict[str, Array]:
        self.entered.set()
        assert self.go.wait(60)
        self.calls += 1
        if (arrays["x"][:, 0] == 13).any():
            raise ValueRangeError("a row is 13")
        return {"y": arrays["x"] * 2}


def row(value: float) -> dict[str, Array]:
    return {"x": np.full((1, 2), value, np.float32)}


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.go.set()


def held(slow: Slow, **more: Any) -> li.Batcher:
    """A batcher whose worker is in a call."""
    batcher = li.Batcher(slow, check=False, max_delay=0.0, **more)
    batcher.submit(row(0))
    assert slow.entered.wait(60)
    return batcher


def test_one_bad_request_fails_alone(slow: Slow) -> None:
    batcher = held(slow)
    futures = [batcher.submit(row(v)) for v in (1, 13, 2)]
    slow.go.set()
    assert [futures[i].result(60)["y"][0, 0] for i in (0, 2)] == [2, 4]
    with pytest.raises(ValueRangeError, match="a row is 13"):
        futures[1].result(60)
    with pytest.raises(CallError, match="unknown input z"):
        batcher(z=np.ones((1, 2), np.float32))
    with pytest.raises(CallError, match="axis 1 is 2, got 3"):
        batcher(x=np.ones((1, 3), np.float32))
    with pytest.raises(CallError, match="expected f32"):
        batcher(x=np.ones((1, 2)))
    batcher.close()


class Lender:
    """Hands out its own memory."""

    def __init__(self, a: Array) -> None:
        self._a = a

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self._a


GIVEN: dict[str, Callable[[Array], Any]] = {
    "the array": lambda a: a, "a view": lambda a: a[:1], "turned": lambda a: a[::-1], "lent": Lender,
    "a view that is lent": lambda a: Lender(a[:1]), "a list": lambda a: list(a),
}  # fmt: skip


@pytest.mark.parametrize("how", GIVEN)
def test_a_caller_may_write_into_what_he_submitted(slow: Slow, how: str) -> None:
    """Before the call has begun: its results are those of what was submitted."""
    with held(slow) as batcher:
        a = np.full((2, 2), 1, np.float32)
        given = GIVEN[how](a)
        future = batcher.submit({"x": given})
        a[...] = 13
        slow.go.set()
        np.testing.assert_array_equal(future.result(60)["y"], np.full(np.shape(given), 2))


def test_the_queue_is_bounded(slow: Slow) -> None:
    batcher = held(slow, max_waiting=2)
    futures = [batcher.submit(row(v)) for v in (1, 2)]
    with pytest.raises(BusyError, match="2 requests wait for the batcher; no more are taken now"):
        batcher.submit(row(3))
    slow.go.set()
    assert [f.result(60)["y"][0, 0] for f in futures] == [2, 4]
    assert batcher(row(3))["y"][0, 0] == 6
    assert batcher.counters.refused == 1
    batcher.close()


def test_a_deadline_ends_the_wait_and_nothing_is_computed(slow: Slow) -> None:
    batcher = held(slow)
    start = time.monotonic()
    with pytest.raises(DeadlineError, match=r"waited 0\.05 s, and its call had not begun"):
        batcher(row(1), timeout=0.05)
    assert time.monotonic() - start < 30, "the deadline waited for the call of another"
    late, kept = batcher.submit(row(2), timeout=0.0), batcher.submit(row(3), timeout=600)
    time.sleep(0.01)
    slow.go.set()
    with pytest.raises(DeadlineError):
        late.result(60)
    assert kept.result(60)["y"][0, 0] == 6
    batcher.close()
    assert slow.calls == 2
    assert batcher.counters.expired == 2


def test_a_cancelled_request_holds_no_memory(slow: Slow) -> None:
    """Though the worker has not come to it."""
    batcher = held(slow)
    prepared = batcher.rows.prepare({"x": np.ones((1000, 2), np.float32)})
    seen, future = weakref.ref(prepared.values[0]), submit_prepared(batcher, prepared, None)
    del prepared
    assert seen() is not None
    assert future.cancel()
    gc.collect()
    assert seen() is None
    assert batcher.waiting == 0
    slow.go.set()
    batcher.close()
    assert slow.calls == 1


def test_a_cancelled_request_frees_its_place(slow: Slow) -> None:
    batcher = held(slow, max_waiting=1)
    for _ in range(3):
        assert batcher.submit(row(1)).cancel()
    kept = batcher.submit(row(2))
    with pytest.raises(BusyError):
        batcher.submit(row(3))
    slow.go.set()
    assert kept.result(60)["y"][0, 0] == 4
    batcher.close()
    assert (slow.calls, batcher.counters.refused) == (2, 1)


def test_an_idle_batcher_holds_nothing_of_its_last_call(slow: Slow) -> None:
    slow.go.set()
    batcher = li.Batcher(slow, check=False, max_delay=0.0)
    prepared = batcher.rows.prepare(row(1))
    future = submit_prepared(batcher, prepared, None)
    seen = [weakref.ref(prepared.values[0]), weakref.ref(future), weakref.ref(future.result(60)["y"])]
    del prepared, future
    gone(seen)
    batcher.close()


def gone(seen: list[Any]) -> None:
    """All are collected, soon."""
    end = time.monotonic() + 10
    while any(s() is not None for s in seen):
        gc.collect()
        assert time.monotonic() < end, [s() for s in seen]
        time.sleep(0.01)


def test_the_due_group_that_has_waited_longest_is_next() -> None:
    """Whatever the order of the groups, and though another is full."""
    scheduler = Scheduler(lambda jobs: None, "worker", max_rows=2, max_delay=0.0, max_waiting=9)
    scheduler.close()
    for key, accepted, rows in (("late", 3.0, 1), ("full", 2.0, 2), ("first", 1.0, 1)):
        job = Job(None, key, rows, accepted=accepted)
        scheduler._ready(job)
    found = [scheduler._next(None)[0] for _ in range(4)]
    assert [j.key for jobs in found for j in jobs] == ["first", "full", "late"]


def test_close_loses_no_accepted_request(slow: Slow) -> None:
    batcher = held(slow, max_batch=1)
    futures = [batcher.submit(row(v)) for v in range(20, 40)]
    closing = threading.Thread(target=batcher.close)
    closing.start()

    def more_and_more() -> None:
        while True:
            futures.append(batcher.submit(row(99)))

    with pytest.raises(DeviceError, match="the batcher is closed"):
        more_and_more()
    slow.go.set()
    closing.join(60)
    assert not closing.is_alive()
    assert not wait(futures, 0).not_done
    assert [f.result()["y"][0, 0] for f in futures[:20]] == [2.0 * v for v in range(20, 40)]
    batcher.close()


def test_the_end_of_the_process_loses_no_accepted_request() -> None:
    """Nobody closes it, and the main thread ends with requests in the queue."""
    code = (
        "import numpy as np, lstm_ir as li\n"
        "x = li.input('x', ('B', 2))\n"
        "exe = li.compile(li.Graph('g', [x], {'y': x + x}))\n"
        "b = li.Batcher(exe, max_batch=1, max_delay=0.05)\n"
        "for i in range(50):\n"
        "    f = b.submit({'x': np.full((1, 2), i, np.float32)})\n"
        "    f.add_done_callback(lambda f: print(f.result()['y'][0, 0], flush=True))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [float(v) for v in done.stdout.split()] == [2.0 * i for i in range(50)]


def test_a_batcher_that_is_dropped_ends_its_thread() -> None:
    batcher = li.Batcher(Slow(), check=False)
    thread, seen = batcher.scheduler._thread, weakref.ref(batcher)
    del batcher
    gc.collect()
    assert seen() is None
    thread.join(60)
    assert not thread.is_alive()


def graph(build: Callable[[li.Value], Mapping[str, li.Value]], *shape: Any) -> Any:
    x = li.input("x", shape)
    return li.compile(li.Graph("g", [x], build(x)), options={"kernels": False})


def test_rows_that_mix_are_refused() -> None:
    """A softmax over the batch, which no signature shows."""
    with pytest.raises(CallError, match="output y of a row changes with other rows of its call"):
        li.Batcher(graph(lambda x: {"y": li.softmax(x, 0)}, "B", 3))


def test_steps_behind_a_length_are_not_padded_where_they_count() -> None:
    x, lengths = li.input("x", ("T", "B", I)), li.input("lengths", ("B",), "i32")
    w = {n: li.weight(n, a) for n, a in WEIGHTS.items()}
    y, _, _ = li.lstm(x, w["w_ih"], w["w_hh"], lengths=lengths)
    exe = li.compile(li.Graph("g", [x, lengths], {"mean": li.mean(y, 0)}))
    with pytest.raises(CallError, match="output mean of a row changes with the steps behind its length"):
        li.Batcher(exe)
    with li.Batcher(exe, pad=False) as batcher:
        a = np.ones((4, 1, I), np.float32)
        want = expected(a, None)["y"].mean(0)
        np.testing.assert_allclose(batcher(x=a)["mean"], want, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("build", "shape", "message"),
    [
        (lambda x: {"y": x}, (3, 4), "main: no input has an axis of size B, so requests cannot share a call"),
        (lambda x: {"y": x}, ("2*B", 4), r"main: x: f32\[2\*B,4\]: B has no axis of its own"),
        (lambda x: {"y": li.sum(x)}, ("B", 4), r"main: output y: f32\[\] has no axis of size B"),
    ],
)
def test_graphs_without_rows_are_refused_by_name(build: Any, shape: tuple[Any, ...], message: str) -> None:
    with pytest.raises(CallError, match=message):
        li.Batcher(graph(build, *shape))


def test_shared_inputs_part_requests() -> None:
    """An input without a batch axis is one value for a call."""
    x, k = li.input("x", ("B", 2)), li.input("k", ())
    exe = li.compile(li.Graph("g", [x, k], {"y": x * k, "total": li.sum(x)}))
    with li.Batcher(exe, outputs=["y"], max_delay=60.0, max_batch=4) as batcher:
        futures = [batcher.submit({**row(1), "k": np.float32(i % 2)}) for i in range(8)]
        assert [f.result(60)["y"][0, 0] for f in futures] == [0, 1] * 4
        assert batcher.counters.groups == 2
        assert futures[0].result().keys() == {"y"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_batch": 0}, "max_batch is 0; expected a whole number of 1 or more"),
        ({"max_waiting": True}, "max_waiting is True; expected a whole number of 1 or more"),
        ({"max_delay": -1}, "max_delay is -1; expected seconds, a finite number of 0 or more"),
        ({"pad": np.ones(3)}, "pad is array.*; expected True or False"),
        ({"check": 1}, "check is 1; expected True or False"),
        ({"lengths": "x"}, r"main: 'x' is no input of integers \[B\], so it cannot hold lengths"),
        ({"outputs": ["z"]}, "main: there is no output 'z'; there is y"),
        ({"time": "B"}, "main: the batch and time are two sizes, and both are called 'B'"),
    ],
)
def test_wrong_arguments(given: dict[str, Any], message: str) -> None:
    with pytest.raises(CallError, match=message):
        li.Batcher(Slow(), **{"check": False, **given})
    with pytest.raises(CallError, match="a batcher takes an executable, a session or a callable"):
        li.Batcher(3)


def test_classes_of_lengths_are_at_most_a_quarter_above() -> None:
    found = [length_class(n) for n in range(1, 3000)]
    assert all(n <= c <= 1.25 * n for n, c in enumerate(found, 1))
    assert found == sorted(found)
    assert len(set(found)) < 45


def test_a_forked_child_is_refused(slow: Slow) -> None:
    """Its copy of the batcher has no thread, so a request would wait for ever."""
    slow.go.set()
    batcher = li.Batcher(slow, check=False)
    batcher.scheduler._pid += 1
    with pytest.raises(DeviceError, match="belongs to another process"):
        batcher(row(1))
    batcher.scheduler._pid -= 1
    batcher.close()


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="this system has no clock of a thread")
@pytest.mark.parametrize("keeper", [li.Batcher, li.Sessions])
def test_an_idle_worker_takes_no_time(keeper: Any) -> None:
    """A batcher's thread looked for work without a pause once it was a second old, and held Python's lock."""
    x = li.input("x", ("T", "B", 3))
    h = li.input("h", ("B", 3))
    graph = li.Graph("sums", [x, h], {"y": x * 2.0, "h_n": h + li.sum(x, 0)})
    exe = li.compile(li.stateful(graph, {"h": "h_n"}) if keeper is li.Sessions else graph)
    given = {"x": np.ones((4, 1, 3), np.float32)}
    with keeper(exe) as keeping:
        ask = keeping.open() if keeper is li.Sessions else lambda **g: keeping(h=np.zeros((1, 3), np.float32), **g)
        ask(**given)
        clock = time.pthread_getcpuclockid(keeping.scheduler._thread.ident)
        time.sleep(1.1)
        ask(**given)
        began = time.clock_gettime(clock)
        time.sleep(1.0)
        assert time.clock_gettime(clock) - began < 0.1
        ask(**given)
