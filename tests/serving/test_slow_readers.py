"""Clients that read their answers slowly, or not at all."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from served import Served, slow_server

from lstm_ir.serving.connections import ConnectionWatch, CountedTransport
from lstm_ir.serving.limits import ServerLimits


class Pipe:
    """A transport whose other side reads what the test says."""

    def __init__(self) -> None:
        self.unsent = 0

    def write(self, data: bytes) -> None:
        self.unsent += len(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent


class Stream:
    """A connection that is none of HTTP any more."""

    def __init__(self) -> None:
        self.pipe = Pipe()
        self.transport: Any = CountedTransport(self.pipe)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "read", "overdue"),
    [(1000, 0, True), (0, 0, True), (0, 10, True), (20_000, 10, True), (0, 4096, False), (20_000, 20_000, False)],
    ids=["more_answers", "nothing", "drops", "drops_of_more", "enough", "all"],
)
def test_what_counts_is_what_was_read(given: int, read: int, overdue: bool) -> None:
    """Each second so many bytes are given and read; what is unsent changes in all cases but one."""
    watch = ConnectionWatch(None, ServerLimits(send_timeout=10.0))  # type: ignore[arg-type]
    stream = Stream()
    stream.transport.write(bytes(200_000))
    ended = False
    for second in range(30):
        ended = ended or watch._overdue(stream, float(second))
        stream.transport.write(bytes(given))
        stream.pipe.unsent -= min(read, stream.pipe.unsent)
    assert ended == overdue


def test_answers_that_nobody_reads_count_until_they_are_given_up(tmp_path: Path) -> None:
    rows = 1_000_000
    with slow_server(
        tmp_path / "gate", f"batcher.max_batch={rows}", "max_pending=20000000", "send_timeout=4.0", "body_timeout=60"
    ) as server:
        text, data = request(rows)
        head = f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text) + len(data)}\r\n"
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", server.port))
            s.sendall(f"{head}Inference-Header-Content-Length: {len(text)}\r\n\r\n".encode() + text + data)
            until(server, lambda held: held > 2 * len(data))
            assert asked(server, rows).status_code == 429
            assert asked(server, 1).status_code == 200
            until(server, lambda held: held == 0)
        answer = asked(server, rows)
        assert answer.status_code == 200
        assert answer.content.endswith(np.full(100, 2.0, np.float32).tobytes()), "a long answer is whole"
        assert len(answer.content) > len(data)


def request(rows: int) -> tuple[bytes, bytes]:
    data = np.ones((rows, 2), np.float32).tobytes()
    tensor = {"name": "x", "shape": [rows, 2], "datatype": "FP32", "parameters": {"binary_data_size": len(data)}}
    return json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode(), data


def asked(server: Served, rows: int) -> Any:
    text, data = request(rows)
    headers = {"Inference-Header-Content-Length": str(len(text))}
    return httpx.post(f"{server.url}/v2/models/slow/infer", content=text + data, headers=headers, timeout=60)


def until(server: Served, holds: Any) -> None:
    """The bytes that the server holds of requests and answers are so many."""
    end = time.monotonic() + 60
    while True:
        lines = httpx.get(f"{server.url}/metrics", timeout=60).text.splitlines()
        held = next(float(x.rpartition(" ")[2]) for x in lines if x.startswith("lstm_ir_pending_bytes"))
        if holds(held):
            return
        assert time.monotonic() < end, held
        time.sleep(0.02)
