"""A request of a sequence that fails leaves the sequence as it was: the next one goes on from there."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ir.errors import DeviceError
from lstm_ir.serving.inference import InferRequest, confirm_json
from lstm_ir.serving.limits import ServerLimits
from lstm_ir.serving.routes import application
from lstm_ir.serving.scheduler import Job
from lstm_ir.serving.served_model import ServedModel
from lstm_ir.serving.server_state import ServerState
from lstm_ir.serving.session import SessionStep
from lstm_ir.serving.sessions import renew
from lstm_ir.serving.sessions import step as queue_step

with warnings.catch_warnings():  # starlette 1.x warns of httpx, and takes it
    warnings.simplefilter("ignore")
    from starlette import testclient

pytestmark = pytest.mark.together
PATH = "/v2/models/sums"


@pytest.fixture(scope="module")
def exe() -> Iterator[Any]:
    """Running sums, as f32 and as f16; `inverse` is infinite where the sum is 0."""
    x, s = li.input("x", ("B", 2)), li.input("s", ("B", 2))
    total = s + x
    outputs = {"y": total, "half": li.convert(total, "f16"), "inverse": 1.0 / total, "s_n": total}
    graph = li.Graph("sums", [x, s], outputs)
    with li.compile(li.stateful(graph, {"s": "s_n"})) as made:
        yield made


@pytest.fixture
def sessions(exe: Any) -> Iterator[li.Sessions]:
    with li.Sessions(exe, max_sessions=3, max_waiting=4, max_delay=0.0, check=False) as made:
        yield made


@pytest.fixture
def http(sessions: li.Sessions) -> Iterator[Any]:
    app = application(ServerState({"sums": ServedModel("sums", sessions)}, ServerLimits()))
    with testclient.TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as made:
        yield made


def asked(value: float, *outputs: str, shape: tuple[int, ...] = (1, 2), **parameters: Any) -> dict[str, Any]:
    data = [value] * int(np.prod(shape))
    return {
        "inputs": [{"name": "x", "shape": list(shape), "datatype": "FP32", "data": data}],
        "outputs": [{"name": n} for n in outputs or ("y",)],
        "parameters": parameters,
    }


def step(http: Any, value: float, *outputs: str, **more: Any) -> Any:
    return http.post(f"{PATH}/infer", json=asked(value, *outputs, **{"sequence_id": "a", **more}))


def total(answer: Any) -> float:
    assert answer.status_code == 200, answer.text
    found: float = answer.json()["outputs"][0]["data"][0]
    return found


def halted(sessions: li.Sessions, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Events: a call has begun, and it may go on."""
    begun, go = threading.Event(), threading.Event()
    keeper: Any = sessions._keeper
    run = keeper.pure._run

    def waits(*arguments: Any) -> Any:
        begun.set()
        assert go.wait(60)
        return run(*arguments)

    monkeypatch.setattr(keeper.pure, "_run", waits)
    return begun, go


