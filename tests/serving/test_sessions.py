"""State of many clients over one module: never another's, cleared, evicted, movable, ten thousand at once."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import model_file, need
from served_models import KEPT, WEIGHTS, H, I
from torch_batches import torch_lstm

import lstm_ir as li
from lstm_ir.backends.files import state_file
from lstm_ir.ir.errors import BusyError, CallError, DeadlineError, DeviceError, PackageError, UnknownSessionError
from lstm_ir.serving.session import ClientSession, from_bytes, to_bytes

Array = np.ndarray[Any, Any]


def program(*, with_lengths: bool = False, initial: dict[str, Array] | None = None, batch: Any = "B") -> li.Program:
    x = li.input("x", ("T", batch, I))
    lengths = [li.input("lengths", (batch,), "i32")] if with_lengths else []
    h0, c0 = (li.input(n, (1, batch, H)) for n in KEPT)
    w_ih, w_hh = (li.weight(n, WEIGHTS[n]) for n in ("w_ih", "w_hh"))
    y, h_n, c_n = li.lstm(x, w_ih, w_hh, h0=h0, c0=c0, lengths=lengths[0] if lengths else None)
    graph = li.Graph("stream", [x, *lengths, h0, c0], {"y": y, "h_n": h_n, "c_n": c_n})
    return li.stateful(graph, KEPT, initial).only("step")


@pytest.fixture(scope="module", params=["lengths", "equal"])
def exe(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = li.compile(program(with_lengths=request.param == "lengths"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def plain() -> Iterator[Any]:
    made = li.compile(program())
    yield made
    made.close()


def whole(x: Array) -> Array:
    """Of the whole sequence from zeros, by torch."""
    return torch_lstm(x, WEIGHTS)["y"]


def test_interleaved_sessions_are_those_of_their_own(exe: Any, rng: np.random.Generator) -> None:
    """Chunks of unequal steps and sessions of unequal rows, from many threads."""
    xs = [rng.standard_normal((int(rng.integers(6, 15)), int(rng.integers(1, 4)), I), np.float32) for _ in range(24)]
    with li.Sessions(exe, max_batch=16, max_delay=0.01) as sessions, ThreadPoolExecutor(8) as threads:

        def client(x: Array) -> Array:
            cuts = (2, 3, len(x) - 1)
            with sessions.open() as session:
                return np.concatenate([session(x=part)["y"] for part in np.split(x, cuts)])

        found = list(threads.map(client, xs))
        assert sessions.counters.groups < sessions.counters.jobs
        assert len(sessions) == 0
    for y, x in zip(found, xs, strict=True):
        np.testing.assert_allclose(y, whole(x), rtol=0, atol=2e-5)


def test_what_is_counted(plain: Any) -> None:
    """Calls and their rows; reads and writes of state are none."""
    x = np.ones((2, 1, I), "f4")
    with li.Sessions(plain, max_batch=8) as sessions:
        session = sessions.open()
        session(x=x)
        session.set_state(session.state())
        session(x=x)
        counters = sessions.counters
        with pytest.raises(li.CallError, match="restart is 'yes'; expected True or False"):
            sessions.open(restart="yes")  # type: ignore[arg-type]
    assert (counters.groups, counters.jobs, counters.rows) == (2, 2, 2)
    with pytest.raises(li.DeviceError, match="the sessions are closed"):
        sessions.open()


@pytest.mark.slow
def test_ten_thousand_sessions_under_load(plain: Any, rng: np.random.Generator) -> None:
    """Random order, several threads, other clients' NaN among them, sessions that come and go under the same names."""
    count, steps = 10_000, 4
    x = rng.standard_normal((steps, count, I), np.float32)
    bad = rng.choice(count, 200, replace=False)
    x[1, bad] = np.nan
    need("torch")
    import torch

    layer = torch.nn.LSTM(I, H, bias=False)
    layer.weight_ih_l0.data, layer.weight_hh_l0.data = (torch.from_numpy(WEIGHTS[n]) for n in ("w_ih", "w_hh"))
    with torch.no_grad():
        want = layer(torch.from_numpy(x))[0].numpy()
    found = np.empty_like(want)
    with li.Sessions(plain, max_sessions=count, max_waiting=count, max_batch=256) as sessions:
        opened = [sessions.open(i) for i in range(count)]
        with pytest.raises(BusyError, match="10000 sessions are open, max_sessions; no more are taken now"):
            sessions.open()
        parts = np.array_split(rng.permutation(np.repeat(np.arange(count), steps)), 8)
        at, gate = np.zeros(count, int), threading.Lock()

        def client(order: Array) -> None:
            pending = []
            for i in order:
                with gate:  # the order in which a session's steps are asked for is theirs
                    t, at[i] = at[i], at[i] + 1
                    future = _patiently(lambda i=i, t=t: opened[i].submit({"x": x[t : t + 1, i : i + 1]}))  # type: ignore[misc]
                pending.append((t, i, future))
            for t, i, future in pending:
                found[t, i] = future.result(300)["y"][0, 0]

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(client, parts))
        np.testing.assert_allclose(found, want, rtol=0, atol=2e-5)
        again = [sessions.open(int(i), restart=True) for i in bad]  # slots that held NaN
        for session, i in zip(again, bad, strict=True):
            y = session(x=x[:1, i : i + 1])["y"]
            np.testing.assert_allclose(y, want[:1, i : i + 1], rtol=0, atol=2e-5)
        assert len(sessions) == count


