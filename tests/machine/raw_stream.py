"""A websocket made by hand, for what no library's client does, and the most memory that a server has had."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from served import Served

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


class RawStream:
    """A client of a stream that sends frames, and reads and answers nothing by itself."""

    def __init__(self, server: Served, model: str, *, buffer: int | None = None) -> None:
        """buffer: bytes that the system keeps of what is not read."""
        self.socket = socket.socket()
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.connect(("127.0.0.1", server.port))
        self.socket.settimeout(60)
        head = f"GET /v2/models/{model}/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        key = "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        self.socket.sendall((head + key).encode())
        self._held = b""
        while b"\r\n\r\n" not in self._held:
            self._held += self._more()
        answer, _, self._held = self._held.partition(b"\r\n\r\n")
        assert b" 101 " in answer.partition(b"\r\n")[0], answer

    def __enter__(self) -> RawStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, kind: int, data: bytes, *, fin: bool = True) -> None:
        self.socket.sendall(frame(kind, data, fin=fin))

    def read(self) -> tuple[int, bytes]:
        """The next frame; EOFError at the end."""
        first, second = self._take(2)
        length = second & 127
        if length > 125:
            length = int.from_bytes(self._take(2 if length == 126 else 8), "big")
        return first & 15, self._take(length)

    def closed(self) -> int | None:
        """The code that the server closes with, behind whatever else comes; None where it only ends the connection."""
        try:
            while True:
                kind, data = self.read()
                if kind == CLOSE:
                    return int.from_bytes(data[:2], "big")
        except (EOFError, ConnectionResetError):
            return None

    def reset(self) -> None:
        """End the connection without a word of TCP's or the protocol's."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _take(self, count: int) -> bytes:
        while len(self._held) < count:
            self._held += self._more()
        found, self._held = self._held[:count], self._held[count:]
        return found

    def _more(self) -> bytes:
        data = self.socket.recv(1 << 16)
        if not data:
            raise EOFError
        return data


def frame(kind: int, data: bytes, *, fin: bool = True, length: int | None = None) -> bytes:
    """A frame, masked by zeros; length: what it says that it has."""
    count = len(data) if length is None else length
    size = bytes([count]) if count < 126 else bytes([127]) + count.to_bytes(8, "big")
    return bytes([kind | (128 if fin else 0), size[0] | 128]) + size[1:] + bytes(4) + data


def memory(server: Served) -> int:
    """Bytes that the process has now."""
    pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def peak(server: Served) -> int:
    """The most bytes that the process has had since `forget_peak`."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def forget_peak(server: Served) -> None:
    """From now on the peak is that of what follows."""
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
