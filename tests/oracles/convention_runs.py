"""One recurrent layer by each library's own run, or by the equations of its documentation: weights by its names, x
[T,B,I] in, y [T,B,H] out. The initial states are zero."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_models as om
from device import need
from tensorflow_child import run as run_tensorflow

import lstm_ir as li

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]
Run = Callable[[str, Arrays, Array, bool | None], Array]
FORGET = 0.75  # what the cells that add a number to the bias of f add


def sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def torch(cell: str, a: Arrays, x: Array, after: bool | None) -> Array:
    need("torch")
    import torch as t

    sizes = {"input_size": x.shape[2], "hidden_size": len(a["weight_ih"]) // {"lstm": 4, "gru": 3, "rnn": 1}[cell]}
    more = {"proj_size": len(a["weight_hr"])} if "weight_hr" in a else {}
    kinds: Any = {"lstm": t.nn.LSTM, "gru": t.nn.GRU, "rnn": t.nn.RNN}
    layer = kinds[cell](**sizes, **more, bias="bias_ih" in a)
    layer.load_state_dict({f"{k}_l0": t.from_numpy(v) for k, v in a.items()})
    with t.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a projection is not for oneDNN
        found: Array = layer(t.from_numpy(x))[0].numpy()
    return found


def keras(cell: str, a: Arrays, x: Array, after: bool | None) -> Array:
    need("keras")
    from keras_torch import keras as k
    from keras_torch import numpy_of

    kinds = {"lstm": k.layers.LSTM, "gru": k.layers.GRU, "rnn": k.layers.SimpleRNN}
    more = {"reset_after": after} if cell == "gru" else {}
    layer = kinds[cell](len(a["recurrent_kernel"]), return_sequences=True, use_bias="bias" in a, **more)
    rows = x.swapaxes(0, 1)
    layer.build(rows.shape)
    layer.set_weights(list(a.values()))
    return np.asarray(numpy_of(layer(rows))).swapaxes(0, 1)


def onnx(cell: str, a: Arrays, x: Array, after: bool | None) -> Array:
    need("onnxruntime")
    names = ["X", "W", "R", "B" if "B" in a else "", "", "", ""] + (["P"] if "P" in a else [])
    op = cell.upper()
    attrs = {"hidden_size": a["R"].shape[2], **({"linear_before_reset": int(bool(after))} if cell == "gru" else {})}
    node = om.node(op, names[: len(names) if "P" in a else 4], ["Y"], **attrs)
    (y,) = om.run(om.model([node], {"X": (x.shape, np.float32)}, ["Y"], dict(a)), {"X": x})
    return np.asarray(y[:, 0])


def _block(a: Arrays, x: Array, version: str, attrs: dict[str, Any]) -> Array:
    need("tensorflow")
    H = len(a["b"]) // 4
    state = np.zeros((x.shape[1], H), np.float32)
    none = np.zeros(H, np.float32)
    given = {
        "seq_len_max": np.int64(len(x)), "x": x, "cs_prev": state, "h_prev": state, "w": a["w"],
        "wci": a.get("wci", none), "wcf": a.get("wcf", none), "wco": a.get("wco", none), "b": a["b"],
    }  # fmt: skip
    (found,) = run_tensorflow([(version, {"use_peephole": "wci" in a, "cell_clip": 0.0, **attrs}, given)])
    return np.asarray(found["h"])


def tf_block(cell: str, a: Arrays, x: Array, after: bool | None) -> Array:
    if cell == "lstm":
        return _block(a, x, "BlockLSTM", {"forget_bias": FORGET})
    need("tensorflow")
    named = {
        "gates/kernel": a["w_ru"],
        "gates/bias": a["b_ru"],
        "candidate/kernel": a["w_c"],
        "candidate/bias": a["b_c"],
    }
    before = tf1("gru", named, x, after)[:-1].astype(np.float32)  # the states that each step starts from
    states = np.concatenate([np.zeros_like(before[:1]), before])
    found = run_tensorflow([("GRUBlockCell", {}, {"x": r, "h_prev": h, **a}) for r, h in zip(x, states, strict=True)])
    return np.stack([f["h"] for f in found])


def tf_block_v2(cell: str, a: Arrays, x: Array, after: bool | None) -> Array:
    return _block(a, x, "BlockLSTMV2", {})


def tf1(cell: str, a: Arrays, x: Array, after: bool | None) -> Array:
    """The equations of legacy_cells.py: i, j, f, o; r, u."""
    projection = a.get("projection/kernel")
    H = len(a["candidate/bias"]) if cell == "gru" else len(a["bias"]) // {"lstm": 4, "rnn": 1}[cell]
    B = x.shape[1]
    c, h = np.zeros((B, H)), np.zeros((B, H if projection is None else projection.shape[1]))
    out = []
    for step in x:
        if cell == "gru":
            r, u = np.split(sigmoid(np.concatenate([step, h], 1) @ a["gates/kernel"] + a["gates/bias"]), 2, 1)
            new = np.tanh(np.concatenate([step, r * h], 1) @ a["candidate/kernel"] + a["candidate/bias"])
            h = u * h + (1 - u) * new
        else:
            z = np.concatenate([step, h], 1) @ a["kernel"] + a["bias"]
            if cell == "rnn":
                h = np.tanh(z)
            else:
                i, j, f, o = np.split(z, 4, 1)
                p = {n: a.get(f"w_{n}_diag", 0.0) for n in "fio"}
                c = sigmoid(f + FORGET + p["f"] * c) * c + sigmoid(i + p["i"] * c) * np.tanh(j)
                h = sigmoid(o + p["o"] * c) * np.tanh(c)
                h = h if projection is None else h @ projection
        out.append(h)
    return np.stack(out)


def lstm_ir(cell: str, a: Arrays, x: Array, after: bool | None) -> Array:
    more = {"reset_after": after} if cell == "gru" else {}
    layers: dict[str, Any] = {"lstm": li.lstm, "gru": li.gru, "rnn": li.rnn}
    made: Any = layers[cell](li.constant(x), **a, **more)
    return li.interpret(li.Graph("g", [], {"y": made.y}))["y"]


def cudnn_params(cell: str, a: Arrays, x: Array, after: bool | None) -> Array:
    """The op of this project, which tests of its own hold to PyTorch."""
    return _cudnn(cell, a["params"], x, 0)


def cudnn(cell: str, a: Arrays, x: Array, after: bool | None) -> Array:
    """The matrices joined by the canonical op."""
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[cell]
    names = [f"weight_{k}" for k in range(2 * gates + ("weight_8" in a))]
    H = len(a["weight_0"])
    proj = len(a["weight_8"]) if "weight_8" in a else 0
    sizes = {"num_layers": np.int32(1), "num_units": np.int32(H), "input_size": np.int32(x.shape[2])}
    attrs = {"rnn_mode": "rnn_tanh" if cell == "rnn" else cell, "num_proj": proj}
    made = li.op("tf.CudnnRNNCanonicalToParamsV2", **sizes, weights=[a[n] for n in names],
                 biases=[a[f"bias_{k}"] for k in range(2 * gates)], **attrs)  # fmt: skip
    value = made if isinstance(made, li.Value) else made.params
    return _cudnn(cell, li.interpret(li.Graph("p", [], {"p": value}))["p"], x, proj, H)


def _cudnn(cell: str, params: Array, x: Array, proj: int, units: int | None = None) -> Array:
    H = HIDDEN if units is None else units
    zero = np.zeros((1, x.shape[1], proj or H), np.float32)
    cells = np.zeros((1, x.shape[1], H), np.float32) if cell == "lstm" else np.zeros((), np.float32)
    lengths = np.full(x.shape[1], len(x), np.int32)
    attrs = {"rnn_mode": "rnn_tanh" if cell == "rnn" else cell, "num_proj": proj}
    made = li.op(
        "tf.CudnnRNNV3", input=x, input_h=zero, input_c=cells, params=params, sequence_lengths=lengths, **attrs
    )
    return li.interpret(li.Graph("g", [], {"y": made.output}))["y"]


HIDDEN = 5  # of the vector, which does not say it


def _mps(cell: str, a: Arrays, x: Array, after: bool | None, flagged: bool) -> Array:
    op = {"lstm": "mps.LSTM", "gru": "mps.GRU", "rnn": "mps.singleGateRNN"}[cell]
    flags: dict[str, dict[str, Any]] = {
        "lstm": {"forgetGateLast": flagged}, "gru": {"resetGateFirst": flagged, "resetAfter": bool(after)},
        "rnn": {"activation": "tanh"},
    }  # fmt: skip
    more = flags[cell]
    made = li.op(op, source=x, **a, **more)
    return li.interpret(li.Graph("g", [], {"y": made[0] if isinstance(made, tuple) else made}))["y"]


def mps(cell: str, a: Arrays, x: Array, after: bool | None) -> Array:
    return _mps(cell, a, x, after, False)


def mps_flagged(cell: str, a: Arrays, x: Array, after: bool | None) -> Array:
    return _mps(cell, a, x, after, True)


def onednn(cell: str, a: Arrays, x: Array, after: bool | None) -> Array:
    """The equations of rnn.md: weights [1,1,i,g,o]; i, f, c, o; u, r, o, and u' of the bias."""
    W, U = a["weights_layer"][0, 0], a["weights_iter"][0, 0]
    H, B = W.shape[2], x.shape[1]
    b = a["bias"][0, 0] if "bias" in a else np.zeros((4, H))
    P = a["weights_peephole"][0, 0] if "weights_peephole" in a else np.zeros((3, H))
    R = a["weights_projection"][0, 0] if "weights_projection" in a else None
    c, h = np.zeros((B, H)), np.zeros((B, U.shape[0]))
    out = []
    for step in x:
        u, v = np.einsum("bi,igo->gbo", step, W), np.einsum("bi,igo->gbo", h, U)
        if cell == "lstm":
            i, f = sigmoid(u[0] + v[0] + b[0] + P[0] * c), sigmoid(u[1] + v[1] + b[1] + P[1] * c)
            c = f * c + i * np.tanh(u[2] + v[2] + b[2])
            h = sigmoid(u[3] + v[3] + b[3] + P[2] * c) * np.tanh(c)
            h = h if R is None else h @ R
        elif cell == "gru":
            z, r = sigmoid(u[0] + v[0] + b[0]), sigmoid(u[1] + v[1] + b[1])
            inner = r * (v[2] + b[3]) if after else (r * h) @ U[:, 2]
            h = z * h + (1 - z) * np.tanh(u[2] + inner + b[2])
        else:
            h = np.tanh(u[0] + v[0] + b[0])
        out.append(h)
    return np.stack(out)


