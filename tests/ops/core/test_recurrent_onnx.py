"""lstm, gru and rnn against onnxruntime: ONNX's semantics by operands and attributes alone."""

from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.passes.decompose import decompose

T, B, I, H = 11, 3, 5, 7
SEED = 4242
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ORDER = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2], "RNN": [0]}  # ours from iofc and zrh
ACTS = {  # ONNX's name, its alpha and beta, and ours
    "Sigmoid": (None, None, "sigmoid"),
    "Tanh": (None, None, "tanh"),
    "Relu": (None, None, "relu"),
    "Affine": (0.6, 0.2, "affine(0.6,0.2)"),
    "LeakyRelu": (0.1, None, "leaky_relu(0.1)"),
    "ThresholdedRelu": (0.3, None, "thresholded_relu(0.3)"),
    "ScaledTanh": (1.3, 0.8, "scaled_tanh(1.3,0.8)"),
    "HardSigmoid": (0.25, 0.45, "hard_sigmoid(0.25,0.45)"),
    "Elu": (0.7, None, "elu(0.7)"),
    "Softsign": (None, None, "softsign"),
    "Softplus": (None, None, "softplus"),
}


def draw(op: str, D: int, peephole: bool = False) -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    G = GATES[op] * H
    shapes = {"X": (T, B, I), "W": (D, G, I), "R": (D, G, H), "B": (D, 2 * G)}
    shapes["initial_h"] = (D, B, H)
    if op == "LSTM":
        shapes["initial_c"] = (D, B, H)
    if peephole:
        shapes["P"] = (D, 3 * H)
    return {k: (rng.normal(size=s) * 0.6).astype(np.float32) for k, s in shapes.items()}


