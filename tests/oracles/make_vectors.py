"""Pack the recorded results of foreign ops for the demo's table: lstm_ir/data/vectors.npz.

One float32 case per op: the graph's text, its inputs, and what the origin computed. Made from
tests/golden, which holds many more; the tests compare with all of them.

Run: python tests/machine/child.py tests/oracles/make_vectors.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import cudnn_cases
import mps_cases
import numpy as np
import tf_cases
from paths import ROOT

import lstm_ir as li

TARGET = ROOT / "lstm_ir" / "data" / "vectors.npz"
Case = tuple[str, str, li.Graph, Mapping[str, Any], Mapping[str, Any]]
MPS = "Apple's documented equations in float64; not checked on Apple hardware"
RELU = "PyTorch's RNN (relu) in float64; not checked on Apple hardware"
PARAMETERS = "PyTorch 2.13.0's parameters, recorded; never compared with real cuDNN"
CUDNN = "PyTorch 2.13.0 in float64, recorded; never compared with real cuDNN"


def cases() -> Iterator[Case]:
    """Op, oracle, graph, inputs and results of every case."""
    for t in tf_cases.recorded():
        if all(a.dtype != np.float16 for a in t.inputs.values()):
            yield t.op, "TensorFlow 2.21.0, recorded", t.graph(), t.inputs, t.results
    for m in mps_cases.recorded():
        yield m.op, MPS, m.graph(), m.inputs, m.results
    yield single_gate()
    for c in cudnn_cases.recorded():
        a = c.operands(np.float32)
        forward = c.forward(np.float32)
        yield "tf.CudnnRNNV3", CUDNN, forward, a, c.results
        if c.attrs["is_training"]:
            b = c.back(a, li.interpret(forward, a))
            yield "tf.CudnnRNNBackpropV3", CUDNN, c.backward(b), b, c.grads
    yield from parameters()


def parameters() -> Iterator[Case]:
    """The ops of the flat vector, by the parameters of PyTorch's LSTM: two layers, two directions."""
    import torch

    attrs = {"rnn_mode": "lstm", "direction": "bidirectional"}
    sizes = {"num_layers": 2, "num_units": 4, "input_size": 3}
    torch.manual_seed(20272)
    layer = torch.nn.LSTM(3, 4, 2, bidirectional=True)
    weights: list[Any] = []
    biases: list[Any] = []
    for which in ("l0", "l0_reverse", "l1", "l1_reverse"):
        for kind, out in (("weight", weights), ("bias", biases)):
            for part in ("ih", "hh"):
                gates = getattr(layer, f"{kind}_{part}_{which}").detach().numpy().copy()
                out += np.split(gates, 4)  # i, f, g, o
    flat = np.concatenate([a.reshape(-1) for a in (*weights, *biases)])

    params = li.input("params", flat.shape)
    counts = {"num_params_weights": len(weights), "num_params_biases": len(biases)}
    made = li.op(cudnn_cases.TO, **sizes, params=params, **counts, **attrs)
    named = {f"weight{i}": v for i, v in enumerate(made.weights)}
    named |= {f"bias{i}": v for i, v in enumerate(made.biases)}
    want = {k: a for k, a in zip(named, (*weights, *biases), strict=True)}
    graph = li.Graph("to_canonical", [params], named)
    yield cudnn_cases.TO, PARAMETERS, graph, {"params": flat}, want

    given = {k: li.input(k, a.shape) for k, a in want.items()}
    lists = {
        "weights": [given[k] for k in given if k.startswith("weight")],
        "biases": [given[k] for k in given if k.startswith("bias")],
    }
    back = li.op(cudnn_cases.FROM, **sizes, **lists, **attrs).params
    graph = li.Graph("to_params", list(given.values()), {"params": back})
    yield cudnn_cases.FROM, PARAMETERS, graph, want, {"params": flat}

    count = li.op(cudnn_cases.SIZE, **sizes, T="f32", S="i32", **attrs).params_size
    size = np.array([sum(p.numel() for p in layer.parameters())], np.int32)
    yield cudnn_cases.SIZE, PARAMETERS, li.Graph("size", [], {"size": count}), {}, {"size": size}


def single_gate() -> Case:
    """mps.singleGateRNN as Apple's defaults have it, which is PyTorch's RNN with relu and one bias."""
    import torch

    rng = np.random.default_rng(20271)
    sizes = {"source": (4, 2, 3), "recurrentWeight": (5, 5), "inputWeight": (5, 3), "bias": (5,), "initState": (2, 5)}
    a = {n: rng.uniform(-1, 1, s).astype(np.float32) for n, s in sizes.items()}
    layer = torch.nn.RNN(3, 5, nonlinearity="relu").double()
    given = {"weight_ih_l0": a["inputWeight"], "weight_hh_l0": a["recurrentWeight"], "bias_ih_l0": a["bias"]}
    with torch.no_grad():
        for name, value in layer.named_parameters():
            value.copy_(torch.tensor(given.get(name, np.zeros(5))))
        h, _ = layer(torch.tensor(a["source"]).double(), torch.tensor(a["initState"]).double()[None])
    inputs = {n: li.input(n, s) for n, s in sizes.items()}
    made = li.op("mps.singleGateRNN", **inputs)
    graph = li.Graph("singleGateRNN", list(inputs.values()), {"h": made.h})
    return "mps.singleGateRNN", RELU, graph, a, {"h": h.numpy()}


def smallest() -> list[Case]:
    """One case per op, the one with the fewest numbers: the demo compiles it for every target."""
    found: dict[str, Case] = {}
    for case in cases():
        if case[0] not in found or _size(case) < _size(found[case[0]]):
            found[case[0]] = case
    return list(found.values())


def _size(case: Case) -> int:
    return sum(np.asarray(a).size for a in case[3].values())


def main() -> None:
    arrays: dict[str, Any] = {}
    meta = []
    for i, (op, oracle, graph, inputs, results) in enumerate(smallest()):
        compared = {n: graph.output(n) for n in graph.output_names if n in results}
        assert set(compared) == set(results), op
        text = str(li.Graph(graph.name, graph.params, compared))
        meta.append({"op": op, "oracle": oracle, "text": text})
        arrays |= {f"{i}/in/{n}": np.asarray(inputs[n]) for n in graph.input_names}
        arrays |= {f"{i}/out/{n}": np.asarray(a) for n, a in results.items()}
    np.savez_compressed(TARGET, meta=np.array(json.dumps(meta)), **arrays)
    print(f"{len(meta)} cases of {len({m['op'] for m in meta})} ops, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