def coreml(cell: str, a: Arrays, x: Array, after: bool | None) -> Array:
    """The equations of MIL's operations: i, f, o, z; r, o, z."""
    W, R, H, B = a["weight_ih"], a["weight_hh"], a["weight_hh"].shape[1], x.shape[1]
    b = a.get("bias", np.zeros(len(W)))
    p = np.split(a.get("peephole", np.zeros(3 * H)), 3)
    c, h = np.zeros((B, H)), np.zeros((B, H))
    out = []
    for step in x:
        u, v = step @ W.T + b, h @ R.T
        if cell == "lstm":
            i, f, o, z = np.split(u + v, 4, 1)
            c = sigmoid(f + p[1] * c) * c + sigmoid(i + p[0] * c) * np.tanh(z)
            h = sigmoid(o + p[2] * c) * np.tanh(c)
        elif cell == "gru":
            (ur, uo, uz), (vr, vo, vz) = np.split(u, 3, 1), np.split(v, 3, 1)
            z = sigmoid(uz + vz)
            h = (1 - z) * np.tanh(uo + sigmoid(ur + vr) * vo) + z * h
        else:
            h = np.tanh(u + v)
        out.append(h)
    return np.stack(out)


ALL = (torch, keras, onnx, tf_block, tf_block_v2, tf1, lstm_ir, cudnn, cudnn_params, mps, mps_flagged, onednn, coreml)
RUNS: dict[str, Run] = {f.__name__: f for f in ALL}
