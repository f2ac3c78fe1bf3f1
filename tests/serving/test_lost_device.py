"""A device that disappears behind the server: 500 for the requests of its model alone, and answers once it is back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from served import running

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")
httpx = pytest.importorskip("httpx")
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
        gone.unlink()
        assert all(right("lost", float(k)) for k in range(3))
        failed = [line for line in http.get("/metrics").text.splitlines() if "500" in line and "lost" in line]
        assert failed
