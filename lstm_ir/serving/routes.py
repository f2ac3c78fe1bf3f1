"""The Open Inference Protocol v2 over HTTP.

    bytes ─read_body─> body ─queue─> InferRequest and a Future ─result─> outputs ─written─> bytes

All of it runs in one event loop, apart from the calls, which the worker thread of each model makes, and from large
bodies, which one thread reads and writes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from functools import cache
from importlib.metadata import version
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from lstm_ir.serving import departure
from lstm_ir.serving.hosts import need_host
from lstm_ir.serving.inference import sequence_name
from lstm_ir.serving.limits import content_length, read_body, whole_number
from lstm_ir.serving.queueing import get_state, put_state, queue, written
from lstm_ir.serving.served_model import GONE, ServedModel, result
from lstm_ir.serving.server_state import ServerState, error_json, logged, status_of
from lstm_ir.serving.stream import stream
from lstm_ir.serving.tensors import RequestError
from lstm_ir.serving.url_text import need_text

HEADER = "Inference-Header-Content-Length"
_PART = 1 << 16  # bytes of an answer that are sent at a time
_BYTES, _JSON = "application/octet-stream", "application/json"
Handler = Callable[[ServerState, Request], Awaitable[Response]]


def application(state: ServerState) -> Starlette:
    """The server of these models."""
    model = "/v2/models/{model}"
    held = model + "/sequences/{sequence:path}/state"  # names may have a /
    both = (model, model + "/versions/{version}")
    table: list[tuple[str, str, Handler]] = [
        ("GET", "/v2", _server), ("GET", "/v2/health/live", _live), ("GET", "/v2/health/ready", _ready),
        ("GET", "/metrics", _metrics),
        *(("GET", m, _metadata) for m in both), *(("GET", m + "/ready", _model_ready) for m in both),
        *(("POST", m + "/infer", _infer) for m in both),
        ("GET", held, _state), ("PUT", held, _put_state),
    ]  # fmt: skip
    places: dict[str, dict[str, Handler]] = {}
    for method, path, handler in table:
        places.setdefault(path, {})[method] = handler
    routes: list[Any] = [
        Route(path, _endpoint(state, handlers), methods=list(handlers)) for path, handlers in places.items()
    ]
    routes.append(WebSocketRoute(model + "/stream", lambda socket: stream(state, socket)))
    return Starlette(routes=routes, exception_handlers={404: _nowhere, 405: _nowhere})


def _endpoint(state: ServerState, handlers: dict[str, Handler]) -> Callable[[Request], Awaitable[Response]]:
    """Errors of a handler as answers, none of which ends the server."""

    async def answer(request: Request) -> Response:
        try:
            need_host(request.headers, state.own_host)
            need_text(request.scope)
            if "origin" in request.headers:
                raise RequestError("requests of web pages (with the header Origin) are refused", 403)
            method = "GET" if request.method == "HEAD" else request.method
            found = await handlers[method](state, request)
        except ClientDisconnect:
            return Response(status_code=GONE)  # nobody reads it
        except Exception as e:
            found = error_response(e)
        if state.stopping.is_set():
            found.headers["Connection"] = "close"
        return found

    return answer


def error_response(error: Exception) -> Response:
    """The protocol's error."""
    status = logged(error)
    headers = {"Retry-After": "1"} if status == 429 else {}
    return Response(error_json(error), status, headers, _JSON)


async def _nowhere(request: Request, error: Exception) -> Response:
    status = int(getattr(error, "status_code", 404))
    what = "there is nothing at this path" if status == 404 else f"{request.method} is not taken here"
    headers = dict(getattr(error, "headers", None) or {})
    return Response(error_json(RequestError(what, status)), status, headers, _JSON)


def _json(data: object) -> Response:
    return Response(json.dumps(data), media_type=_JSON)


@cache
def _version() -> str:
    return version("lstm-ir")  # reads files


