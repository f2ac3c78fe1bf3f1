"""The server's life: it listens, answers, and stops without losing what it accepted.

SIGTERM or SIGINT ─> not ready, streams answer their last message and close ─> no more connections
  ─> answers of what was accepted ─> models are closed ─> the end. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import uvicorn

from lstm_ir.backends.run import runtime
from lstm_ir.ir.errors import DeviceError
from lstm_ir.ir.foreign_errors import become
from lstm_ir.serving import stop_signals
from lstm_ir.serving.connections import ConnectionWatch, protocol
from lstm_ir.serving.hosts import is_loopback
from lstm_ir.serving.limits import ServerLimits
from lstm_ir.serving.routes import application
from lstm_ir.serving.served_model import ServedModel
from lstm_ir.serving.server_state import ServerState
from lstm_ir.serving.stream_connection import StreamConnection

_POLL = 0.02  # seconds between two looks whether streams have ended
_RENEWAL = 1.0  # seconds between two tries to load what has lost its device
_KEEP_ALIVE = 60  # seconds that a connection without requests stays open
log = logging.getLogger("lstm_ir.serving")


def threads_beside_a_server() -> int:
    """Workers of a call where a server runs: a processor is left to the thread that reads and writes requests.

    A step of a recurrence ends when its last worker does; one that waits for a processor holds up the others.
    """
    return max(1, runtime.threads() - 1)


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
        own = host if is_loopback(sock.getsockname()[0]) else None
        asyncio.run(_serve(ServerState(models, limits or ServerLimits(), own), sock, lambda: listening(address)))


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


async def _serve(state: ServerState, sock: socket.socket, listening: Callable[[], None]) -> None:
    models, limits = state.models, state.limits
    config = uvicorn.Config(
        application(state), http=protocol(limits), ws=StreamConnection, ws_max_size=limits.max_message,
        ws_ping_interval=limits.ping_interval, ws_ping_timeout=limits.ping_interval, ws_per_message_deflate=False,
        lifespan="off", log_level="warning", access_log=False, server_header=False, timeout_keep_alive=_KEEP_ALIVE,
        backlog=256,
    )  # fmt: skip
    server = _Server(config)
    stops: list[asyncio.Task[None]] = []
    loop = asyncio.get_running_loop()
    end: float | None = None  # when streams, answers and models have had their time, all together

    def stop() -> None:
        nonlocal end
        if end is None:
            end = loop.time() + limits.stop_timeout
        else:
            server.should_exit = server.force_exit = True
        stops.append(asyncio.ensure_future(_stop(state, server, end)))

    watch = asyncio.ensure_future(ConnectionWatch(server.server_state, limits).run())
    tell = asyncio.ensure_future(_tell(server, listening))
    renewal = asyncio.ensure_future(_renewed(models))
    with stop_signals.calling(stop, loop):
        try:
            await server.serve([sock])
        finally:
            for task in (watch, tell, renewal, *stops):
                task.cancel()
            await _drained(models, server, loop.time() + limits.stop_timeout if end is None else end)


async def _drained(models: Mapping[str, ServedModel], server: uvicorn.Server, end: float) -> None:
    """Let models answer what they accepted; DeviceError where they do not in time, or a second signal came."""
    for model in models.values():
        model.stop()
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


async def _renewed(models: Mapping[str, ServedModel]) -> None:
    """Load models whose device was lost, again and again until it succeeds."""
    while True:
        await asyncio.sleep(_RENEWAL)
        for model in models.values():
            if model.renews:
                try:
                    await asyncio.to_thread(model.renew)
                except Exception as e:
                    log.warning("%s: its device was lost, and it cannot be loaded again: %s", model.name, e)


async def _stop(state: ServerState, server: uvicorn.Server, end: float) -> None:
    state.stopping.set()
    loop = asyncio.get_running_loop()
    while state.streamed and loop.time() < end:
        await asyncio.sleep(_POLL)
    server.config.timeout_graceful_shutdown = max(0.0, end - loop.time())  # type: ignore[assignment]
    server.should_exit = True