def _patiently(submit: Callable[[], Any]) -> Any:
    while True:
        try:
            return submit()
        except BusyError:
            time.sleep(0.001)


def test_a_session_starts_as_the_program_says(rng: np.random.Generator) -> None:
    initial = {n: rng.standard_normal((1, 1, H), np.float32) for n in KEPT}
    exe = li.compile(program(initial=initial))
    x = rng.standard_normal((3, 2, I), np.float32)
    with li.Sessions(exe) as sessions:
        first, second = sessions.open("a"), sessions.open("b")
        assert {n: a.tolist() for n, a in first.state().items()} == {n: a.tolist() for n, a in initial.items()}
        first(x=np.full_like(x, 100.0))
        found = second(x=x)["y"]
        first.close()
        reopened = sessions.open("a")
        again = reopened(x=x)["y"]
    own = li.interpret(_graph(), {"x": x, **{n: np.repeat(a, 2, 1) for n, a in initial.items()}})["y"]
    np.testing.assert_allclose(found, own, rtol=0, atol=2e-5)
    np.testing.assert_array_equal(again, found)
    exe.close()


def _graph() -> li.Graph:
    return program().entries["step"]


def test_state_moves_between_sessions_files_and_executables(
    plain: Any, rng: np.random.Generator, tmp_path: Path
) -> None:
    x = rng.standard_normal((9, 2, I), np.float32)
    want = whole(x)
    with li.Sessions(plain) as sessions, li.Sessions(li.compile(program())) as elsewhere:
        first = sessions.open()
        first(x=x[:4])
        second = elsewhere.open("moved")
        second.set_state(from_bytes(to_bytes(first.state()), "the file"))
        np.testing.assert_allclose(second(x=x[4:])["y"], want[4:], rtol=0, atol=2e-5)
        first.save_state(tmp_path / "s.safetensors")
        held = state_file.read(tmp_path / "s.safetensors")
        third = sessions.open()
        third.load_state(tmp_path / "s.safetensors")
        np.testing.assert_allclose(third(x=x[4:])["y"], want[4:], rtol=0, atol=2e-5)
        client = plain.session()
        client.load_state(tmp_path / "s.safetensors")  # a session of the executable takes it too
        np.testing.assert_allclose(client.entries["step"](x=x[4:])["y"], want[4:], rtol=0, atol=2e-5)
        assert held.keys() == KEPT.keys()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("h0"), "no state 'h0'"),
        (lambda s: s.update(z=s["h0"]), "an unknown state 'z'"),
        (lambda s: s.update(h0=s["h0"].astype("f8")), "h0: expected f32"),
        (lambda s: s.update(h0=s["h0"][:, :, 1:]), "state 'h0': expected f32"),
        (lambda s: s.update(h0=np.concatenate([s["h0"]] * 2, 1)), "two sizes for B"),
    ],
)
def test_state_that_does_not_fit_changes_nothing(
    plain: Any, rng: np.random.Generator, change: Any, message: str
) -> None:
    x = rng.standard_normal((5, 1, I), np.float32)
    with li.Sessions(plain) as sessions, sessions.open() as session:
        session(x=x[:2])
        state = session.state()
        change(state)
        with pytest.raises(PackageError, match=message):
            session.set_state(state)
        with pytest.raises(PackageError, match=message):
            session.set_state(from_bytes(to_bytes(state), "the file"))
        np.testing.assert_allclose(session(x=x[2:])["y"], whole(x)[2:], rtol=0, atol=2e-5)


