"""The connection of a stream: what it holds for a client that floods it, reads nothing, or is gone.

uvicorn stops reading while a message waits. Beside that, here:

* While a client does not take what it is sent, nothing more is read of it: each ping is answered, so a client that
  sends pings and reads no pongs would fill the memory.
* The parts of a message are joined as they come: held one by one, parts of a byte each take forty times as much.
* A client that is held back cannot show that it lives: its pong stands behind the messages that are not read yet. So
  what has come since the ping counts as a pong, and nothing is given up while nothing is read.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from lstm_ir.serving import departure


class StreamConnection(WebSocketsSansIOProtocol):
    """uvicorn's connection of a websocket, with bounds."""

    _heard = True  # anything since the last ping

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        self._heard = True
        self.transport.timed(super().data_received, data)  # type: ignore[attr-defined]

    def handle_cont(self, event: Frame) -> None:
        """A part of a message that is not the first."""
        held: Any = self.frames[0]
        if not isinstance(held, bytearray):
            held = bytearray(held)
            self.frames = [held]
        held += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def pause_writing(self) -> None:
        """The client does not take what it is sent."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """It has taken most of it."""
        super().resume_writing()
        if not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    async def receive(self) -> Any:
        """The next message; reading goes on where no other waits."""
        message = await super().receive()
        if not self.writable.is_set():
            self.transport.pause_reading()
        return message

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        super().connection_lost(exc)
        departure.end(self.app_state)

    def send_keepalive_ping(self) -> None:
        """Ask whether the client lives."""
        self._heard = False
        super().send_keepalive_ping()

    def keepalive_timeout(self) -> None:
        """It has not answered: the end, unless it was held back, or has sent something else."""
        held_back = self.read_paused or not self.writable.is_set()
        if not (held_back or self._heard) or self.close_sent or self.transport.is_closing():
            super().keepalive_timeout()
            return
        self.pong_timer = None
        self.pending_ping_payload = None
        self.schedule_ping()
