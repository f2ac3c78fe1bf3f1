"""Connections that ask for too much patience: too many, too slow to ask, too slow to read, or half closed.

And those whose bytes take long: a body in chunks of one byte takes 15 us a byte, so that what is read at a time would
hold up all others for more than half a second. Of such a connection little is read at a time, and others have their
turns between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState as Connections

from lstm_ir.serving import departure
from lstm_ir.serving.limits import ServerLimits

_FULL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
_PERIOD = 0.25  # of the shortest timeout, between two looks
_RATE = 1024  # bytes a second that a client reads at least of its answers
_LEAST, _FIRST, _MOST = 4096, 1 << 14, 1 << 16  # bytes that are read at a time: where they take long, at first, else
_LONG = 0.005  # seconds
_PROBE = 0.05  # seconds before a client that has sent all is asked whether it is there, and twice as many each time


def protocol(limits: ServerLimits) -> type[H11Protocol]:
    """The protocol of a server with these limits."""

    class Connection(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(CountedTransport(transport))  # type: ignore[arg-type]
            self.app_state = departure.begin(self.app_state)
            if len(self.connections) > limits.max_connections:
                transport.write(_FULL + b'{"error": "too many connections"}')
                transport.close()

        def data_received(self, data: bytes) -> None:
            self.transport.timed(super().data_received, data)  # type: ignore[attr-defined]

        def eof_received(self) -> bool | None:  # type: ignore[override]
            """A client that has sent all it will send still gets the answers that it waits for."""
            waits = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
            if waits:
                self.cycle.keep_alive = False
                self.loop.call_later(_PROBE, _probe, self, _PROBE)
            return waits

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            departure.end(self.app_state)

    return Connection


def _probe(connection: H11Protocol, wait: float) -> None:
    """Send the client an interim response, again and again until its answer begins.

    One that has closed its connection looks as one that has half closed it, but its system refuses what it is sent:
    the write after that ends the connection here. Others pass over an interim response.
    """
    waits = connection.conn.our_state is h11.SEND_RESPONSE and connection.scope["http_version"] == "1.1"
    if connection.transport.is_closing() or not waits:
        return
    connection.transport.write(connection.conn.send(h11.InformationalResponse(status_code=100, headers=[])))
    connection.loop.call_later(2 * wait, _probe, connection, 2 * wait)


class CountedTransport:
    """A transport that knows how many bytes it was given, and reads as many at a time as do not take long."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._given = transport, 0
        self._read(_FIRST)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """As a transport does."""
        self._given += len(data)
        self._transport.write(data)

    def timed(self, received: Callable[[bytes], None], data: bytes) -> None:
        """Hand over what was read, and see how long that takes."""
        begun = perf_counter()
        received(data)
        if perf_counter() - begun > _LONG:
            self._read(max(_LEAST, self._count // 2))
        elif len(data) == self._count:
            self._read(min(_MOST, self._count * 2))

    def _read(self, count: int) -> None:
        self._count = count
        transport: Any = self._transport
        transport.max_size = count  # asyncio's own: what it asks the system for at a time

    @property
    def sent(self) -> int:
        """Bytes that the system has taken, which is what a client's reading makes room for."""
        return self._given - self._transport.get_write_buffer_size()


class ConnectionWatch:
    """Ends connections that have sent no request for too long, or read too little of their answers."""

    def __init__(self, connections: Connections, limits: ServerLimits) -> None:
        self._connections, self._limits = connections, limits
        self._asking: WeakKeyDictionary[Any, float] = WeakKeyDictionary()  # since when it sends no whole head
        self._read: WeakKeyDictionary[Any, tuple[int, float]] = WeakKeyDictionary()  # bytes sent, and when

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD * min(self._limits.header_timeout, self._limits.send_timeout))
            now = time.monotonic()
            for connection in list(self._connections.connections):
                if self._overdue(connection, now):
                    connection.transport.abort()

    def _overdue(self, connection: Any, now: float) -> bool:
        if self._reads_too_slowly(connection, now):
            return True
        if not isinstance(connection, H11Protocol):
            return False  # a stream: pings tell whether its client lives
        if connection.cycle is not None and not connection.cycle.response_complete:
            self._asking.pop(connection, None)
            return False
        idle = connection.timeout_keep_alive_task is not None  # which closes it
        if idle:
            self._asking.pop(connection, None)
            return False
        return now - self._asking.setdefault(connection, now) > self._limits.header_timeout

    def _reads_too_slowly(self, connection: Any, now: float) -> bool:
        """What is sent counts, not what is unsent: that grows too, with each answer to a client that reads nothing."""
        unsent: int = connection.transport.get_write_buffer_size()
        sent: int = connection.transport.sent
        before, since = self._read.get(connection, (sent, now))
        if not unsent or sent - before >= _RATE * self._limits.send_timeout:
            before, since = sent, now
        self._read[connection] = before, since
        return now - since > self._limits.send_timeout