def test_state_without_rows_or_names_is_refused(plain: Any) -> None:
    """A session of no rows could take no step."""
    with li.Sessions(plain, check=False) as sessions, sessions.open("a") as session:
        with pytest.raises(PackageError, match="session 'a': it has no rows: B is 0, which no call fits"):
            session.set_state({n: a[:, :0] for n, a in session.state().items()})
        wrong: Any = 3
        with pytest.raises(CallError, match="session 'a': takes arrays by name, got int"):
            session.set_state(wrong)
        assert session(x=np.ones((1, 1, I), np.float32))["y"].shape == (1, 1, H)


def test_bytes_that_are_no_state_are_refused(plain: Any) -> None:
    for data in (b"", b"\0" * 8, b"\xff" * 64, to_bytes({"h0": np.zeros(3, np.float32)})[:-1]):
        with pytest.raises(PackageError, match="the file: "):
            from_bytes(data, "the file")


def test_rows_of_a_session_stay_what_they_are(plain: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 3, I), np.float32)
    with li.Sessions(plain) as sessions, sessions.open() as session:
        session(x=x[:1])
        with pytest.raises(CallError, match="two sizes for B: 2 from x"):
            session(x=x[1:, :2])
        np.testing.assert_allclose(session(x=x[1:])["y"], whole(x)[1:], rtol=0, atol=2e-5)


def test_idle_sessions_are_closed_and_others_are_not(plain: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 1, I), np.float32)
    with li.Sessions(plain, max_sessions=2, idle_timeout=2.5) as sessions:
        idle, busy = sessions.open("idle"), sessions.open("busy")
        idle(x=x[:1])
        end = time.monotonic() + 60
        while len(sessions) == 2 and time.monotonic() < end:  # by the worker, though nobody opens another
            busy(x=x[:1])
            time.sleep(0.02)
        assert sessions.evicted == 1
        assert idle._kept.held is None
        with pytest.raises(UnknownSessionError, match=r"session 'idle' is not open: it was idle for 2\.5 s"):
            idle(x=x[1:])
        with pytest.raises(UnknownSessionError, match="session 'idle' is not open"):
            sessions.get("idle")
        fresh = sessions.open("idle")
        np.testing.assert_allclose(fresh(x=x)["y"], whole(x), rtol=0, atol=2e-5)


def test_what_a_closed_session_held_is_gone(plain: Any) -> None:
    x = np.ones((1, 1, I), np.float32)
    with li.Sessions(plain, max_delay=0.2) as sessions:
        session = sessions.open()
        session(x=x)
        future = session.submit({"x": x})
        session.close()
        assert future.result(60)["y"].shape == (1, 1, H), "an accepted call was lost"
        end = time.monotonic() + 60
        while session._kept.held is not None and time.monotonic() < end:
            time.sleep(0.01)
        assert session._kept.held is None
        with pytest.raises(UnknownSessionError, match="is not open: it was closed"):
            session(x=x)


def test_a_failed_call_changes_no_state(plain: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    x = rng.standard_normal((4, 1, I), np.float32)
    with li.Sessions(plain, max_delay=0.0) as sessions, sessions.open() as session:
        session(x=x[:2])
        pure = sessions._keeper.pure
        run = pure._run

        def fails(*_: Any) -> Any:
            raise DeviceError("the device was lost")

        monkeypatch.setattr(pure, "_run", fails)
        with pytest.raises(DeviceError, match="the device was lost"):
            session(x=x[2:])
        monkeypatch.setattr(pure, "_run", run)
        with pytest.raises(DeadlineError):
            _late(session, x)
        np.testing.assert_allclose(session(x=x[2:])["y"], whole(x)[2:], rtol=0, atol=2e-5)


def _late(session: ClientSession, x: Array) -> None:
    future = session.submit({"x": x}, timeout=0.0)
    future.result(60)


def test_close_loses_no_accepted_call(plain: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((30, 1, I), np.float32)
    sessions = li.Sessions(plain, max_delay=0.01)
    session = sessions.open()
    futures = [session.submit({"x": part}) for part in np.split(x, 30)]
    sessions.close()
    assert all(f.done() for f in futures)
    np.testing.assert_allclose(np.concatenate([f.result()["y"] for f in futures]), whole(x), rtol=0, atol=2e-5)
    with pytest.raises(UnknownSessionError, match="all were closed"):
        session(x=x)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 129, -1, 2**64, True, 1.5])
