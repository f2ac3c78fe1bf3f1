"""Streams whose clients flood them, read nothing, send messages without end, or go in the middle."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from raw_stream import CONT, PING, PONG, TEXT, RawStream, forget_peak, frame, memory, peak
from served import Served, served, until
from served_models import STEP, stream
from websockets import frames

from lstm_ir.serving.stream_connection import StreamConnection

pytestmark = [
    pytest.mark.together,
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system has no /proc"),
]
MESSAGE = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    package = stream(tmp_path_factory.mktemp("packages"))
    with served(package, "--max-message", MESSAGE, "--send-timeout", 6.0) as found:
        yield found


@pytest.fixture(autouse=True)
def _nothing_is_left(server: Served) -> Iterator[None]:
    """Another client has its answer at once, in the middle and behind; the sequences and what they took are gone."""
    forget_peak(server)
    with RawStream(server, "stream") as other:
        yield
        other.send(TEXT, STEP)
        begun = time.monotonic()
        assert "outputs" in json.loads(other.read()[1])
        assert time.monotonic() - begun < 5
    until(lambda: sessions(server) == 0, "a sequence outlived its stream")


def sessions(server: Served) -> float:
    return server.figures()['lstm_ir_sessions{model="stream"}']


@pytest.mark.parametrize("parts", [1, 3, 2000], ids=str)
def test_messages_that_are_too_long(server: Served, parts: int) -> None:
    """As one frame, whose length alone is enough; as parts, of which one is too much."""
    with RawStream(server, "stream") as client:
        if parts == 1:
            client.socket.sendall(frame(TEXT, b"{", length=1 << 40))
        else:
            with suppress(BrokenPipeError, ConnectionResetError):
                for i in range(parts):
                    client.send(CONT if i else TEXT, b" " * (MESSAGE // (parts - 1) + 1), fin=False)
        assert client.closed() == 1009
    assert peak(server) - memory(server) < 16 * MESSAGE


def test_the_longest_message_is_taken_in_parts(server: Served) -> None:
    """Pings stand between parts, and each has its pong; pongs that nobody asked for are no matter."""
    with RawStream(server, "stream") as client:
        whole = STEP + b" " * (MESSAGE - len(STEP))
        for i in range(0, MESSAGE, MESSAGE // 8):
            client.send(CONT if i else TEXT, whole[i : i + MESSAGE // 8], fin=i + MESSAGE // 8 == MESSAGE)
            client.send(PING, str(i).encode())
            client.send(PONG, b"nothing")
        pongs = []
        while True:
            kind, data = client.read()
            if kind == PONG:
                pongs.append(int(data))
            elif kind == TEXT:
                break
        assert "outputs" in json.loads(data)
        assert pongs == list(range(0, MESSAGE, MESSAGE // 8))


def test_parts_take_no_more_than_their_bytes() -> None:
    """A list of parts would take forty times as much, and parts of no bytes would take memory without end."""
    connection = StreamConnection.__new__(StreamConnection)
    connection.frames = [b"{"]
    for i in range(100_000):
        connection.handle_cont(frames.Frame(frames.Opcode.CONT, b"" if i % 2 else b" ", False))
    assert bytes(connection.frames[0]) == b"{" + b" " * 50_000
    assert sys.getsizeof(connection.frames) + sum(map(sys.getsizeof, connection.frames)) < 100_000


@pytest.mark.parametrize("kind", [PING, TEXT], ids=["pings", "messages"])
def test_what_is_answered_and_not_read_takes_no_memory(server: Served, kind: int) -> None:
    """The server stops reading, and ends the connection; it had answered as long as anything came."""
    before = memory(server)
    with RawStream(server, "stream", buffer=4096) as client:
        client.socket.settimeout(1.0)
        flood = frame(kind, bytes(125) if kind == PING else b"{") * 500
        sent, most = 0, 40 << 20
        with suppress(TimeoutError, BrokenPipeError, ConnectionResetError):
            while sent < most:
                sent += client.socket.send(flood)
        assert sent < most, "it takes all that it is sent"
        assert peak(server) - before < 16 << 20
        until(lambda: gone(client), "the connection lasted")


def gone(client: RawStream) -> bool:
    try:
        client.socket.send(b"\x8a\x80\0\0\0\0")
    except (BrokenPipeError, ConnectionResetError):
        return True
    except TimeoutError:
        pass
    return False


@pytest.mark.parametrize("sent", [b"", frame(TEXT, STEP)[:20], frame(TEXT, STEP), frame(TEXT, STEP) * 3], ids=len)
def test_a_stream_that_is_half_closed_is_over(server: Served, sent: bytes) -> None:
    """The protocol ends a stream in both directions: a step that has begun is done, and its sequence goes."""
    with RawStream(server, "stream") as client:
        client.socket.sendall(sent)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.closed() is None
        until(lambda: sessions(server) == 1, "its sequence is still open")


@pytest.mark.parametrize("sent", [b"", frame(TEXT, b"{" * 1000, length=MESSAGE), frame(TEXT, STEP) * 20], ids=len)
def test_clients_that_die_in_the_middle(server: Served, sent: bytes) -> None:
    before = memory(server)
    for _ in range(20):
        client = RawStream(server, "stream")
        client.socket.sendall(sent)
        client.reset()
    until(lambda: sessions(server) == 1, "sequences outlived their streams")
    assert peak(server) - before < 40 << 20


def test_many_unfinished_messages_take_their_bytes(server: Served) -> None:
    """Thirty clients that send most of a message, drop by drop from then on, and are answered when they end it."""
    before, count = memory(server), 30
    with ExitStack() as opened:
        clients = [opened.enter_context(RawStream(server, "stream")) for _ in range(count)]
        whole = frame(TEXT, STEP + b" " * (MESSAGE - len(STEP)))
        for client in clients:
            client.socket.sendall(whole[:-10])
        until(lambda: memory(server) - before > count * MESSAGE // 2, "nothing was read")
        begun = time.monotonic()
        assert httpx.get(f"{server.url}/v2/health/ready", timeout=60).status_code == 200
        assert time.monotonic() - begun < 2
        for i in range(-10, 0):
            for client in clients:
                client.socket.sendall(whole[i : i + 1] if i < -1 else whole[-1:])
            time.sleep(0.1)
        for client in clients:
            assert "outputs" in json.loads(client.read()[1])
        assert peak(server) - before < 6 * count * MESSAGE
