"""A server that has too much to do, or that is told to stop: 429, 504, and no accepted request lost."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from raw_stream import TEXT, RawStream
from served import Served, served, slow_server, whole
from served_models import STEP, I, stream
from websockets import exceptions
from websockets.sync import client as client_of

import lstm_ir as li
from lstm_ir.serving.served_model import ServedModel
from lstm_ir.serving.session import to_bytes
from lstm_ir.serving.tensors import RequestError


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that calls wait for."""
    return tmp_path / "gate"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as made:
        yield made


def ask(server: Served, value: float, timeout: Any = None) -> Any:
    """One request; a value below 0 waits for the gate."""
    body: dict[str, Any] = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [value, 0.0]}]}
    if timeout is not None:
        body["parameters"] = {"timeout": timeout}
    return httpx.post(f"{server.url}/v2/models/slow/infer", json=body, timeout=120)


def until(server: Served, name: str, value: float) -> None:
    """A figure of the server has this value."""
    end = time.monotonic() + 60
    while True:
        lines = httpx.get(f"{server.url}/metrics", timeout=60).text.splitlines()
        found = [float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)]
        if found == [value]:
            return
        assert time.monotonic() < end, f"{name}: {found}"
        time.sleep(0.01)


def busy(server: Served, threads: ThreadPoolExecutor) -> Future[Any]:
    """A call that runs, and waits for the gate."""
    future = threads.submit(ask, server, -1.0)
    until(server, "lstm_ir_calls_total", 1)
    return future


def test_a_full_queue_and_a_deadline(threads: ThreadPoolExecutor, gate: Path) -> None:
    """The loop answers others while a call runs."""
    with slow_server(gate, "batcher.max_waiting=1", "batcher.max_batch=1") as server:
        first = busy(server, threads)
        assert ask(server, 1.0, 100_000).status_code == 504, "it waited for another's call"
        until(server, "lstm_ir_waiting", 0)  # its place is free, though the worker has not come to it
        kept = threads.submit(ask, server, 2.0)
        until(server, "lstm_ir_waiting", 1)
        refused = ask(server, 3.0)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json() == {"error": "1 requests wait for the batcher; no more are taken now"}
        for wrong in (0, -5, 1.5, "1", True):
            answer = ask(server, 1.0, wrong)
            assert (answer.status_code, "parameter timeout" in answer.text) == (400, True)
        gate.touch()
        assert [f.result(60).status_code for f in (first, kept)] == [200, 200]
        assert kept.result().json()["outputs"][0]["data"] == [4.0, 0.0]


def test_sigterm_loses_no_accepted_request(threads: ThreadPoolExecutor, gate: Path) -> None:
    with slow_server(gate, "batcher.max_batch=1") as server:
        futures = [busy(server, threads)] + [threads.submit(ask, server, float(i)) for i in range(10)]
        until(server, "lstm_ir_waiting", 10)
        with server.connect() as idle:
            server.process.send_signal(signal.SIGTERM)
            assert whole(idle) == b"", "an idle connection is closed"
            gate.touch()
            answers = [f.result(60) for f in futures]
            assert [a.status_code for a in answers] == [200] * 11
            assert [a.json()["outputs"][0]["data"][0] for a in answers] == [-2.0, *(2.0 * i for i in range(10))]
        assert server.process.wait(60) == 0
        with pytest.raises(httpx.ConnectError):
            ask(server, 1.0)


@pytest.mark.parametrize("by", ["signal", "time"])
def test_a_second_signal_or_the_time_limit_ends_it(threads: ThreadPoolExecutor, gate: Path, by: str) -> None:
    """Though a call still runs, and says so."""
    with slow_server(gate, "batcher.max_batch=1", f"stop_timeout={1 if by == 'time' else 600}") as server:
        busy(server, threads)
        waits = threads.submit(ask, server, 1.0)
        until(server, "lstm_ir_waiting", 1)
        server.process.send_signal(signal.SIGTERM)
        if by == "signal":
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 1
        assert server.process.stderr is not None
        assert "the server was ended before all accepted requests were answered" in server.process.stderr.read()
        assert waits.exception(60) is not None or waits.result().status_code >= 500


