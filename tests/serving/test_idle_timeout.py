"""Streams and sequences that ask for nothing for `--idle-timeout` seconds are closed, through HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from raw_stream import PING, PONG, TEXT, RawStream
from served import Served, served, until
from served_models import STEP, X, stream
from websockets import exceptions
from websockets.sync import client as client_of

pytestmark = pytest.mark.together
IDLE = 1.5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    package = stream(tmp_path_factory.mktemp("packages"))
    with served(package, "--idle-timeout", IDLE, "--max-sessions", 2) as found:
        yield found


@pytest.fixture
def http(server: Served) -> Iterator[Any]:
    with httpx.Client(base_url=f"{server.url}/v2/models/stream", timeout=60) as made:
        yield made


def step(http: Any, sequence: str, **flags: bool) -> Any:
    return http.post("/infer", json={"inputs": [X], "parameters": {"sequence_id": sequence, **flags}})


def figure(server: Served, name: str) -> float:
    return server.figures()[f'{name}{{model="stream"}}']


def closed(server: Served) -> None:
    """Wait until no sequence is open."""
    until(lambda: not figure(server, "lstm_ir_sessions"), "an idle sequence is open")


def test_an_idle_stream_is_closed_and_its_sequence_goes(server: Served) -> None:
    begun = time.monotonic()
    with (
        client_of.connect(f"ws://127.0.0.1:{server.port}/v2/models/stream/stream") as idle,
        pytest.raises(exceptions.ConnectionClosed) as caught,
    ):
        idle.recv(timeout=60)
    said = caught.value.rcvd
    assert said is not None
    assert (said.code, said.reason) == (1001, "idle for too long")
    assert time.monotonic() - begun >= IDLE
    closed(server)


def test_pings_are_no_messages(server: Served) -> None:
    with RawStream(server, "stream") as client:
        client.socket.settimeout(0.2)
        end, code = time.monotonic() + 30, None
        while code is None and time.monotonic() < end:
            client.send(PING, b"here")
            kind, data = client.read()
            code = None if kind == PONG else int.from_bytes(data[:2], "big")
            time.sleep(0.1)
        assert code == 1001
    closed(server)


def test_a_stream_with_messages_lives_longer(server: Served) -> None:
    begun = time.monotonic()
    with RawStream(server, "stream") as client:
        while time.monotonic() < begun + 2 * IDLE:
            client.send(TEXT, STEP)
            kind, data = client.read()
            assert (kind, "outputs" in json.loads(data)) == (TEXT, True)
            time.sleep(IDLE / 4)
    closed(server)


def test_an_idle_sequence_is_closed_and_its_room_is_others(server: Served, http: Any) -> None:
    """What asks for it then is a 404 that says so; a state that is put opens it again."""
    evicted = figure(server, "lstm_ir_sessions_evicted_total")
    for name in ("one", "two"):
        assert step(http, name, sequence_start=True).status_code == 200
    assert step(http, "three", sequence_start=True).status_code == 429
    held = http.get("/sequences/one/state").content
    first = step(http, "one").json()["outputs"]
    closed(server)
    assert figure(server, "lstm_ir_sessions_evicted_total") == evicted + 2
    for answer in (step(http, "one"), step(http, "two", sequence_end=True), http.get("/sequences/one/state")):
        assert (answer.status_code, "is not open" in answer.json()["error"]) == (404, True)
    assert http.put("/sequences/one/state", content=held).status_code == 204
    assert step(http, "one").json()["outputs"] == first, "it goes on from the state that was put"
    assert step(http, "three", sequence_start=True).status_code == 200
    for name in ("one", "three"):
        assert step(http, name, sequence_end=True).status_code == 200


def test_whatever_asks_for_a_sequence_keeps_it(server: Served, http: Any) -> None:
    """A step, a state that is read, and one that is put."""
    assert step(http, "kept", sequence_start=True).status_code == 200
    begun = time.monotonic()
    held = http.get("/sequences/kept/state").content
    while time.monotonic() < begun + 2 * IDLE:
        assert http.get("/sequences/kept/state").status_code == 200
        time.sleep(IDLE / 4)
        assert http.put("/sequences/kept/state", content=held).status_code == 204
        time.sleep(IDLE / 4)
        assert step(http, "kept").status_code == 200
    assert step(http, "kept", sequence_end=True).status_code == 200
    closed(server)