def test_wrong_names(plain: Any, name: Any) -> None:
    with li.Sessions(plain, check=False) as sessions, pytest.raises(CallError, match="a session's name is"):
        sessions.open(name)


def test_a_caller_may_write_into_what_he_submitted(plain: Any, rng: np.random.Generator) -> None:
    """One buffer for all frames of a microphone, each submitted before the last is done."""
    x, buffer = rng.standard_normal((4, 1, I), np.float32), np.empty((1, 1, I), np.float32)
    with li.Sessions(plain, max_delay=0.2) as sessions, sessions.open() as session:
        futures = []
        for frame in x:
            buffer[0] = frame
            futures.append(session.submit({"x": buffer}))
        found = np.concatenate([f.result(60)["y"] for f in futures])
    np.testing.assert_allclose(found, whole(x), rtol=0, atol=2e-5)


def test_a_session_keeps_its_sessions(plain: Any) -> None:
    """Nobody else holds them; with the last session they go, and their thread ends."""
    session = li.Sessions(plain, check=False).open("one")
    gc.collect()
    seen = weakref.ref(session._owner)
    assert session(x=np.ones((1, 1, I), np.float32))["y"].shape == (1, 1, H)
    thread = session._owner.scheduler._thread  # type: ignore[attr-defined]
    del session
    gc.collect()
    assert seen() is None
    thread.join(60)
    assert not thread.is_alive()


def test_names_that_are_taken(plain: Any) -> None:
    with li.Sessions(plain, check=False) as sessions:
        sessions.open(1)
        with pytest.raises(CallError, match="session 1 is open already"):
            sessions.open(1)
        unnamed = [sessions.open(), sessions.open()]
        assert [sessions.get(session.name) for session in unnamed] == unnamed
        sessions.open(2)  # no name of a session that was given none is a number
        assert len(sessions) == 4


def test_programs_without_rows_of_state_are_refused_by_name(plain: Any) -> None:
    with pytest.raises(CallError, match=r"step: no input has an axis of size B"):
        li.Sessions(li.compile(program(batch=1)))
    x, h = li.input("x", ("B", 3)), li.input("h", (3,))
    mixed = li.stateful(li.Graph("g", [x, h], {"y": x + h, "h_n": h + 1.0}), {"h": "h_n"})
    with pytest.raises(CallError, match=r"step: output state h: f32\[3\] has no axis of size B"):
        li.Sessions(li.compile(mixed.only("step")))
    with pytest.raises(CallError, match="the entry that reads and writes state: there is none"):
        li.Sessions(li.compile(li.Graph("g", [x], {"y": x + 1.0})))
    with pytest.raises(CallError, match=r"step: it keeps state between calls; li\.Sessions serves it"):
        li.Batcher(plain)
    with pytest.raises(CallError, match="max_sessions is 0; expected a whole number"):
        li.Sessions(plain, max_sessions=0)
    with pytest.raises(CallError, match="idle_timeout is -1; expected seconds"):
        li.Sessions(plain, idle_timeout=-1)
    with pytest.raises(CallError, match="sessions take an executable, got int"):
        li.Sessions(3)


def test_silero_streams_of_many_clients(rng: np.random.Generator) -> None:
    """A real model, its clients' frames in one call, beside onnxruntime; where its file lies beside the project."""
    file = model_file("silero.onnx")
    need("onnx", "onnx_ir", "onnxruntime")
    import onnxruntime

    sizes: Any = {"input_0": "B", "input_1": 576}
    program = li.from_onnx(file, constants={"sr": 16000}, sizes=sizes, stateful={"state": "stateN"})
    frames = (0.1 * rng.standard_normal((5, 7, 576))).astype(np.float32)
    with li.compile(program) as exe, li.Sessions(exe, max_delay=0.05) as sessions:
        clients = [sessions.open() for _ in range(7)]
        found = [
            [f.result(60)["output"] for f in [c.submit({"input": rows[i : i + 1]}) for i, c in enumerate(clients)]]
            for rows in frames
        ]
        assert sessions.counters.groups < 35
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for i in range(7):
        state = np.zeros((2, 1, 128), np.float32)
        for t in range(5):
            feed = {"input": frames[t, i : i + 1], "state": state, "sr": np.array(16000)}
            want, state = session.run(None, feed)
            np.testing.assert_allclose(found[t][i], want, rtol=0, atol=1e-4)