def test_the_time_to_stop_is_one_for_all_that_is_waited_for(threads: ThreadPoolExecutor, gate: Path) -> None:
    """Answers and models wait for the same call: not one time after the other."""
    with slow_server(gate, "batcher.max_batch=1", "stop_timeout=4") as server:
        busy(server, threads)
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 1
        assert 3.5 < time.monotonic() - begun < 7


def test_sigterm_ends_streams_behind_their_last_answer(tmp_path: Path, rng: np.random.Generator) -> None:
    x = rng.standard_normal((1, 1, I), np.float32)
    text = json.dumps({"inputs": [{"name": "x", "shape": [1, 1, I], "datatype": "FP32", "data": x.ravel().tolist()}]})
    with served(stream(tmp_path)) as server:
        url = f"ws://127.0.0.1:{server.port}/v2/models/stream/stream"
        with client_of.connect(url) as one:
            sent = answered = 0
            stopped = threading.Event()

            def stop() -> None:
                time.sleep(0.3)
                server.process.send_signal(signal.SIGTERM)
                stopped.set()

            thread = threading.Thread(target=stop)
            thread.start()
            try:
                while True:
                    one.send(text)
                    sent += 1
                    assert "outputs" in json.loads(one.recv(timeout=60))
                    answered += 1
            except exceptions.ConnectionClosed as e:
                code = None if e.rcvd is None else e.rcvd.code
            thread.join()
            assert stopped.is_set()
            assert code == 1012
            assert sent - answered <= 1  # the one that met the close frame on its way
            assert answered > 0
        assert server.process.wait(60) == 0


