"""A device that disappears behind the server: 500 for the requests of its model alone, and answers once it is back."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from served import running

LOST = Path(__file__).parents[1] / "machine" / "lost_server.py"


def body(first: float) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [first, 3.0]}]}


def test_other_models_live_on_and_it_recovers(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with running(LOST, gone) as server, httpx.Client(base_url=server.url, timeout=60) as http:

        def asked(model: str, first: float) -> Any:
            return http.post(f"/v2/models/{model}/infer", json=body(first))

        def right(model: str, first: float) -> bool:
            answer = asked(model, first)
            found: bool = answer.status_code == 200 and answer.json()["outputs"][0]["data"] == [2 * first, 6.0]
            return found

        assert right("lost", 1.0)
        assert right("well", 2.0)
        gone.touch()
        with ThreadPoolExecutor(8) as pool:
            lost = [pool.submit(asked, "lost", float(k)) for k in range(12)]
            well = [pool.submit(right, "well", float(k)) for k in range(12)]
            for future in lost:
                answer = future.result(60)
                assert answer.status_code == 500
                assert "error" in answer.json()
                assert "Traceback" not in answer.text
            assert all(f.result(60) for f in well)
        assert http.get("/v2/health/live").status_code == 200
        assert http.get("/v2/models/well/ready").status_code == 200
        for path in ("/v2/health/ready", "/v2/models/lost/ready"):
            answer = http.get(path)
            assert (answer.status_code, answer.json()["error"]) == (503, "the device of lost was lost")
        gone.unlink()
        assert all(right("lost", float(k)) for k in range(3))
        assert http.get("/v2/health/ready").status_code == 200
        failed = [line for line in http.get("/metrics").text.splitlines() if "500" in line and "lost" in line]
        assert failed


def test_a_device_that_is_lost_for_good_is_loaded_again(tmp_path: Path) -> None:
    """Not ready until then; no request is needed for it, since none comes to a server that is not ready."""
    gone = tmp_path / "gone"
    with running(LOST, gone) as server, httpx.Client(base_url=server.url, timeout=60) as http:

        def asked() -> Any:
            return http.post("/v2/models/renewed/infer", json=body(1.0))

        assert asked().status_code == 200
        gone.touch()
        assert asked().status_code == 500
        time.sleep(1.5)  # a try to load it again fails
        assert http.get("/v2/health/ready").status_code == 503
        assert http.get("/v2/models/renewed/ready").status_code == 503
        assert asked().status_code == 500
        gone.unlink()
        end = time.monotonic() + 60
        while http.get("/v2/health/ready").status_code != 200:
            assert time.monotonic() < end, "it was not loaded again"
            time.sleep(0.05)
        assert asked().json()["outputs"][0]["data"] == [2.0, 6.0]
