"""What a server takes at most, and bodies read within it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lstm_ir.ir.errors import BusyError
from lstm_ir.serving.tensors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class ServerLimits:
    """Bytes, seconds and counts; the page on serving has them as a table."""

    max_body: int = 64 << 20  # bytes of one request
    max_json: int = 2 << 20  # bytes of its JSON: as Python's objects they take some twenty times that
    max_message: int = 1 << 20  # bytes of one message of a stream
    max_pending: int = 512 << 20  # bytes of all bodies that are read or wait, and of answers
    max_connections: int = 1024
    header_timeout: float = 10.0  # seconds until a connection has sent the head of a request
    body_timeout: float = 30.0  # seconds until the body is there
    send_timeout: float = 30.0  # seconds in which a client reads too little of its responses
    ping_interval: float = 20.0  # seconds between two pings of a stream, and for the answer to one
    idle_timeout: float = 600.0  # seconds without a message after which a stream is closed
    stop_timeout: float = 30.0  # seconds that accepted requests have once the server stops


class Budget:
    """Bytes of bodies that may be held at once."""

    def __init__(self, limit: int) -> None:
        self.limit, self.held = limit, 0

    def take(self, count: int) -> None:
        """BusyError where they are too many now."""
        if self.held + count > self.limit:
            raise BusyError(f"requests hold {self.held} bytes, {count} more are too many now")
        self.held += count

    @contextmanager
    def lease(self) -> Iterator[Lease]:
        """What is taken through it is given back at the end."""
        lease = Lease(self)
        try:
            yield lease
        finally:
            self.held -= lease.held


class Lease:
    """The part of a budget that one request holds."""

    def __init__(self, budget: Budget) -> None:
        self._budget, self.held = budget, 0

    def take(self, count: int) -> None:
        """BusyError where they are too many now."""
        self._budget.take(count)
        self.held += count

    def add(self, count: int) -> None:
        """Bytes of an answer, which is there and is not refused for them: they leave others less room."""
        self._budget.held += count
        self.held += count


async def read_body(
    chunks: AsyncIterator[bytes], length: int | None, limits: ServerLimits, lease: Lease, max_bytes: int
) -> bytearray:
    """The body; RequestError for one that is too long (413) or too slow (408), BusyError where there is no room.

    The lease grows with what has arrived: what a client only announces takes no room from others.
    """
    if length is not None and length > max_bytes:
        raise RequestError(f"the body has {length} bytes; at most {max_bytes} are read", 413)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_timeout):
            async for chunk in chunks:
                body += chunk
                if len(body) > max_bytes:
                    raise RequestError(f"the body has more than {max_bytes} bytes", 413)
                lease.take(len(chunk))
    except TimeoutError:
        raise RequestError(f"the body was not there after {limits.body_timeout:g} s", 408) from None
    return body


def content_length(text: str | None) -> int | None:
    """Of the header; None where there is none."""
    return whole_number(text, "Content-Length")


def whole_number(text: str | None, what: str) -> int | None:
    """A header that is a number."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise RequestError(f"{what} is {text[:40]!r}; expected a number of bytes")
    return int(text)
