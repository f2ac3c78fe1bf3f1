"""What a server answers to requests that follow no rule, and that others do not notice it."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from conftest import Golden
from served import Served, served, slow_server, whole
from served_models import WEIGHTS, I, encoder, stream
from torch_batches import torch_lstm
from websockets import exceptions
from websockets.sync import client as client_of
from websockets.typing import Origin

pytestmark = pytest.mark.together
Array = np.ndarray[Any, Any]
HEAD = b"POST /v2/models/encoder/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
GOOD = {"name": "x", "shape": [2, 1, I], "datatype": "FP32", "data": [0.5] * (2 * I)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("packages")
    encoder(made)
    stream(made)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Served]:
    words = ("--max-body", 200_000, "--max-json", 100_000, "--max-message", 50_000, "--header-timeout", 1.0)
    timeouts = ("--max-steps", 3000, "--body-timeout", 1.0, "--send-timeout", 1.0, "--max-connections", 40)
    with served(folder / "encoder.lirpkg", folder / "stream.lirpkg", *words, *timeouts) as found:
        yield found


@pytest.fixture(autouse=True)
def _others_are_unaffected(server: Served) -> Iterator[None]:
    """After each test a well-behaved client gets its result, from a process that has not grown by much."""
    before = memory(server)
    yield
    x = np.full((2, 1, I), 0.5, np.float32)
    answer = httpx.post(f"{server.url}/v2/models/encoder/infer", json={"inputs": [GOOD]}, timeout=60)
    assert answer.status_code == 200, answer.text
    found = {o["name"]: np.array(o["data"], np.float32).reshape(o["shape"]) for o in answer.json()["outputs"]}
    want = torch_lstm(x, WEIGHTS)
    for n in want:
        np.testing.assert_allclose(found[n], want[n], rtol=0, atol=2e-5)
    assert memory(server) - before < 200 << 20


def memory(server: Served) -> int:
    """Bytes that the process has."""
    pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def ask(server: Served, body: Any, path: str = "encoder", **headers: str) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(f"{server.url}/v2/models/{path}/infer", content=data, headers=headers, timeout=60)


def tensor(**changes: Any) -> dict[str, Any]:
    made = {**GOOD, **changes}
    return {"inputs": [{k: v for k, v in made.items() if v is not None}]}


TENSORS: dict[str, tuple[dict[str, Any], str]] = {
    "name": (tensor(name="z"), "there is no input 'z'; the inputs are (x: f32[T,B,5], lengths: i32[B])"),
    "no_name": (tensor(name=None), "there is no input 'None'"),
    "datatype": (tensor(datatype="FP64"), "input x: datatype is 'FP64'; expected FP32 for f32[T,B,5]"),
    "unknown_datatype": (tensor(datatype="BYTES"), "input x: datatype is 'BYTES'; expected FP32"),
    "rank": (tensor(shape=[2 * I]), "x: expected f32[T,B,5], got shape [10]: rank 3, got rank 1"),
    "size": (tensor(shape=[1, 2, I - 1], data=[0.5] * 8), "axis 2 is 5, got 4"),
    "negative": (tensor(shape=[-2, -1, I]), "input x: shape is [-2, -1, 5]; expected a list of sizes of 1 or more"),
    "zero": (tensor(shape=[10**15, 0, I], data=[]), "expected a list of sizes of 1 or more"),
    "float_size": (tensor(shape=[2.0, 1, I]), "expected a list of sizes"),
    "many_axes": (tensor(shape=[1] * 40), "expected a list of sizes"),
    "huge": (tensor(shape=[2**40, 2**40, I]), "10 numbers; shape"),
    "astronomic": (tensor(shape=[10**1999] * 3), "input x: shape has a size above 2^63 - 1"),
    "astronomic_binary": (
        tensor(shape=[10**1999] * 3, data=None, parameters={"binary_data_size": 0}),
        "input x: shape has a size above 2^63 - 1",
    ),
    "few": (tensor(data=[0.5]), "input x: 1 numbers; shape [2, 1, 5] has 10"),
    "no_data": (tensor(data=None), "input x: data is no list"),
    "text": (tensor(data=["a" * 1000] + ["b"] * 9), "input x: data of FP32 has str"),
    "booleans": (tensor(data=[True] * 10), "input x: data of FP32 has bool"),
    "null": (tensor(data=[None] * 10), "input x: data of FP32 has NoneType"),
    "objects": (tensor(data=[{}] * 10), "input x: data of FP32 has dict"),
    "ragged": (tensor(data=[[[0.5] * 5], [[0.5] * 4]]), "input x: data is not nested as shape [2, 1, 5]"),
    "half_nested": (tensor(data=[[0.5] * 5, 0.5]), "data is not nested as shape"),
    "deep": (tensor(data=[[[[0.5] * 5]], [[[0.5] * 5]]]), "input x: data is not nested as shape"),
    "overflow": (tensor(data=[1e300] * 10), "input x: a number does not fit FP32"),
    "long_integer": (tensor(data=[10**400] * 10), "input x: a number does not fit FP32"),
    "twice": ({"inputs": [GOOD, GOOD]}, "input x is given twice"),
    "no_inputs": ({}, "inputs is no list of objects"),
    "inputs_object": ({"inputs": {}}, "inputs is no list of objects"),
    "missing": ({"inputs": []}, "missing input x"),
    "output": ({"inputs": [GOOD], "outputs": [{"name": "q"}]}, "there is no output 'q'; there is y, scores"),
    "binary_flag": (
        {"inputs": [GOOD], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]},
        "binary_data is 1; expected true",
    ),
    "parameters": ({"inputs": [GOOD], "parameters": []}, "parameters of the request are no object"),
    "id": ({"inputs": [GOOD], "id": 3}, "id is no text"),
    "sequence": ({"inputs": [GOOD], "parameters": {"sequence_id": 4}}, "model encoder keeps no state"),
    "shared_memory": (tensor(parameters={"shared_memory_region": "r"}), "shared memory is not served"),
    "long_binary": (tensor(parameters={"binary_data_size": 41}), "binary_data_size is 41; 0 bytes follow"),
    "negative_binary": (tensor(parameters={"binary_data_size": -1}), "binary_data_size is -1"),
}  # fmt: skip


@pytest.mark.parametrize("case", TENSORS)
def test_tensors_that_do_not_fit(server: Served, case: str) -> None:
    body, message = TENSORS[case]
    answer = ask(server, body)
    assert answer.status_code == 400, answer.text
    assert message in answer.json()["error"]


def test_messages_word_for_word(server: Served, golden: Golden) -> None:
    lines = [f"{case}: {ask(server, body).json()['error']}" for case, (body, _) in TENSORS.items()]
    golden("serving/requests.txt", "\n".join(lines))


def test_lengths_beyond_the_steps_are_refused(server: Served) -> None:
    for value in (3, -1):
        lengths = {"name": "lengths", "shape": [1], "datatype": "INT32", "data": [value]}
        answer = ask(server, {"inputs": [GOOD, lengths]})
        assert (answer.status_code, "lengths" in answer.json()["error"]) == (400, True)
    lengths = {"name": "lengths", "shape": [1], "datatype": "INT32", "data": [2**40]}
    assert "a number does not fit INT32" in ask(server, {"inputs": [GOOD, lengths]}).text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the JSON: "),
        (b"{", "the JSON: "),
        (b"[]", "the JSON: not an object"),
        (b"\xff\xfe{}", "the JSON: "),
        (b'{"inputs": [], "inputs": []}', "a name appears twice"),
        (b'{"inputs": ' + b"[" * 40_000 + b"]" * 40_000 + b"}", "the JSON: "),
        (b'{"a": ' + b'{"a": ' * 9_000 + b"1" + b"}" * 9_000 + b"}", "the JSON: "),
        (b'{"id": ' + b"9" * 50_000 + b"}", "the JSON: "),
        (json.dumps(tensor(data=[float("nan")] * 10)).encode(), "a number does not fit FP32"),
        (json.dumps(tensor()).encode().replace(b"0.5", b"1e999"), "a number does not fit FP32"),
    ],
    ids=["empty", "cut", "list", "utf16", "twice", "brackets", "braces", "digits", "nan", "exponent"],
)
def test_json_that_is_none_or_a_bomb(server: Served, data: bytes, message: str) -> None:
    answer = ask(server, data)
    assert answer.status_code == 400
    assert message in answer.json()["error"]
    assert len(answer.content) < 1000


def test_too_long_bodies(server: Served) -> None:
    assert ask(server, b" " * 100_001).status_code == 413
    assert ask(server, b" " * 200_001).status_code == 413
    with server.connect() as s:  # announced alone
        s.sendall(b"POST /v2/models/encoder/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999999\r\n\r\n")
        assert b" 413 " in s.recv(65536).partition(b"\r\n")[0]
    with server.connect() as s:  # never announced
        s.sendall(b"POST /v2/models/encoder/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        s.sendall((b"10000\r\n" + b" " * 65536 + b"\r\n") * 4)
        assert b" 413 " in s.recv(65536).partition(b"\r\n")[0]
    put = httpx.put(f"{server.url}/v2/models/stream/sequences/1/state", content=b" " * 200_001, timeout=60)
    assert put.status_code == 413


@pytest.mark.parametrize("size", [0, 39, 41, 10**17])
def test_wrong_sizes_of_bytes(server: Served, size: int) -> None:
    text = json.dumps(tensor(data=None, parameters={"binary_data_size": size})).encode()
    answer = ask(server, text + bytes(40), **{"Inference-Header-Content-Length": str(len(text))})
    assert answer.status_code == 400, answer.text
    assert "bytes" in answer.json()["error"]


@pytest.mark.parametrize("length", ["-1", "1e3", "99999", "9" * 400, "x", ""])
def test_wrong_lengths_of_the_json(server: Served, length: str) -> None:
    answer = ask(server, {"inputs": [GOOD]}, **{"Inference-Header-Content-Length": length})
    assert answer.status_code == 400, answer.text


def test_bytes_behind_the_last_tensor(server: Served) -> None:
    text = json.dumps(tensor()).encode()
    answer = ask(server, text + b"more", **{"Inference-Header-Content-Length": str(len(text))})
    assert answer.json() == {"error": "4 bytes behind the last binary tensor"}


def test_answers_that_json_has_not(server: Served) -> None:
    nan = np.full((2, 1, I), np.nan, np.float32).tobytes()
    text = json.dumps(tensor(shape=[2, 1, I], data=None, parameters={"binary_data_size": 40})).encode()
    answer = ask(server, text + nan, **{"Inference-Header-Content-Length": str(len(text))})
    assert (answer.status_code, "NaN or infinity" in answer.text) == (400, True)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404), ("GET", "/v2/models/none", 404), ("GET", "/v2/models/encoder/versions/2", 404),
        ("GET", "/v2/models/encoder/infer", 405), ("DELETE", "/v2/models/encoder", 405),
        ("GET", "/v2/models/encoder/sequences/1/state", 400), ("GET", "/v2/models/..%2f..%2fetc", 404),
        ("PUT", "/v2/models/stream/sequences/" + "x" * 300 + "/state", 400),
    ],
)  # fmt: skip
def test_paths(server: Served, method: str, path: str, status: int) -> None:
    answer = httpx.request(method, f"{server.url}{path}", timeout=60)
    assert answer.status_code == status, answer.text
    assert "error" in answer.json()


def test_web_pages_are_refused(server: Served) -> None:
    answer = ask(server, {"inputs": [GOOD]}, Origin="http://elsewhere.example")
    assert (answer.status_code, "Origin" in answer.text) == (403, True)
    with (
        pytest.raises(Exception, match="HTTP 403"),
        client_of.connect(
            f"ws://127.0.0.1:{server.port}/v2/models/stream/stream", origin=Origin("http://elsewhere.example")
        ),
    ):
        pass


def test_other_names_than_those_of_this_machine_are_refused(server: Served) -> None:
    """A page whose name leads to 127.0.0.1 sends no Origin to what is its own server."""
    for name in (
        "page.example",
        f"page.example:{server.port}",
        "localhost.example",
        "127.0.0.1.example",
        "10.0.0.1",
        "",
    ):
        answer = ask(server, {"inputs": [GOOD]}, Host=name)
        assert (answer.status_code, "header Host" in answer.text) == (403, True), name
        assert httpx.get(f"{server.url}/metrics", headers={"Host": name}, timeout=60).status_code == 403
    for name in ("localhost", f"LOCALHOST:{server.port}", "127.0.0.1", f"127.0.0.2:{server.port}", "[::1]", "[::1]:80"):
        assert ask(server, {"inputs": [GOOD]}, Host=name).status_code == 200, name
    upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
    with server.connect() as s:
        s.sendall(
            b"GET /v2/models/stream/stream HTTP/1.1\r\nHost: page.example\r\n" + upgrade + b"A" * 22 + b"==\r\n\r\n"
        )
        assert b" 403 " in s.recv(65536).partition(b"\r\n")[0]


def test_compressed_bodies_are_refused(server: Served) -> None:
    assert ask(server, b"\x1f\x8b", **{"Content-Encoding": "gzip"}).status_code == 415


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 100_000, b"GET /" + b"a" * 200_000, b"POST / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000, b"\r\n\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
    ],
    ids=["zeros", "target", "headers", "blank", "two_lengths", "tls"],
)  # fmt: skip
def test_what_is_no_http(server: Served, data: bytes) -> None:
    start = time.monotonic()
    try:
        found = server.exchange(data)
    except (ConnectionResetError, BrokenPipeError):
        found = b""
    assert found == b"" or b" 400 " in found.partition(b"\r\n")[0]
    assert time.monotonic() - start < 30


def test_slow_heads_and_bodies_are_ended(server: Served) -> None:
    """A byte now and then does not keep a connection."""
    head = b"POST /v2/models/encoder/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n"
    for beginning, status in ((b"", None), (head[:70], None), (head + b"{", b" 408 ")):
        with server.connect() as s:
            s.sendall(beginning)
            found = _dripping(s)
            assert found == b"" if status is None else status in found.partition(b"\r\n")[0]


def _dripping(s: socket.socket) -> bytes:
    """What comes back while a byte is sent each tenth of a second."""
    s.settimeout(0.1)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            return s.recv(65536)
        except TimeoutError:
            try:
                s.sendall(b"n")
            except (BrokenPipeError, ConnectionResetError):
                return b""
        except ConnectionResetError:
            return b""
    raise AssertionError("the connection lasted")


def test_clients_that_read_nothing_are_ended(server: Served) -> None:
    """Its answers fill the buffers of both sides, then the server gives up on it."""
    body = json.dumps(tensor(shape=[1500, 1, I], data=[0.5] * (1500 * I))).encode()
    request = HEAD % len(body) + body
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", server.port))
    s.settimeout(5)
    end = time.monotonic() + 60
    with s:
        try:
            while time.monotonic() < end:
                s.sendall(request)
        except (BrokenPipeError, ConnectionResetError):
            return
        except TimeoutError:
            pass
        while time.monotonic() < end:  # it reads no more requests, and closes
            time.sleep(0.2)
            try:
                s.send(b"x")
            except (BrokenPipeError, ConnectionResetError):
                return
            except TimeoutError:
                pass
    raise AssertionError("the connection lasted")


def test_more_steps_or_rows_than_one_request_may_have(server: Served) -> None:
    for shape, what in (((3001, 1, I), "3001 steps; at most 3000"), ((1, 65, I), "65 rows; at most 64")):
        size = 4 * int(np.prod(shape))
        head = json.dumps(tensor(shape=shape, data=None, parameters={"binary_data_size": size})).encode()
        answer = ask(server, head + bytes(size), **{"Inference-Header-Content-Length": str(len(head))})
        assert (answer.status_code, what in answer.text) == (413, True), answer.text


def test_half_closed_connections_get_their_answer(server: Served) -> None:
    body = json.dumps({"inputs": [GOOD]}).encode()
    request = HEAD % len(body) + body
    with server.connect() as s:
        s.sendall(request)
        s.shutdown(socket.SHUT_WR)
        assert b" 200 " in whole(s).partition(b"\r\n")[0]
    with server.connect() as s:  # in the middle of a body
        s.sendall(request[:-10])
        s.shutdown(socket.SHUT_WR)
        assert b" 200 " not in whole(s)


def test_clients_that_go_in_the_middle(server: Served) -> None:
    body = json.dumps({"inputs": [GOOD]}).encode()
    request = HEAD % len(body) + body
    for cut in (10, len(request) - 30, len(request)):
        for _ in range(10):
            s = server.connect()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close is a reset
            s.sendall(request[:cut])
            s.close()


def test_streams_that_die_close_their_sequence(server: Served) -> None:
    url = f"ws://127.0.0.1:{server.port}/v2/models/stream/stream"
    text = json.dumps({"inputs": [GOOD]})
    for i in range(5):
        with suppress(exceptions.ConnectionClosed), client_of.connect(f"{url}?sequence_id=dying{i}") as made:
            made.send(text)
            made.socket.shutdown(socket.SHUT_RDWR)
    end = time.monotonic() + 60
    while 'lstm_ir_sessions{model="stream"} 0.0' not in httpx.get(f"{server.url}/metrics", timeout=60).text:
        assert time.monotonic() < end, "a sequence outlived its stream"
        time.sleep(0.05)


def test_messages_that_follow_no_rule(server: Served) -> None:
    url = f"ws://127.0.0.1:{server.port}/v2/models/stream/stream"
    bad: list[Any] = [
        "",
        "{",
        "[" * 20_000,
        b"",
        b"\1",
        b"\xff\xff\xff\xff{}",
        b"\2\0\0\0{}more",
        json.dumps({"inputs": 3}),
    ]
    with client_of.connect(url) as s:
        for message in bad:
            s.send(message)
            found = json.loads(s.recv(timeout=60))
            assert (found["status"], "error" in found) == (400, True)
        s.send(json.dumps({"inputs": [GOOD]}))
        assert "outputs" in json.loads(s.recv(timeout=60))
        s.send(" " * 60_000)
        with pytest.raises(Exception, match="1009"):
            s.recv(timeout=60)


def test_as_many_connections_as_may(server: Served) -> None:
    opened = [server.connect() for _ in range(40)]
    try:
        time.sleep(0.2)
        with server.connect() as s:
            assert b" 503 " in whole(s).partition(b"\r\n")[0]
    finally:
        for s in opened:
            s.close()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if httpx.get(f"{server.url}/v2/health/ready", timeout=60).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise AssertionError("it did not recover")


def test_a_slow_call_holds_up_nobody_but_its_queue(tmp_path: Path) -> None:
    with slow_server(tmp_path / "gate") as other, other.connect() as s:
        body = json.dumps(tensor(shape=[1, 2], data=[-1.0, 0.0])).encode()
        s.sendall(HEAD.replace(b"encoder", b"slow") % len(body) + body)
        end = time.monotonic() + 60
        while 'lstm_ir_calls_total{model="slow"} 1.0' not in httpx.get(f"{other.url}/metrics", timeout=60).text:
            assert time.monotonic() < end
        assert httpx.get(f"{other.url}/v2/models/slow", timeout=60).status_code == 200
        (tmp_path / "gate").touch()
        assert b" 200 " in s.recv(65536).partition(b"\r\n")[0]
