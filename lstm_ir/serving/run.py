"""The server's life: it listens, answers, and stops without losing what it accepted.

SIGTERM or SIGINT ─> not ready, streams answer their last message and close ─> no more connections
  ─> answers of what was accepted ─> models are closed ─> the end. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import uvicorn

from lstm_ir.ir.errors import DeviceError
from lstm_ir.ir.foreign_errors import become
from lstm_ir.serving.connections import ConnectionWatch, protocol
from lstm_ir.serving.limits import ServerLimits
from lstm_ir.serving.routes import application
from lstm_ir.serving.served_model import ServedModel
from lstm_ir.serving.server_state import ServerState

_POLL = 0.02  # seconds between two looks whether streams have ended
_KEEP_ALIVE = 60  # seconds that a connection without requests stays open
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Server(uvicorn.Server):
    """uvicorn, whose signals are ours."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(
    models: Mapping[str, ServedModel], *, host: str = "127.0.0.1", port: int = 8000, limits: ServerLimits | None = None,
    listening: Callable[[str], None] = lambda url: None,
) -> None:  # fmt: skip
    """Serve until SIGTERM or SIGINT; `listening` is told the address once requests are taken.

    DeviceError for an address that cannot be had, and where it ended before all accepted requests were answered.
    """
    with become(DeviceError, f"cannot listen on {host}:{port}"):
        sock = _bound(host, port)
    with sock:
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{sock.getsockname()[1]}"
        asyncio.run(_serve(models, sock, limits or ServerLimits(), lambda: listening(address)))


def _bound(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    family, kind, protocol_number, _, address = found
    sock = socket.socket(family, kind, protocol_number)  # asyncio sends at once (TCP_NODELAY) where it is told TCP
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _serve(
    models: Mapping[str, ServedModel], sock: socket.socket, limits: ServerLimits, listening: Callable[[], None]
) -> None:
    state = ServerState(models, limits)
    config = uvicorn.Config(
        application(state), http=protocol(limits), ws="websockets-sansio", ws_max_size=limits.max_message,
        ws_per_message_deflate=False, lifespan="off", log_level="warning", access_log=False, server_header=False,
        timeout_keep_alive=_KEEP_ALIVE, timeout_graceful_shutdown=max(1, round(limits.stop_timeout)), backlog=256,
    )  # fmt: skip
    server = _Server(config)
    stops: list[asyncio.Task[None]] = []

    def stop() -> None:
        if stops:
            server.should_exit = server.force_exit = True
        stops.append(asyncio.ensure_future(_stop(state, server)))

    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows; a thread that is not the first
            loop.add_signal_handler(number, stop)
    watch = asyncio.ensure_future(ConnectionWatch(server.server_state, limits).run())
    tell = asyncio.ensure_future(_tell(server, listening))
    try:
        await server.serve([sock])
    finally:
        for task in (watch, tell, *stops):
            task.cancel()
        await _drained(models, server, limits.stop_timeout)


async def _drained(models: Mapping[str, ServedModel], server: uvicorn.Server, seconds: float) -> None:
    """Let models answer what they accepted; DeviceError where they do not in time, or a second signal came."""
    for model in models.values():
        model.stop()
    end = asyncio.get_running_loop().time() + seconds
    while not all(m.done for m in models.values()):
        if server.force_exit or asyncio.get_running_loop().time() > end:
            for model in models.values():
                model.abandon()
            raise DeviceError("the server was ended before all accepted requests were answered")
        await asyncio.sleep(_POLL)


async def _tell(server: uvicorn.Server, listening: Callable[[], None]) -> None:
    while not server.started:
        await asyncio.sleep(_POLL)
    listening()


async def _stop(state: ServerState, server: uvicorn.Server) -> None:
    state.stopping.set()
    end = asyncio.get_running_loop().time() + state.limits.stop_timeout
    while state.streamed and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(_POLL)
    server.should_exit = True
