"""A server that has too much to do, or that is told to stop: 429, 504, and no accepted request lost."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import Served, served, slow_server, whole
from served_models import I, stream

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")
httpx = pytest.importorskip("httpx")
client_of = pytest.importorskip("websockets.sync.client")
exceptions = pytest.importorskip("websockets.exceptions")


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as made:
        yield made


def ask(server: Served, seconds: float, timeout: int | None = None) -> Any:
    body: dict[str, Any] = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [seconds, 0.0]}]}
    if timeout is not None:
        body["parameters"] = {"timeout": timeout}
    return httpx.post(f"{server.url}/v2/models/slow/infer", json=body, timeout=60)


def waiting(server: Served) -> float:
    lines = httpx.get(f"{server.url}/metrics", timeout=60).text.splitlines()
    return float(next(line for line in lines if line.startswith("lstm_ir_waiting")).rpartition(" ")[2])


def until_waiting(server: Served, count: int) -> None:
    end = time.monotonic() + 60
    while waiting(server) != count:
        assert time.monotonic() < end
        time.sleep(0.01)


def busy(server: Served, threads: ThreadPoolExecutor, seconds: float) -> Future[Any]:
    """A call that runs."""
    future = threads.submit(ask, server, seconds)
    end = time.monotonic() + 60
    while 'lstm_ir_calls_total{model="slow"} 1.0' not in httpx.get(f"{server.url}/metrics", timeout=60).text:
        assert time.monotonic() < end
        time.sleep(0.01)
    return future


def test_a_full_queue_and_a_deadline(threads: ThreadPoolExecutor) -> None:
    """The loop answers others while a call runs."""
    with slow_server("batcher.max_waiting=2", "batcher.max_batch=1") as server:
        first = busy(server, threads, 2.0)
        start = time.monotonic()
        late = threads.submit(ask, server, 0.01, 100_000)
        until_waiting(server, 1)
        kept = threads.submit(ask, server, 0.02)
        until_waiting(server, 2)
        refused = ask(server, 0.01)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json() == {"error": "2 requests wait for the batcher; no more are taken now"}
        answer = late.result(60)
        assert time.monotonic() - start < 1.9, "the deadline waited for another's call"
        assert answer.status_code == 504
        assert "its call had not begun" in answer.json()["error"]
        assert [f.result(60).status_code for f in (first, kept)] == [200, 200]
        assert kept.result().json()["outputs"][0]["data"] == [np.float32(0.04), 0.0]
        for wrong in (0, -5, 1.5, "1", True):
            answer = ask(server, 0.01, wrong)  # type: ignore[arg-type]
            assert (answer.status_code, "parameter timeout" in answer.text) == (400, True)


def test_sigterm_loses_no_accepted_request(threads: ThreadPoolExecutor) -> None:
    with slow_server("batcher.max_batch=1") as server:
        futures = [busy(server, threads, 1.0)] + [threads.submit(ask, server, 0.05) for _ in range(10)]
        until_waiting(server, 10)
        with server.connect() as idle:
            server.process.send_signal(signal.SIGTERM)
            answers = [f.result(60) for f in futures]
            assert [a.status_code for a in answers] == [200] * 11
            assert whole(idle) == b"", "an idle connection is closed"
        assert server.process.wait(60) == 0
        with pytest.raises(httpx.ConnectError):
            ask(server, 0.01)


def test_a_second_signal_ends_it_at_once(threads: ThreadPoolExecutor) -> None:
    with slow_server() as server:
        threads.submit(ask, server, 3.0)
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)


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


def test_bodies_share_a_budget(threads: ThreadPoolExecutor) -> None:
    """A body that is announced counts, and is given back when its client is gone."""
    with slow_server("max_pending=100000", "max_body=90000", "body_timeout=30") as server:
        head = b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
        with server.connect() as hoarder:
            hoarder.sendall(head % 90000 + b"{")
            end = time.monotonic() + 60
            while "lstm_ir_pending_bytes 90000" not in httpx.get(f"{server.url}/metrics", timeout=60).text:
                assert time.monotonic() < end
                time.sleep(0.01)
            with server.connect() as s:
                s.sendall(head % 20000)
                assert b" 429 " in s.recv(65536).partition(b"\r\n")[0]
            assert ask(server, 0.01).status_code == 200
        end = time.monotonic() + 60
        while "lstm_ir_pending_bytes 0" not in httpx.get(f"{server.url}/metrics", timeout=60).text:
            assert time.monotonic() < end
            time.sleep(0.01)