async def _server(state: ServerState, request: Request) -> Response:
    extensions = ["binary_tensor_data", "sequence"]
    return _json({"name": "lstm-ir", "version": _version(), "extensions": extensions})


async def _live(state: ServerState, request: Request) -> Response:
    return _json({"live": True})


async def _ready(state: ServerState, request: Request) -> Response:
    if state.stopping.is_set():
        raise RequestError("the server stops", 503)
    return _ready_models(state.models.values())


def _ready_models(models: Iterable[ServedModel]) -> Response:
    lost = [m.name for m in models if m.lost]
    if lost:
        raise RequestError(f"the device of {', '.join(lost)} was lost", 503)
    return _json({"ready": True})


async def _metrics(state: ServerState, request: Request) -> Response:
    data, kind = state.metrics.text()
    return Response(data, headers={"Content-Type": kind})


def _model(state: ServerState, request: Request) -> ServedModel:
    found = request.path_params
    return state.model(found["model"], found.get("version"))


def _sequence(request: Request) -> str | int:
    name = sequence_name(request.path_params["sequence"])
    if name is None:
        raise RequestError("no sequence is called 0", 404)
    return name


async def _metadata(state: ServerState, request: Request) -> Response:
    return _json(_model(state, request).metadata())


async def _model_ready(state: ServerState, request: Request) -> Response:
    if state.stopping.is_set():
        raise RequestError("the server stops", 503)
    return _ready_models([_model(state, request)])


class _Answer(Response):
    """A response in parts, each sent once there is room for it. It holds what it was given until all are sent."""

    def __init__(self, held: ExitStack, body: bytes, **more: Any) -> None:
        super().__init__(body, **more)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for start in range(0, len(self.body), _PART):
                part, more = bytes(self.body[start : start + _PART]), start + _PART < len(self.body)
                await send({"type": "http.response.body", "body": part, "more_body": more})


async def _infer(state: ServerState, request: Request) -> Response:
    model = _model(state, request)
    begun: float | None = None  # when the body was there
    status = 200
    try:
        if request.headers.get("content-encoding", "identity") != "identity":
            raise RequestError("compressed bodies are not read", 415)
        with ExitStack() as stack:
            lease = stack.enter_context(state.budget.lease())
            limits = state.limits
            length = content_length(request.headers.get("content-length"))
            body = await read_body(request.stream(), length, limits, lease, limits.max_body)
            begun = time.monotonic()
            header = whole_number(request.headers.get(HEADER), HEADER)
            asked, future = await queue(state, model, memoryview(body), header, begun=begun)
            outputs = await result(future, asked.timeout, begun, departure.of(request))
            name = asked.sequence
            text, data = await written(state, model, asked, outputs, {} if name is None else {"sequence_id": name})
            lease.add(len(data))
            held = stack.pop_all()  # until the answer is sent
        if text is None:
            return _Answer(held, data, media_type=_JSON)
        return _Answer(held, data, headers={HEADER: str(text)}, media_type=_BYTES)
    except (ClientDisconnect, asyncio.CancelledError):
        status = GONE
        raise
    except Exception as e:
        status = status_of(e)
        raise
    finally:
        state.metrics.answered(model.name, status, None if begun is None else time.monotonic() - begun)


async def _state(state: ServerState, request: Request) -> Response:
    with ExitStack() as stack:
        lease = stack.enter_context(state.budget.lease())
        data = await get_state(state, _model(state, request), _sequence(request))
        lease.add(len(data))
        return _Answer(stack.pop_all(), data, media_type=_BYTES)


async def _put_state(state: ServerState, request: Request) -> Response:
    model, name = _model(state, request), _sequence(request)
    with state.budget.lease() as lease:
        length = content_length(request.headers.get("content-length"))
        body = await read_body(request.stream(), length, state.limits, lease, state.limits.max_body)
        await put_state(state, model, name, body)
    return Response(status_code=204)
