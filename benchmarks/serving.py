"""Throughput and latency of the server, with batching and without, and of onnxruntime behind the same server.

    python benchmarks/serving.py --seconds 10 --connections 1,8,32

Needs `lstm-ir[serve]`, onnx, onnxruntime and the load tool wrk (Debian: `apt-get install wrk`). The load tool runs on
the same machine, so its share of the processors is in all figures. Each row of the table is a server of its own;
servers take turns, and `--rounds` tells how often each one comes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
ENGINES = ("lstm-ir", "onnxruntime")
THREADS = ("one fewer", "all")  # of a call; a processor is left to the server, as `lstm-ir serve` does, or not
BATCHES = {"batched": (64, 0.001), "alone": (1, 0.0)}  # rows of a call, seconds of delay


def weights(inputs: int, hidden: int) -> tuple[Array, Array]:
    """w_ih and w_hh, gates i, f, g, o."""
    rng = np.random.default_rng(0)
    return tuple(0.1 * rng.standard_normal((4 * hidden, n)).astype(np.float32) for n in (inputs, hidden))  # type: ignore[return-value]


def ours(inputs: int, hidden: int) -> Any:
    import lstm_ir as li

    x = li.input("x", ("T", "B", inputs))
    w_ih, w_hh = weights(inputs, hidden)
    _, h_n, _ = li.lstm(x, li.weight("w_ih", w_ih), li.weight("w_hh", w_hh))
    return li.compile(li.Graph("encoder", [x], {"h": h_n[0]})).entries["main"]


class Onnxruntime:
    """The same LSTM as an ONNX file."""

    def __init__(self, inputs: int, hidden: int, like: Any, threads: int) -> None:
        import onnx
        import onnxruntime
        from onnx import TensorProto, helper

        order = np.r_[0:hidden, 3 * hidden : 4 * hidden, hidden : 3 * hidden]  # i, o, f, c
        w, r = (a[order][None] for a in weights(inputs, hidden))
        node = helper.make_node("LSTM", ["x", "W", "R"], ["", "h1"], hidden_size=hidden)
        squeeze = helper.make_node("Squeeze", ["h1", "axes"], ["h"])
        graph = helper.make_graph(
            [node, squeeze], "encoder",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", "B", inputs])],
            [helper.make_tensor_value_info("h", TensorProto.FLOAT, ["B", hidden])],
            [onnx.numpy_helper.from_array(a, n) for n, a in (("W", w), ("R", r), ("axes", np.array([0])))],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        found = ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=found)
        self.entry = like.entry

    def __call__(self, arrays: Mapping[str, Any], /) -> dict[str, Array]:
        return {"h": self._session.run(["h"], dict(arrays))[0]}


def serve_engine(engine: str, batch: str, threads: str, inputs: int, hidden: int) -> None:
    import lstm_ir as li
    from lstm_ir.backends.run import runtime
    from lstm_ir.serving.batcher import Batcher
    from lstm_ir.serving.run import serve, threads_beside_a_server
    from lstm_ir.serving.served_model import ServedModel

    workers = threads_beside_a_server() if threads == "one fewer" else runtime.threads()
    li.set_threads(workers)
    model = ours(inputs, hidden)
    x = np.random.default_rng(1).standard_normal((7, 3, inputs)).astype(np.float32)
    if engine == "onnxruntime":
        other = Onnxruntime(inputs, hidden, model, workers)
        assert np.abs(other({"x": x})["h"] - model(x=x)["h"]).max() < 1e-5
        model = other
    rows, delay = BATCHES[batch]
    with Batcher(model, max_batch=rows, max_delay=delay) as batcher:
        serve({"m": ServedModel("m", batcher)}, port=0, listening=lambda url: print(url, flush=True))


@contextmanager
def running(*words: object) -> Iterator[str]:
    process = subprocess.Popen([sys.executable, __file__, *map(str, words)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def load(
    url: str, folder: Path, steps: int, inputs: int, connections: int, seconds: float
) -> tuple[float, float, float]:
    """Requests per second, and the median and 99th percentile of their milliseconds, by wrk."""
    x = np.random.default_rng(2).standard_normal((steps, 1, inputs)).astype(np.float32)
    item = {"name": "x", "shape": list(x.shape), "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
    text = json.dumps({"inputs": [item], "parameters": {"binary_data_output": True}}).encode()
    (folder / "body").write_bytes(text + x.tobytes())
    (folder / "post.lua").write_text(
        f'local f = io.open("{folder}/body", "rb"); wrk.method = "POST"; wrk.body = f:read("*a"); f:close()\n'
        f'wrk.headers["Inference-Header-Content-Length"] = "{len(text)}"\n'
    )
    words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--latency", "-s", folder / "post.lua"]
    done = subprocess.run([*map(str, words), f"{url}/v2/models/m/infer"], capture_output=True, text=True, check=True)
    for failed in ("Non-2xx", "Socket errors"):  # they are in no figure
        assert failed not in done.stdout, done.stdout
    rate = re.search(r"Requests/sec:\s*([\d.]+)", done.stdout)
    found = [re.search(rf"^\s*{p}%\s+([\d.]+)(us|ms|s)$", done.stdout, re.M) for p in (50, 99)]
    assert rate is not None, done.stdout
    assert None not in found, done.stdout
    unit = {"us": 1e-3, "ms": 1.0, "s": 1e3}
    half, most = (float(m[1]) * unit[m[2]] for m in found if m is not None)
    return float(rate[1]), half, most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--serve", nargs=3, metavar=("ENGINE", "BATCH", "THREADS"), help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", default="1,8,32")
    parser.add_argument("--size", default="50,40,256", help="steps, inputs, hidden")
    given = parser.parse_args()
    steps, inputs, hidden = map(int, given.size.split(","))
    if given.serve:
        serve_engine(*given.serve, inputs, hidden)
        return
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed: apt-get install wrk")
    what = f"T={steps} I={inputs} H={hidden}, one row a request"
    print(f"{os.cpu_count()} processors; {what}, medians of {given.rounds} rounds")
    heads = f"{'connections':>11} {'requests/s':>11} {'median ms':>10} {'99 % ms':>8}"
    print(f"{'engine':<12} {'calls':<8} {'threads':<10} {heads}")
    found: dict[tuple[str, str, str, int], list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(given.rounds):
            for words in itertools.product(ENGINES, BATCHES, THREADS):
                with running("--size", given.size, "--serve", *words) as url:
                    load(url, Path(folder), steps, inputs, 4, 1)
                    for connections in map(int, given.connections.split(",")):
                        figures = load(url, Path(folder), steps, inputs, connections, given.seconds)
                        found.setdefault((*words, connections), []).append(figures)
    for (engine, batch, threads, connections), rounds in found.items():
        rate, half, most = (median(column) for column in zip(*rounds, strict=True))
        print(f"{engine:<12} {batch:<8} {threads:<10} {connections:>11} {rate:>11.0f} {half:>10.2f} {most:>8.2f}")


if __name__ == "__main__":
    main()
