"""A client that goes while its request waits: connections tell it to those who would compute the request."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import HTTPConnection

_KEY = "departure"  # in the state of a connection's requests


def begin(app_state: dict[str, Any]) -> dict[str, Any]:
    """The state for requests of a new connection, with a future that is done once its client is gone."""
    return {**app_state, _KEY: asyncio.get_running_loop().create_future()}


def end(app_state: dict[str, Any]) -> None:
    """The client of this connection is gone."""
    gone = app_state.get(_KEY)
    if gone is not None and not gone.done():
        gone.set_result(None)


def of(request: HTTPConnection) -> asyncio.Future[None] | None:
    """What is done once the client is gone; None for servers that do not tell."""
    found: asyncio.Future[None] | None = request.scope.get("state", {}).get(_KEY)
    return found
