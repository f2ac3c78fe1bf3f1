"""How much memory a server takes of clients that send much, slowly or without end, and that others are answered."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from raw_stream import forget_peak, memory, peak
from served import Served, served
from served_models import I, encoder, stream

pytestmark = [
    pytest.mark.together,
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system has no /proc"),
]
MIB = 1 << 20
PENDING, BODY = 24 * MIB, 16 * MIB
POST = "POST /v2/models/encoder/infer HTTP/1.1\r\nHost: localhost\r\n"
GOOD = {"name": "x", "shape": [2, 1, I], "datatype": "FP32", "data": [0.5] * (2 * I)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("packages")
    limits = ("--max-pending", PENDING, "--max-body", BODY, "--max-json", 8 * MIB, "--max-connections", 200)
    with served(encoder(folder), stream(folder), *limits, "--header-timeout", 2.0, "--body-timeout", 3.0) as found:
        assert answered(found) < 60  # what the first request alone takes
        yield found


@pytest.fixture
def before(server: Served) -> int:
    forget_peak(server)
    return memory(server)


def answered(server: Served) -> float:
    """Seconds until a client that does nothing wrong has its answer."""
    begun = time.monotonic()
    while True:
        answer = httpx.post(f"{server.url}/v2/models/encoder/infer", json={"inputs": [GOOD]}, timeout=60)
        if answer.status_code == 200:
            return time.monotonic() - begun
        assert answer.status_code == 429, answer.text
        assert time.monotonic() - begun < 60
        time.sleep(0.05)


def test_bodies_that_are_sent_slowly(server: Served, before: int) -> None:
    """A hundred clients that announce 16 MiB and send one: some are refused, the others end when their time is over."""
    with ExitStack() as opened:
        clients = [opened.enter_context(server.connect()) for _ in range(100)]
        for client in clients:
            with suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(f"{POST}Content-Length: {BODY}\r\n\r\n".encode() + bytes(MIB))
        begun = time.monotonic()
        assert httpx.get(f"{server.url}/v2/health/ready", timeout=60).status_code == 200
        assert time.monotonic() - begun < 2
        assert answered(server) < 20
    assert peak(server) - before < 4 * PENDING


def test_bodies_without_an_end(server: Served, before: int) -> None:
    """Chunk after chunk, until the server has had enough of it."""

    def flood(_: int) -> bytes:
        with server.connect() as client:
            client.settimeout(30)
            sent = 0
            try:
                client.sendall(f"{POST}Transfer-Encoding: chunked\r\n\r\n".encode())
                while sent < 3 * BODY:
                    client.sendall(b"100000\r\n" + b" " * MIB + b"\r\n")
                    sent += MIB
            except (BrokenPipeError, ConnectionResetError, TimeoutError):
                pass
            try:
                return client.recv(65536).partition(b"\r\n")[0]
            except ConnectionResetError:
                return b""

    with ThreadPoolExecutor(4) as threads:
        lines = list(threads.map(flood, range(4)))
    assert all(line == b"" or b" 413 " in line or b" 429 " in line for line in lines), lines
    assert any(lines)
    assert answered(server) < 20
    assert peak(server) - before < 4 * PENDING


@pytest.mark.parametrize("text", [b"[],", b"0.5,", b'{"a":0},'], ids=["lists", "numbers", "objects"])
def test_json_that_grows_as_objects(server: Served, before: int, text: bytes) -> None:
    """Eight requests of 4 MB at once, which take some twenty times that as Python's objects: one is read at a time."""
    items = text * (4 * MIB // len(text))
    body = b'{"inputs": [{"name": "x", "shape": [1, 1, 5], "datatype": "FP32", "data": [' + items[:-1] + b"]}]}"

    def ask(_: int) -> int:
        return int(httpx.post(f"{server.url}/v2/models/encoder/infer", content=body, timeout=60).status_code)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, range(8)))
    assert set(found) <= {400, 408, 429}, found  # 408: on a busy machine
    assert 400 in found
    assert answered(server) < 20
    assert peak(server) - before < 4 * PENDING + 25 * len(body)


def test_heads_of_many_slow_clients(server: Served, before: int) -> None:
    """Beyond what a head may have, and up to it."""
    with ExitStack() as opened:
        clients = [opened.enter_context(server.connect()) for _ in range(150)]
        for i, client in enumerate(clients):
            with suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(POST.encode() + b"X: " + b"a" * (60_000 if i % 2 else 600_000))
        assert answered(server) < 10
        time.sleep(2.5)  # no head has come in time
        for client in clients:
            client.setblocking(False)
            with suppress(ConnectionResetError, BrokenPipeError, BlockingIOError):
                while client.recv(65536):
                    pass
    assert answered(server) < 10
    assert peak(server) - before < 64 * MIB


def test_answers_that_nobody_reads(server: Served, before: int) -> None:
    """Sixty requests of 1,500 steps whose answers stay unread; each is 200 kB, and the requests are small."""
    steps = 1500
    tensor = {"name": "x", "shape": [steps, 1, I], "datatype": "FP32", "data": [0.5] * (steps * I)}
    body = json.dumps({"inputs": [tensor]}).encode()
    request = f"{POST}Content-Length: {len(body)}\r\n\r\n".encode() + body
    with ExitStack() as opened:
        for _ in range(60):
            client = opened.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.port))
            client.settimeout(10)
            client.sendall(request)
        assert answered(server) < 20
    assert answered(server) < 20
    assert peak(server) - before < 4 * PENDING
