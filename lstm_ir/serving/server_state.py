"""What the routes and streams of one server share, and how errors become answers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext

from lstm_ir.ir.errors import (
    BusyError,
    CallError,
    DeadlineError,
    LstmIrError,
    PackageError,
    UnknownSessionError,
    ValueRangeError,
)
from lstm_ir.serving.large_work import LargeWork
from lstm_ir.serving.limits import Budget, ServerLimits
from lstm_ir.serving.metrics import Metrics
from lstm_ir.serving.served_model import ServedModel
from lstm_ir.serving.session import ClientSession
from lstm_ir.serving.sessions import Sessions
from lstm_ir.serving.tensors import RequestError

log = logging.getLogger("lstm_ir.serving")


class ServerState:
    """Models by name, limits, figures, and whether the server stops."""

    def __init__(self, models: Mapping[str, ServedModel], limits: ServerLimits, own_host: str | None = None) -> None:
        """own_host: the name to listen on, where it is one of the loopback; other names are then refused."""
        self.models, self.limits, self.own_host = models, limits, own_host
        self.budget = Budget(limits.max_pending)
        self.metrics = Metrics(models, self.budget)
        self.stopping = asyncio.Event()
        self.streamed: set[ClientSession] = set()  # sessions that have a stream
        self.work = LargeWork()
        self._turns = {n: asyncio.Lock() for n, m in models.items() if isinstance(m.server, Sessions)}

    def turn(self, model: ServedModel) -> AbstractAsyncContextManager[object]:
        """Within it a request to the model is read and queued; where it keeps state, one after the other."""
        return self._turns.get(model.name) or nullcontext()

    def model(self, name: str, version: str | None = None) -> ServedModel:
        """RequestError (404) for one that is not served."""
        found = self.models.get(name)
        if found is None:
            raise RequestError(f"there is no model {name[:80]!r}; there is {', '.join(self.models)}", 404)
        if version not in (None, "1"):
            raise RequestError(f"model {name} has version 1 alone", 404)
        return found


def status_of(error: Exception) -> int:
    """HTTP's number for an error."""
    if isinstance(error, RequestError):
        return error.status
    if isinstance(error, UnknownSessionError):
        return 404
    if isinstance(error, BusyError):
        return 429
    if isinstance(error, DeadlineError):
        return 504
    return 400 if isinstance(error, (CallError, ValueRangeError, PackageError)) else 500


def logged(error: Exception) -> int:
    """HTTP's number for an error; one that is a fault of the server goes to its log, with its place."""
    status = status_of(error)
    if status == 500:
        log.error("a request failed", exc_info=error)
    return status


def text_of(error: Exception) -> str:
    """The message of an error of the project; of others no more than that there was one."""
    if isinstance(error, LstmIrError):
        return str(error)
    return "out of memory" if isinstance(error, MemoryError) else "a fault of the server; its log says more"


def error_json(error: Exception) -> bytes:
    """As the protocol has errors."""
    return json.dumps({"error": text_of(error)}).encode()