def runtime(op: str, data: dict[str, Any], attrs: dict[str, Any]) -> list[Any]:
    need("onnx")
    need("onnxruntime")
    import onnxruntime
    from onnx import TensorProto, helper

    slots = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]
    slots = slots if op == "LSTM" else slots[:6]
    names = [n if n in data else "" for n in slots]
    outputs = ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(op, names, outputs, hidden_size=H, **attrs)
    kinds = {"f": TensorProto.FLOAT, "i": TensorProto.INT32}
    inputs = [helper.make_tensor_value_info(k, kinds[v.dtype.kind], v.shape) for k, v in data.items()]
    outs = [helper.make_tensor_value_info(k, TensorProto.FLOAT, None) for k in outputs]
    graph = helper.make_graph([node], "g", inputs, outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    found: list[Any] = session.run(None, data)
    return found


def gates(op: str, v: Any) -> Any:
    """Gate blocks of axis 1 in our order."""
    D, G = v.shape[:2]
    return v.reshape(D, GATES[op], H, *v.shape[2:])[:, ORDER[op]].reshape(D, G, *v.shape[2:])


def ours(op: str, data: dict[str, Any], attrs: dict[str, Any]) -> list[Any]:
    """The same call in lstm, gru or rnn: Y [T,D,B,H], Y_h, Y_c."""
    D, G = data["W"].shape[:2]
    x = li.input("x", ("T", B, I))
    wb, rb = (gates(op, b) for b in (data["B"][:, :G], data["B"][:, G:]))
    given: dict[str, Any] = {
        "w_ih": gates(op, data["W"]),
        "w_hh": gates(op, data["R"]),
        "b": wb + rb,
        "h0": data["initial_h"],
        "direction": attrs.get("direction", "forward"),
        "gate_clip": attrs.get("clip", 0.0),
    }
    if "sequence_lens" in data:
        given["lengths"] = data["sequence_lens"]
    if op == "GRU":
        given["reset_after"] = bool(attrs.get("linear_before_reset", 0))
        if given["reset_after"]:
            rest = rb.copy()
            rest[:, 2 * H :] = 0
            given |= {"b": wb + rest, "b_hn": rb[:, 2 * H :]}
    if op == "LSTM":
        given |= {"c0": data["initial_c"], "input_forget": bool(attrs.get("input_forget", 0))}
        if "P" in data:
            i, o, f = np.split(data["P"], 3, axis=1)
            given["peephole"] = np.concatenate([i, f, o], 1)
    if "activations" in attrs:
        given["activations"] = tuple(_ours_acts(op, attrs["activations"]))
    r = getattr(li, op.lower())(x, **given)
    graph = li.Graph("g", [x], r._asdict())
    results = [li.interpret(g, {"x": data["X"]}) for g in (graph, decompose(graph))]
    for k in results[0]:
        np.testing.assert_allclose(results[1][k], results[0][k], atol=2e-6, rtol=2e-6)
    got = results[0]
    y = got["y"].reshape(T, B, D, H).transpose(0, 2, 1, 3)
    return [y, got["h_n"], *([got["c_n"]] if op == "LSTM" else [])]


def _ours_acts(op: str, given: list[str]) -> list[str]:
    """f, g, h of an LSTM are i = f = o, candidate, output; f, g of a GRU are z = r, candidate."""
    names = [ACTS[n][2] for n in given]
    if op == "LSTM":
        return [n for f, g, h in zip(*[iter(names)] * 3, strict=True) for n in (f, f, g, f, h)]
    if op == "GRU":
        return [n for f, g in zip(*[iter(names)] * 2, strict=True) for n in (f, f, g)]
    return names


def compare(op: str, attrs: dict[str, Any], peephole: bool = False, lengths: Any = None) -> None:
    D = 2 if attrs.get("direction") == "bidirectional" else 1
    data = draw(op, D, peephole)
    if lengths is not None:
        data["sequence_lens"] = np.array(lengths, np.int32)
    for got, want in zip(ours(op, data, attrs), runtime(op, data, attrs), strict=True):
        np.testing.assert_allclose(got, want, atol=5e-6, rtol=5e-6)


LSTM = [
    ({}, {}),
    ({}, {"peephole": True}),
    ({"clip": 0.4}, {"peephole": True}),
    ({"input_forget": 1}, {"peephole": True}),
    ({"input_forget": 1, "clip": 0.5, "direction": "reverse"}, {}),
    ({"direction": "reverse"}, {"lengths": (4, 11, 1)}),
    ({"direction": "bidirectional"}, {"lengths": (11, 2, 7), "peephole": True}),
    ({"activations": ["HardSigmoid", "Softsign", "Relu"]}, {}),
]


@pytest.mark.parametrize(("attrs", "more"), LSTM, ids=str)
def test_lstm(attrs: dict[str, Any], more: dict[str, Any]) -> None:
    compare("LSTM", with_parameters(attrs), **more)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("lengths", [None, (11, 3, 1)])
def test_gru(direction: str, after: int, lengths: Any) -> None:
    compare("GRU", {"direction": direction, "linear_before_reset": after}, lengths=lengths)


@pytest.mark.parametrize("after", [0, 1])
def test_gru_clip(after: int) -> None:
    compare("GRU", {"clip": 0.5, "linear_before_reset": after})


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_rnn(direction: str) -> None:
    names = ["Tanh", "Relu"] if direction == "bidirectional" else ["Tanh"]
    compare("RNN", {"direction": direction, "activations": names}, lengths=(5, 11, 2))


def with_parameters(attrs: dict[str, Any]) -> dict[str, Any]:
    """activation_alpha and activation_beta, as ONNX lists them: one for each name that has one."""
    if "activations" not in attrs:
        return attrs
    more = {}
    for at, key in enumerate(("activation_alpha", "activation_beta")):
        found = [ACTS[n][at] for n in attrs["activations"]]
        if any(v is not None for v in found):
            more[key] = [v for v in found if v is not None]
    return attrs | more


@pytest.mark.parametrize("name", list(ACTS))
def test_every_activation(name: str) -> None:
    compare("RNN", with_parameters({"activations": [name]}))
    compare("GRU", with_parameters({"activations": ["Sigmoid", name], "linear_before_reset": 1}))
