"""The server as its clients see it: the protocol in JSON and in bytes, sequences, streams, figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from served import Served, figures, served
from served_models import KEPT, WEIGHTS, C, H, I, encoder, stream
from torch_batches import torch_lstm
from websockets.sync import client as client_of

from lstm_ir.serving.session import to_bytes

pytestmark = pytest.mark.together
Array = np.ndarray[Any, Any]
HEADER = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("packages")
    with served(encoder(folder), f"speech={stream(folder)}", "--max-delay", 0.005, "--max-sessions", 8) as found:
        yield found


@pytest.fixture
def http(server: Served) -> Iterator[Any]:
    with httpx.Client(base_url=server.url, timeout=60) as made:
        yield made


def json_tensor(name: str, a: Array, *, nested: bool = False) -> dict[str, Any]:
    word = {"f": "FP32", "i": "INT32"}[a.dtype.kind]
    data = a.tolist() if nested else a.ravel().tolist()
    return {"name": name, "shape": list(a.shape), "datatype": word, "data": data}


def binary(arrays: dict[str, Array], **more: Any) -> tuple[bytes, bytes]:
    """The JSON of a request, and the bytes of its tensors."""
    items = [json_tensor(n, a) | {"parameters": {"binary_data_size": a.nbytes}} for n, a in arrays.items()]
    for item in items:
        del item["data"]
    return json.dumps({"inputs": items, **more}).encode(), b"".join(a.tobytes() for a in arrays.values())


def outputs(answer: dict[str, Any], tail: bytes = b"") -> dict[str, Array]:
    found, start = {}, 0
    for item in answer["outputs"]:
        assert item["datatype"] == "FP32"
        size = item.get("parameters", {}).get("binary_data_size")
        if size is None:
            found[item["name"]] = np.array(item["data"], np.float32).reshape(item["shape"])
        else:
            found[item["name"]] = np.frombuffer(tail[start : start + size], np.float32).reshape(item["shape"])
            start += size
    assert start == len(tail)
    return found


def close(found: dict[str, Array], want: dict[str, Array]) -> None:
    assert found.keys() == want.keys()
    for n in want:
        np.testing.assert_allclose(found[n], want[n], rtol=0, atol=2e-5)


def test_what_is_there(http: Any) -> None:
    found = http.get("/v2").json()
    assert (found["name"], found["extensions"]) == ("lstm-ir", ["binary_tensor_data", "sequence"])
    paths = ("health/live", "health/ready", "models/encoder/ready", "models/encoder/versions/1/ready")
    assert [http.get(f"/v2/{path}").status_code for path in paths] == [200] * 4
    assert http.get("/v2/models/encoder").json() == http.get("/v2/models/encoder/versions/1").json() == {
        "name": "encoder", "versions": ["1"], "platform": "lstm_ir",
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, -1, I]},
            {"name": "lengths", "datatype": "INT32", "shape": [-1]},
        ],
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [-1, -1, H]},
            {"name": "scores", "datatype": "FP32", "shape": [-1, C]},
        ],
    }  # fmt: skip


def test_json_flat_and_nested(http: Any, rng: np.random.Generator) -> None:
    x, lengths = rng.standard_normal((6, 3, I), np.float32), np.array([6, 2, 4], np.int32)
    want = torch_lstm(x, WEIGHTS, lengths)
    for nested in (False, True):
        body = {"id": "mine", "inputs": [json_tensor("x", x, nested=nested), json_tensor("lengths", lengths)]}
        answer = http.post("/v2/models/encoder/infer", json=body)
        assert answer.status_code == 200, answer.text
        data = answer.json()
        assert (data["model_name"], data["model_version"], data["id"]) == ("encoder", "1", "mine")
        close(outputs(data), want)


def test_bytes_in_and_out(http: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 2, I), np.float32)
    want = torch_lstm(x, WEIGHTS)
    asked = [{"name": "scores", "parameters": {"binary_data": True}}, {"name": "y"}]
    for more in ({"outputs": asked}, {"parameters": {"binary_data_output": True}}):
        text, tail = binary({"x": x}, **more)
        answer = http.post("/v2/models/encoder/infer", content=text + tail, headers={HEADER: str(len(text))})
        assert answer.status_code == 200, answer.text
        length = int(answer.headers[HEADER])
        close(outputs(json.loads(answer.content[:length]), answer.content[length:]), want)


def test_clients_share_calls_and_get_their_own(server: Served, http: Any, rng: np.random.Generator) -> None:
    xs = [rng.standard_normal((int(rng.integers(1, 9)), 1, I), np.float32) for _ in range(64)]

    def ask(x: Array) -> dict[str, Array]:
        text, tail = binary({"x": x}, parameters={"binary_data_output": True})
        with httpx.Client(base_url=server.url, timeout=60) as own:
            answer = own.post("/v2/models/encoder/infer", content=text + tail, headers={HEADER: str(len(text))})
        assert answer.status_code == 200, answer.text
        length = int(answer.headers[HEADER])
        return outputs(json.loads(answer.content[:length]), answer.content[length:])

    before = figures(http.get("/metrics").text)
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(ask, xs))
    after = figures(http.get("/metrics").text)
    for got, x in zip(found, xs, strict=True):
        close(got, torch_lstm(x, WEIGHTS))
    grown = {n: after[n] - before.get(n, 0) for n in after}
    assert grown['lstm_ir_requests_total{model="encoder",status="200"}'] == 64
    assert grown['lstm_ir_call_rows_total{model="encoder"}'] == 64
    assert grown['lstm_ir_calls_total{model="encoder"}'] < 64, "no call was shared"
    assert after["lstm_ir_pending_bytes"] == 0


def step(http: Any, sequence: Any, x: Array, **flags: bool) -> Any:
    body = {"inputs": [json_tensor("x", x)], "parameters": {"sequence_id": sequence, **flags}}
    return http.post("/v2/models/speech/infer", json=body)


def test_sequences(http: Any, rng: np.random.Generator) -> None:
    """Two at once, by number and by text; each begins at zero, and is unknown once it has ended."""
    xs = {7: rng.standard_normal((6, 1, I), np.float32), "caller": rng.standard_normal((6, 1, I), np.float32)}
    for _ in range(2):  # the second time in places that the first has left
        found: dict[Any, list[Array]] = {7: [], "caller": []}
        for t in range(0, 6, 2):
            for name, x in xs.items():
                answer = step(http, name, x[t : t + 2], sequence_start=t == 0, sequence_end=t == 4)
                assert answer.status_code == 200, answer.text
                assert answer.json()["parameters"] == {"sequence_id": name}
                found[name].append(outputs(answer.json())["y"])
        for name, x in xs.items():
            np.testing.assert_allclose(np.concatenate(found[name]), torch_lstm(x, WEIGHTS)["y"], rtol=0, atol=2e-5)
    answer = step(http, 7, xs[7])
    assert (answer.status_code, answer.json()) == (404, {"error": "session '7' is not open"})


def test_sequence_state_moves(http: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((6, 2, I), np.float32)
    want = torch_lstm(x, WEIGHTS)["y"][3:]  # first: where PyTorch is not here, no sequence is left open for other tests
    step(http, "from", x[:3], sequence_start=True)
    data = http.get("/v2/models/speech/sequences/from/state")
    assert data.headers["content-type"] == "application/octet-stream"
    put = http.put("/v2/models/speech/sequences/to/state", content=data.content)
    assert put.status_code == 204, put.text
    answer = step(http, "to", x[3:], sequence_end=True)
    np.testing.assert_allclose(outputs(answer.json())["y"], want, rtol=0, atol=2e-5)
    bad = http.put("/v2/models/speech/sequences/from/state", content=data.content[:-4])
    assert (bad.status_code, "state of sequence from" in bad.json()["error"]) == (400, True)
    answer = step(http, "from", x[3:], sequence_end=True)  # as it was
    np.testing.assert_allclose(outputs(answer.json())["y"], want, rtol=0, atol=2e-5)
    assert http.put("/v2/models/speech/sequences/none/state", content=b"x" * 40).status_code == 400
    assert http.get("/v2/models/speech/sequences/none/state").status_code == 404


@pytest.mark.parametrize("name", ["a/b", "a/state", "/", "état", "a b"])
def test_state_of_names_that_are_escaped(http: Any, name: str) -> None:
    path, x = f"/v2/models/speech/sequences/{quote(name, safe='')}/state", np.ones((1, 1, I), np.float32)
    assert step(http, name, x, sequence_start=True).status_code == 200
    data = http.get(path)
    assert data.status_code == 200, data.text
    assert http.put(path, content=data.content).status_code == 204
    assert step(http, name, x, sequence_end=True).status_code == 200
    assert http.get(path).status_code == 404


def test_state_that_is_refused(server: Served, http: Any) -> None:
    """Names that are no text, which would all be one name, and a state without rows, which no step would fit."""
    for name in ("%ff", "%fe", "a%c3"):
        answer = http.put(f"/v2/models/speech/sequences/{name}/state", content=b"")
        assert (answer.status_code, answer.json()) == (400, {"error": "the path has escapes that are no UTF-8"})
    empty = to_bytes({n: np.zeros((1, 0, H), np.float32) for n in KEPT})
    answer = http.put("/v2/models/speech/sequences/empty/state", content=empty)
    assert (answer.status_code, "it has no rows" in answer.text) == (400, True)
    assert server.figures()['lstm_ir_sessions{model="speech"}'] == 0


def test_streams(server: Served, rng: np.random.Generator) -> None:
    """Text and bytes; an error does not end a stream, and its end ends the sequence."""
    x = rng.standard_normal((6, 1, I), np.float32)
    url = f"ws://127.0.0.1:{server.port}/v2/models/speech/stream"
    with client_of.connect(f"{url}?sequence_id=mine") as one, client_of.connect(url) as other:
        parts = []
        for t in range(0, 6, 2):
            one.send(json.dumps({"inputs": [json_tensor("x", x[t : t + 2])]}))
            answer = json.loads(one.recv(timeout=60))
            assert answer["parameters"] == {"sequence_id": "mine"}
            parts.append(outputs(answer)["y"])
            one.send(json.dumps({"inputs": []}))
            error = json.loads(one.recv(timeout=60))
            assert (error["status"], "missing input x" in error["error"]) == (400, True)
            late = {"inputs": [json_tensor("x", x[t : t + 2])], "parameters": {"timeout": 1}}
            one.send(json.dumps(late))  # its step is not taken, and the stream goes on
            error = json.loads(one.recv(timeout=60))
            assert (error["status"], "its call had not begun" in error["error"]) == (504, True)
        want = torch_lstm(x, WEIGHTS)["y"]
        np.testing.assert_allclose(np.concatenate(parts), want, rtol=0, atol=2e-5)
        for t in range(0, 6, 3):
            text, tail = binary({"x": x[t : t + 3]})
            other.send(len(text).to_bytes(4, "little") + text + tail)
            data = other.recv(timeout=60)
            assert isinstance(data, bytes)
            length = int.from_bytes(data[:4], "little")
            got = outputs(json.loads(data[4 : 4 + length]), data[4 + length :])["y"]
            np.testing.assert_allclose(got, want[t : t + 3], rtol=0, atol=2e-5)
        with pytest.raises(Exception, match="HTTP 409"), client_of.connect(f"{url}?sequence_id=mine"):
            pass
        with pytest.raises(Exception, match="HTTP 400"), client_of.connect(f"{url}?sequence_id=%ff"):
            pass
        with pytest.raises(Exception, match="HTTP 409"), client_of.connect(f"{url}?sequence_id=mine&resume=true"):
            pass
    with pytest.raises(Exception, match="HTTP 404"), client_of.connect(f"{url}?sequence_id=mine&resume=true"):
        pass


def test_a_stream_without_a_name_is_out_of_reach(server: Served, http: Any, rng: np.random.Generator) -> None:
    """Sequences of other clients have the numbers that come first: each client gets its own results."""
    x, other = rng.standard_normal((6, 1, I), np.float32), rng.standard_normal((6, 1, I), np.float32)
    found: dict[Any, list[Array]] = {n: [] for n in ("stream", 1, 2, 3)}
    with client_of.connect(f"ws://127.0.0.1:{server.port}/v2/models/speech/stream") as made:
        for t in range(0, 6, 2):
            made.send(json.dumps({"inputs": [json_tensor("x", x[t : t + 2])]}))
            answer = json.loads(made.recv(timeout=60))
            assert "parameters" not in answer
            found["stream"].append(outputs(answer)["y"])
            for n in (1, 2, 3):
                answer = step(http, n, other[t : t + 2], sequence_start=t == 0, sequence_end=t == 4)
                assert answer.status_code == 200, answer.text
                found[n].append(outputs(answer.json())["y"])
    for name, parts in found.items():
        want = torch_lstm(x if name == "stream" else other, WEIGHTS)["y"]
        np.testing.assert_allclose(np.concatenate(parts), want, rtol=0, atol=2e-5, err_msg=str(name))


def test_as_many_sequences_as_may(http: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((1, 1, I), np.float32)
    answers = [step(http, f"s{i}", x, sequence_start=True) for i in range(12)]
    assert [a.status_code for a in answers] == [200] * 8 + [429] * 4
    assert answers[-1].headers["retry-after"] == "1"
    assert answers[-1].json() == {"error": "8 sessions are open, max_sessions; no more are taken now"}
    assert [step(http, f"s{i}", x, sequence_end=True).status_code for i in range(8)] == [200] * 8
    assert figures(http.get("/metrics").text)['lstm_ir_sessions{model="speech"}'] == 0
