"""Servers as processes of their own, on a free port of the loopback, and raw connections to them."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from child import environment

LINE = "serving on http://127.0.0.1:"


class Served:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port, self.url = process, port, f"http://127.0.0.1:{port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def exchange(self, data: bytes) -> bytes:
        """What comes back for these bytes, until the server closes."""
        with self.connect() as s:
            s.sendall(data)
            return whole(s)

    def figures(self) -> dict[str, float]:
        """The server's metrics, by name and labels."""
        import httpx

        return figures(httpx.get(f"{self.url}/metrics", timeout=60).text)


def figures(text: str) -> dict[str, float]:
    """Prometheus' text, by name and labels."""
    lines = [line.rpartition(" ") for line in text.splitlines() if line[:1] != "#"]
    return {name: float(value) for name, _, value in lines}


def until(holds: Callable[[], bool], otherwise: str, seconds: float = 60) -> None:
    """Wait for it."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, otherwise
        time.sleep(0.02)


def whole(s: socket.socket) -> bytes:
    """All that is read until the other side closes."""
    parts = []
    try:
        while data := s.recv(65536):
            parts.append(data)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@contextmanager
def served(*words: object) -> Iterator[Served]:
    """`lstm-ir serve` with these words."""
    with running("-m", "lstm_ir", "serve", "--port", 0, *words) as found:
        yield found


@contextmanager
def slow_server(gate: Path, *words: object) -> Iterator[Served]:
    """The model of slow_server.py, whose calls wait for `gate`."""
    with running(Path(__file__).with_name("slow_server.py"), gate, *words) as found:
        yield found


@contextmanager
def running(*words: object) -> Iterator[Served]:
    process = subprocess.Popen(
        [sys.executable, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        if not line.startswith(LINE):
            process.kill()
            raise AssertionError(f"no server: {line}{process.stderr.read()[-2000:]}")
        yield Served(process, int(line.removeprefix(LINE)))
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(60)
        process.stdout.close()
        process.stderr.close()
