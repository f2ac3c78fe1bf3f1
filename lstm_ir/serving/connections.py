"""Connections that ask for too much patience: too many, too slow to ask, too slow to read, or half closed."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState as Connections

from lstm_ir.serving.limits import ServerLimits

_FULL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
_PERIOD = 0.25  # of the shortest timeout, between two looks


def protocol(limits: ServerLimits) -> type[H11Protocol]:
    """The protocol of a server with these limits."""

    class Connection(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > limits.max_connections:
                transport.write(_FULL + b'{"error": "too many connections"}')
                transport.close()

        def eof_received(self) -> bool | None:  # type: ignore[override]
            """A client that has sent all it will send still gets the answers that it waits for."""
            waits = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
            if waits:
                self.cycle.keep_alive = False
            return waits

    return Connection


class ConnectionWatch:
    """Ends connections that have sent no request, or read nothing of their answer, for too long."""

    def __init__(self, connections: Connections, limits: ServerLimits) -> None:
        self._connections, self._limits = connections, limits
        self._asking: WeakKeyDictionary[Any, float] = WeakKeyDictionary()  # since when it sends no whole head
        self._stuck: WeakKeyDictionary[Any, tuple[int, float]] = WeakKeyDictionary()  # bytes unsent, since when

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD * min(self._limits.header_timeout, self._limits.send_timeout))
            now = time.monotonic()
            for connection in list(self._connections.connections):
                if self._overdue(connection, now):
                    connection.transport.abort()

    def _overdue(self, connection: Any, now: float) -> bool:
        unsent = connection.transport.get_write_buffer_size()
        before, since = self._stuck.get(connection, (0, now))
        if unsent != before or not unsent:
            since = now
        self._stuck[connection] = unsent, since
        if unsent and now - since > self._limits.send_timeout:
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