def test_a_stop_ends_a_stream_whose_next_message_is_always_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message that is being answered when the stop comes is the last."""
    from lstm_ir.serving import stream as streams

    answered, closed = [], []

    class Socket:
        async def receive(self) -> dict[str, Any]:
            return {"type": "websocket.receive", "text": "{}"}

        async def close(self, code: int, reason: str) -> None:
            closed.append((code, reason))

    async def main() -> None:
        state: Any = SimpleNamespace(stopping=asyncio.Event(), limits=SimpleNamespace(idle_timeout=60.0))

        async def answer(*_: Any) -> bool:
            answered.append(1)
            if len(answered) == 3:
                state.stopping.set()
            return len(answered) < 10

        monkeypatch.setattr(streams, "_answered", answer)
        socket: Any = Socket()
        nothing: Any = None
        await streams._messages(state, socket, nothing, nothing)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert (len(answered), closed) == (3, [(1012, "the server stops")])


def test_state_that_is_put_has_as_many_steps_as_a_request_may() -> None:
    """It is kept: a state [T, B, 5], the last chunk."""
    x, last = li.input("x", ("T", "B", I)), li.input("last", ("T", "B", I))
    graph = li.Graph("echo", [x, last], {"y": x + last, "next": x})
    with li.compile(li.stateful(graph, {"last": "next"}).only("step")) as exe, li.Sessions(exe) as sessions:
        model = ServedModel("echo", sessions, max_steps=8)
        model.set_state("one", to_bytes({"last": np.ones((8, 2, I), np.float32)})).result(60)
        with pytest.raises(RequestError, match=r"state of sequence one: it has 9 steps; at most 8 are taken") as e:
            model.set_state("one", to_bytes({"last": np.ones((9, 1, I), np.float32)}))
        assert e.value.status == 413
        with pytest.raises(RequestError, match="it has 65 rows; at most 64 are taken"):
            model.set_state("one", to_bytes({"last": np.ones((1, 65, I), np.float32)}))
        x_one = np.ones((8, 2, I), np.float32)
        np.testing.assert_array_equal(sessions.get("one")(x=x_one)["y"], 2 * x_one)


def question(value: float) -> bytes:
    """A whole request, for a raw connection."""
    tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [value, 0.0]}
    body = json.dumps({"inputs": [tensor]}).encode()
    head = f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize("how", ["closes", "resets"])
def test_a_client_that_hangs_up_is_not_computed(threads: ThreadPoolExecutor, gate: Path, how: str) -> None:
    """One that waits behind a slow call; one that only half closes its connection gets its answer."""
    gone = 'lstm_ir_requests_total{model="slow",status="499"}'
    with slow_server(gate, "batcher.max_batch=1") as server:
        first = busy(server, threads)
        with server.connect() as s:
            if how == "resets":
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.sendall(question(1.0))
            until(server, "lstm_ir_waiting", 1)
        until(server, gone, 1)
        with server.connect() as half:
            half.sendall(question(2.0))
            half.shutdown(socket.SHUT_WR)
            until(server, "lstm_ir_waiting", 1)  # the other has left
            time.sleep(0.5)
            gate.touch()
            assert first.result(60).status_code == 200
            answer = whole(half)
        assert b"HTTP/1.1 200 " in answer
        assert json.loads(answer.rpartition(b"\r\n")[2])["outputs"][0]["data"] == [4.0, 0.0]
        until(server, "lstm_ir_call_requests_total", 2)


def test_an_upload_that_ends_early_is_counted_as_that(gate: Path) -> None:
    """It is no fault of the server, and no time of an answer."""
    with slow_server(gate) as server:
        with server.connect() as s:
            s.sendall(question(1.0)[:-5])
            until(server, "lstm_ir_pending_bytes", len(question(1.0).partition(b"\r\n\r\n")[2]) - 5)
        until(server, 'lstm_ir_requests_total{model="slow",status="499"}', 1)
        found = server.figures()
        assert 'lstm_ir_requests_total{model="slow",status="500"}' not in found
        assert found.get('lstm_ir_request_seconds_count{model="slow"}', 0) == 0
        assert ask(server, 1.0).status_code == 200
        until(server, "lstm_ir_request_seconds_count", 1)


def test_a_stream_that_hangs_up_is_not_computed(tmp_path: Path) -> None:
    """Its step waits for others to join it."""
    with served(stream(tmp_path), "--max-delay", 30.0) as server:
        with RawStream(server, "stream") as client:
            client.send(TEXT, STEP)
            until(server, "lstm_ir_waiting", 1)
        begun = time.monotonic()
        until(server, 'lstm_ir_requests_total{model="stream",status="499"}', 1)
        until(server, "lstm_ir_sessions{", 0)
        assert time.monotonic() - begun < 20
        assert server.figures()['lstm_ir_call_requests_total{model="stream"}'] == 0


def test_bodies_share_a_budget(gate: Path) -> None:
    """What has arrived of a body counts, and is given back when its client is gone; what is announced does not."""
    with slow_server(gate, "max_pending=100000", "max_body=90000", "body_timeout=60") as server:
        head = b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        with server.connect() as hoarder:
            hoarder.sendall(head % 90000 + b"{")
            until(server, "lstm_ir_pending_bytes", 1)
            with server.connect() as other:  # the two announce more than there is room for
                other.sendall(head % 90000 + b"{")
                until(server, "lstm_ir_pending_bytes", 2)
                assert ask(server, 1.0).status_code == 200
            until(server, "lstm_ir_pending_bytes", 1)
            hoarder.sendall(b" " * 85000)
            until(server, "lstm_ir_pending_bytes", 85001)
            with server.connect() as s:
                s.sendall(head % 20000 + b" " * 20000)
                assert b" 429 " in s.recv(65536).partition(b"\r\n")[0]
            assert ask(server, 1.0).status_code == 200
        until(server, "lstm_ir_pending_bytes", 0)


def test_answers_are_sent_at_once() -> None:
    """asyncio turns Nagle's algorithm off for sockets that say that they are TCP; 40 ms for each answer otherwise."""
    from lstm_ir.serving.run import _bound

    with _bound("127.0.0.1", 0) as sock:
        assert sock.proto == socket.IPPROTO_TCP
