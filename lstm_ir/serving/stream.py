"""A websocket for one sequence: it begins when the stream opens and ends when the stream does.

A text message is an inference request in JSON, and so is its answer. A binary message is the length of the JSON as
four bytes (little-endian), the JSON, and the bytes of its binary tensors; its answer has the same form, with all
outputs as bytes where the request does not say otherwise. One message is answered before the next is read, so a
client that sends faster than it is answered is held back by its own connection.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from lstm_ir.ir.errors import UnknownSessionError
from lstm_ir.serving import departure
from lstm_ir.serving.hosts import need_host
from lstm_ir.serving.inference import sequence_name
from lstm_ir.serving.limits import Lease
from lstm_ir.serving.queueing import queue, written
from lstm_ir.serving.served_model import GONE, ServedModel, result
from lstm_ir.serving.server_state import ServerState, error_json, logged, text_of
from lstm_ir.serving.session import ClientSession, Unnamed
from lstm_ir.serving.tensors import RequestError
from lstm_ir.serving.url_text import need_text

_LENGTH = 4
RESTART, POLICY, AWAY = 1012, 1008, 1001


async def stream(state: ServerState, socket: WebSocket) -> None:
    """Serve one stream until its client, or the server, ends it."""
    try:
        model, session = _opened(state, socket)
    except Exception as e:
        await socket.send_denial_response(Response(error_json(e), logged(e), media_type="application/json"))
        return
    state.streamed.add(session)
    state.metrics.streams.inc()
    try:
        await socket.accept()
        await _messages(state, socket, model, session)
    except (WebSocketDisconnect, OSError, RuntimeError):
        pass  # the client is gone, in the middle of whatever it was
    finally:
        session.close()
        state.streamed.discard(session)
        state.metrics.streams.dec()


def _opened(state: ServerState, socket: WebSocket) -> tuple[ServedModel, ClientSession]:
    need_host(socket.headers, state.own_host)
    need_text(socket.scope)
    if "origin" in socket.headers:
        raise RequestError("streams of web pages (with the header Origin) are refused", 403)
    if state.stopping.is_set():
        raise RequestError("the server stops", 503)
    model = state.model(socket.path_params["model"])
    asked = socket.query_params
    unknown = sorted(set(asked) - {"sequence_id", "resume"})
    if unknown:
        raise RequestError(f"there is no parameter {unknown[0][:80]!r}; there is sequence_id, resume")
    name = sequence_name(asked.get("sequence_id", ""))
    if asked.get("resume", "false") not in ("true", "false"):
        raise RequestError("parameter resume is true or false")
    resume = asked.get("resume") == "true"
    if resume and name is None:
        raise RequestError("resume needs the sequence_id of a sequence that is open")
    if name is not None and (resume or model.sessions.has(name)):
        session = model.sessions.get(name)
        if session in state.streamed:
            raise RequestError(f"sequence {name!r} has a stream already", 409)
        if resume:
            return model, session
    return model, model.sessions.open(name)


async def _messages(state: ServerState, socket: WebSocket, model: ServedModel, session: ClientSession) -> None:
    stopping = asyncio.ensure_future(state.stopping.wait())
    receiving: asyncio.Future[Any] | None = None
    try:
        while True:
            receiving = asyncio.ensure_future(socket.receive())
            await asyncio.wait(
                {receiving, stopping}, timeout=state.limits.idle_timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if not receiving.done():
                await socket.close(*((RESTART, "the server stops") if stopping.done() else (AWAY, "idle for too long")))
                return
            message = receiving.result()
            if message["type"] == "websocket.disconnect":
                return
            if not await _answered(state, socket, model, session, message):
                await socket.close(POLICY, "the sequence is closed")
                return
            if state.stopping.is_set():  # also where the next message is there already
                await socket.close(RESTART, "the server stops")
                return
    finally:
        stopping.cancel()
        if receiving is not None:
            receiving.cancel()


async def _answered(
    state: ServerState, socket: WebSocket, model: ServedModel, session: ClientSession, message: dict[str, Any]
) -> bool:
    """Answer one message; whether the stream goes on."""
    begun, status, goes_on = time.monotonic(), 200, True
    try:
        with state.budget.lease() as lease:
            try:
                answer = await _answer(state, socket, model, session, message, lease, begun)
            except Exception as e:  # whatever its class: what the connection raises is raised by `_send` alone
                status, goes_on = logged(e), not isinstance(e, UnknownSessionError)
                answer = json.dumps({"error": text_of(e), "status": status})
            await _send(socket, answer)
    except (WebSocketDisconnect, OSError, asyncio.CancelledError):
        status = GONE
        raise
    finally:
        state.metrics.answered(model.name, status, time.monotonic() - begun)
    return goes_on


async def _answer(
    state: ServerState, socket: WebSocket, model: ServedModel, session: ClientSession, message: dict[str, Any],
    lease: Lease, begun: float,
) -> bytes | str:  # fmt: skip
    """The answer to one message, which came at `begun`: text to a text, bytes to bytes."""
    body, header = _parts(message)
    lease.take(len(body))
    binary = header is not None
    asked, future = await queue(state, model, body, header, session, binary=binary, begun=begun)
    outputs = await result(future, asked.timeout, begun, departure.of(socket))
    named = {} if isinstance(session.name, Unnamed) else {"sequence_id": session.name}
    text, data = await written(state, model, asked, outputs, named)
    lease.add(len(data))
    if not binary:
        return data.decode()
    length = len(data) if text is None else text
    return length.to_bytes(_LENGTH, "little") + data


async def _send(socket: WebSocket, answer: bytes | str) -> None:
    if isinstance(answer, str):
        await socket.send_text(answer)
    else:
        await socket.send_bytes(answer)


def _parts(message: dict[str, Any]) -> tuple[memoryview, int | None]:
    """What follows the length, and the length; a text message has none."""
    text = message.get("text")
    if text is not None:
        return memoryview(text.encode()), None
    data = memoryview(message["bytes"])
    if len(data) < _LENGTH:
        raise RequestError(f"a binary message begins with the length of its JSON, {_LENGTH} bytes")
    return data[_LENGTH:], int.from_bytes(data[:_LENGTH], "little")