def broken(sessions: li.Sessions, patch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise DeviceError("the call failed")

    patch.setattr(sessions._keeper.pure, "_run", fails)


def test_formats_that_cannot_be_answered_are_refused_before_the_step(http: Any) -> None:
    assert total(step(http, 1.0, sequence_start=True)) == 1.0
    refused = step(http, 10.0, "half")
    assert (refused.status_code, "FP16 is given as binary data" in refused.text) == (400, True)
    assert total(step(http, 2.0)) == 3.0


def test_infinity_in_json_takes_no_step_and_its_retry_takes_one(http: Any) -> None:
    assert total(step(http, 1.0, sequence_start=True)) == 1.0
    refused = step(http, -1.0, "inverse")
    assert (refused.status_code, "NaN or infinity" in refused.text) == (400, True)
    again = step(http, -1.0, "inverse", binary_data_output=True)
    assert again.status_code == 200
    length = int(again.headers["inference-header-content-length"])
    assert np.isinf(np.frombuffer(again.content[length:], np.float32)).all()
    assert total(step(http, 5.0)) == 5.0, "the step was taken twice"
    start = step(http, 0.0, "inverse", sequence_id="new", sequence_start=True)
    assert start.status_code == 400
    assert step(http, 1.0, sequence_id="new").status_code == 404


def test_one_infinity_is_no_error_of_others_in_its_call(sessions: li.Sessions) -> None:
    """Nor are their calls made alone for it."""
    model, keeper = ServedModel("sums", sessions), sessions._keeper
    request = InferRequest("", {}, {"inverse": False}, {})
    jobs = []
    for name, value in (("zero", 0.0), ("one", 1.0)):
        inputs = model.server.rows.prepare({"x": np.full((1, 2), value, np.float32)})
        work = SessionStep(sessions.open(name)._kept, inputs, confirm=lambda found: confirm_json(request, found))
        jobs.append(Job(work, inputs.key, 1, owner=work.session))
    keeper.run(jobs)
    assert "NaN or infinity" in str(jobs[0].future.exception(0))
    np.testing.assert_array_equal(jobs[1].future.result(0)["y"], [[1.0, 1.0]])
    assert jobs[0].payload.session.held is None


def test_bytes_for_a_text_message_are_refused_before_the_step(http: Any) -> None:
    with http.websocket_connect(f"{PATH}/stream") as one:

        def said(message: dict[str, Any]) -> Any:
            one.send_text(json.dumps(message))
            return json.loads(one.receive_text())

        assert said(asked(1.0))["outputs"][0]["data"] == [1.0, 1.0]
        for bad in (asked(10.0, binary_data_output=True), asked(10.0, "half"), asked(-1.0, "inverse")):
            assert said(bad)["status"] == 400
        assert said(asked(2.0))["outputs"][0]["data"] == [3.0, 3.0]


def test_a_fault_in_a_stream_is_in_the_log(
    http: Any, sessions: li.Sessions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its client is told that the log says more; the stream goes on from where it was."""

    def fault(*_: Any) -> Any:
        raise ZeroDivisionError("in the middle")

    with http.websocket_connect(f"{PATH}/stream") as stream:
        stream.send_text(json.dumps(asked(1.0)))
        assert stream.receive_json()["outputs"][0]["data"][0] == 1
        with monkeypatch.context() as patch:
            patch.setattr(sessions._keeper.pure, "_run", fault)
            stream.send_text(json.dumps(asked(1.0)))
            assert stream.receive_json() == {"error": "a fault of the server; its log says more", "status": 500}
        assert "ZeroDivisionError: in the middle" in caplog.text
        stream.send_text(json.dumps(asked(1.0)))
        assert stream.receive_json()["outputs"][0]["data"][0] == 2


def test_a_start_that_is_refused_leaves_the_running_sequence(
    http: Any, sessions: li.Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert total(step(http, 1.0, sequence_start=True)) == 1.0
    assert step(http, 1.0, shape=(1, 3), sequence_start=True).status_code == 400
    assert total(step(http, 1.0)) == 2.0
    with monkeypatch.context() as patch:
        patch.setattr(sessions.scheduler, "_max_waiting", 0)
        assert step(http, 1.0, sequence_start=True).status_code == 429
        assert step(http, 1.0, sequence_id="b", sequence_start=True).status_code == 429
    assert len(sessions) == 1, "a start that found no room has left a session"
    with monkeypatch.context() as patch:
        broken(sessions, patch)
        assert step(http, 1.0, sequence_start=True).status_code == 500
        assert step(http, 1.0, sequence_id="b", sequence_start=True).status_code == 500
    assert step(http, 1.0, sequence_id="b").status_code == 404
    assert total(step(http, 1.0)) == 3.0
    assert total(step(http, 7.0, sequence_start=True)) == 7.0, "a start that succeeds begins anew"


def test_an_end_that_fails_leaves_the_sequence(
    http: Any, sessions: li.Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert total(step(http, 1.0, sequence_start=True)) == 1.0
    with monkeypatch.context() as patch:
        broken(sessions, patch)
        assert step(http, 1.0, sequence_end=True).status_code == 500
    assert step(http, -1.0, "inverse", sequence_end=True).status_code == 400
    assert total(step(http, 1.0, sequence_end=True)) == 2.0
    assert len(sessions) == 0
    assert step(http, 1.0).status_code == 404
    assert total(step(http, 4.0, sequence_start=True, sequence_end=True)) == 4.0
    assert len(sessions) == 0


def test_a_deadline_leaves_the_sequence(http: Any, sessions: li.Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of a start and of an end; a start that was too late leaves nothing open."""
    assert total(step(http, 1.0, sequence_start=True)) == 1.0
    with ThreadPoolExecutor(1) as threads, monkeypatch.context() as patch:
        begun, go = halted(sessions, patch)
        first = threads.submit(step, http, 0.0, sequence_id="other", sequence_start=True)
        assert begun.wait(60)
        assert step(http, 1.0, sequence_end=True, timeout=50_000).status_code == 504
        assert step(http, 1.0, sequence_start=True, timeout=50_000).status_code == 504
        assert step(http, 1.0, sequence_id="late", sequence_start=True, timeout=50_000).status_code == 504
        go.set()
        assert total(first.result(60)) == 0.0
    assert total(step(http, 1.0)) == 2.0
    assert step(http, 1.0, sequence_id="late").status_code == 404
    assert len(sessions) == 2


def test_what_waits_behind_an_end_or_a_failed_start(sessions: li.Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is refused, a start begins anew."""
    inputs = sessions.rows.prepare({"x": np.ones((1, 2), np.float32)})

    def queued(**flags: Any) -> Any:
        return queue_step(sessions, "a", inputs, None, **flags)

    begun, go = halted(sessions, monkeypatch)
    start = queued(begins=True)
    assert begun.wait(60)
    end, step_behind, start_behind, last = queued(ends=True), queued(), queued(begins=True), queued(ends=True)
    go.set()
    assert [f.result(60)["y"][0, 0] for f in (start, end, start_behind, last)] == [1.0, 2.0, 1.0, 2.0]
    assert "it has ended" in str(step_behind.exception(60))
    assert len(sessions) == 0

    def refuse(found: Any) -> None:
        raise ValueError("no")

    go.clear()
    start, behind = queued(begins=True, confirm=refuse), queued()
    go.set()
    assert str(start.exception(60)) == "no"
    assert "its start failed" in str(behind.exception(60)), "a sequence ran on that had not begun"


def test_sequences_outlive_the_executable_that_is_replaced(
    http: Any, exe: Any, sessions: li.Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert total(step(http, 1.0, sequence_start=True)) == 1.0
    broken(sessions, monkeypatch)
    assert step(http, 1.0).status_code == 500
    renew(sessions, exe)
    assert total(step(http, 1.0)) == 2.0
    x, s = li.input("x", ("B", 3)), li.input("s", ("B", 3))
    other = li.stateful(li.Graph("sums", [x, s], {"y": s + x, "s_n": s + x}), {"s": "s_n"})
    with li.compile(other) as made, pytest.raises(DeviceError, match="takes or gives something else"):
        renew(sessions, made)
