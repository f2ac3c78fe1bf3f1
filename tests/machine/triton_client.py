"""What tritonclient does with a server of encoder and stream: `python triton_client.py HOST:PORT IN.npz OUT.npz`.

It runs where tritonclient is installed and nothing of this project is.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def main(address: str, source: str, target: str) -> None:
    import tritonclient.http as http
    from tritonclient.utils import InferenceServerException

    arrays = dict(np.load(source, allow_pickle=False))
    client = http.InferenceServerClient(address, concurrency=4)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("encoder")
    assert client.get_server_metadata()["name"] == "lstm-ir"
    assert [i["name"] for i in client.get_model_metadata("encoder")["inputs"]] == ["x", "lengths"]

    def inputs(binary: bool, **given: Any) -> list[Any]:
        out = []
        for name, a in given.items():
            tensor = http.InferInput(name, list(a.shape), "FP32" if a.dtype.kind == "f" else "INT32")
            tensor.set_data_from_numpy(a, binary_data=binary)
            out.append(tensor)
        return out

    found: dict[str, Any] = {}
    for binary in (True, False):
        asked = [http.InferRequestedOutput(n, binary_data=binary) for n in ("y", "scores")]
        given = inputs(binary, x=arrays["x"], lengths=arrays["lengths"])
        answer = client.infer("encoder", given, outputs=asked, request_id="mine", timeout=5_000_000)
        assert answer.get_response()["id"] == "mine"
        found |= {f"{n}_{binary}": answer.as_numpy(n) for n in ("y", "scores")}
    waiting = [client.async_infer("encoder", inputs(True, x=arrays["x"])) for _ in range(8)]
    found["async"] = np.stack([w.get_result().as_numpy("y") for w in waiting])
    steps = len(arrays["x"])
    parts: dict[Any, list[Any]] = {9: [], "caller": []}
    for t in range(steps):
        for name, kept in parts.items():
            answer = client.infer(
                "stream", inputs(True, x=arrays["x"][t : t + 1]), sequence_id=name, sequence_start=t == 0,
                sequence_end=t == steps - 1,
            )  # fmt: skip
            kept.append(answer.as_numpy("y"))
    found |= {f"sequence_{name}": np.concatenate(kept) for name, kept in parts.items()}
    try:
        client.infer("stream", inputs(True, x=arrays["x"]), sequence_id=9)
    except InferenceServerException as e:
        found["error"] = np.array(e.message())
    np.savez(target, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
