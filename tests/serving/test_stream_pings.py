"""Pings of a stream: a client that is gone without a word is given up, one that is held back or idle is not."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator

import pytest
from raw_stream import PING, PONG, TEXT, RawStream, frame
from served import Served, served, until
from served_models import STEP, stream

pytestmark = pytest.mark.together


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A call waits 50 ms for others, so that messages that are sent at once take their time."""
    package = stream(tmp_path_factory.mktemp("packages"))
    with served(package, "--max-delay", 0.05, "--ping-interval", 0.4) as found:
        yield found


def sessions(server: Served) -> float:
    return server.figures()['lstm_ir_sessions{model="stream"}']


def test_a_client_that_says_nothing_more_is_given_up(server: Served) -> None:
    """It answers no ping, as a machine without power."""
    with RawStream(server, "stream") as client:
        client.send(TEXT, STEP)
        assert sessions(server) == 1
        begun = time.monotonic()
        until(lambda: sessions(server) == 0, "its sequence is still open", 20)
        assert time.monotonic() - begun > 0.4
        assert client.closed() == 1011


def test_a_client_that_is_held_back_is_not_given_up(server: Served) -> None:
    """Its pong stands behind messages that the server has not read yet, for twice as long as it waits for one."""
    with RawStream(server, "stream") as client:
        out: queue.Queue[bytes | None] = queue.Queue()
        for _ in range(40):
            out.put(frame(TEXT, STEP))

        def write() -> None:
            for data in iter(out.get, None):
                client.socket.sendall(data)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            answers = 0
            while answers < 40:
                kind, data = client.read()
                if kind == PING:
                    out.put(frame(PONG, data))
                else:
                    assert kind == TEXT, (kind, data)
                    assert "outputs" in json.loads(data)
                    answers += 1
        finally:
            out.put(None)
            writer.join(60)


def test_a_client_that_answers_pings_alone_lives(server: Served) -> None:
    """Its stream is idle, which another limit bounds."""
    with RawStream(server, "stream") as client:
        for _ in range(4):
            kind, data = client.read()
            assert kind == PING
            client.send(PONG, data)
        client.send(TEXT, STEP)
        kind, data = client.read()
        assert "outputs" in json.loads(data)
