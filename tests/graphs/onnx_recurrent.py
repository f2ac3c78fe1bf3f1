"""LSTM, GRU and RNN of ONNX with every attribute: cases, the models of them, and operands for the equations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_layers
import onnx_models as om

T, B, I, H = 6, 3, 5, 4
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
SLOTS = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]
OTHER_ACTIVATIONS = {"LSTM": ["HardSigmoid", "Elu", "Softsign"], "GRU": ["HardSigmoid", "LeakyRelu"], "RNN": ["Elu"]}
CHOICES: dict[str, list[Any]] = {
    "direction": ["forward", "reverse", "bidirectional"],
    "layout": [0, 1],
    "B": [False, True],
    "lengths": [None, "input", "fixed"],
    "state": ["absent", "input", "fixed", "zeros", "zeros of one row"],
    "clip": [None, 0.4],
    "activations": ["default", "default named", "other", "other with parameters", "parameters both ways", "fewer"],
    "weights": ["initializers", "inputs"],
    "sizes": ["fixed", "named"],
    "opset": [1, 7, 14, 22],
    "outputs": ["all", "Y", "Y_h", "states"],
    "output_sequence": [None, 0, 1],
}
WITH_PARAMETERS = {
    "LSTM": ["HardSigmoid", "Elu", "LeakyRelu", "HardSigmoid", "LeakyRelu", "Elu"],
    "GRU": ["HardSigmoid", "Elu", "HardSigmoid", "LeakyRelu"],
    "RNN": ["Elu", "HardSigmoid"],
}
OWN: dict[str, dict[str, list[Any]]] = {
    "LSTM": {"P": [False, True], "input_forget": [None, 0, 1]},
    "GRU": {"linear_before_reset": [None, 0, 1]},
    "RNN": {},
}
PLAIN: dict[str, Any] = {
    "direction": "forward", "layout": 0, "B": True, "lengths": None, "state": "input", "clip": None,
    "activations": "default", "weights": "initializers", "sizes": "named", "opset": 22, "outputs": "all",
    "output_sequence": None,
}  # fmt: skip


def possible(op: str, case: Mapping[str, Any]) -> bool:
    """Whether the version of the operator has the attributes of the case."""
    too_early = case["layout"] and case["opset"] < 14
    too_late = case["output_sequence"] is not None and case["opset"] >= 7
    return not (too_early or too_late or (case.get("linear_before_reset") is not None and case["opset"] < 3))


def sampled(op: str, count: int, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Random cases, of which each choice of each attribute has its share."""
    choices = CHOICES | OWN[op]
    rows = {k: [v[i % len(v)] for i in rng.permutation(count)] for k, v in choices.items()}
    for i in range(count):
        case = {k: row[i] for k, row in rows.items()}
        if case["opset"] < 14:
            case["layout"] = 0
        if case["opset"] < 3 and "linear_before_reset" in case:
            case["linear_before_reset"] = None
        if case["opset"] >= 7:
            case["output_sequence"] = None
        yield case


def every(op: str) -> Iterator[dict[str, Any]]:
    choices = CHOICES | OWN[op]
    for values in itertools.product(*choices.values()):
        case = dict(zip(choices, values, strict=True))
        if possible(op, case):
            yield case


def attributes(op: str, case: Mapping[str, Any], D: int) -> dict[str, Any]:
    attrs: dict[str, Any] = {"hidden_size": H}
    if case["direction"] != "forward":
        attrs["direction"] = case["direction"]
    for name in ("clip", "input_forget", "linear_before_reset", "output_sequence"):
        if case.get(name) is not None:
            attrs[name] = case[name]
    if case["layout"]:
        attrs["layout"] = 1
    if case["activations"] == "default named":
        attrs["activations"] = onnx_layers.DEFAULTS[op] * D
    if case["activations"].startswith("other"):
        # The other direction has the defaults: parameters are counted over both.
        attrs["activations"] = OTHER_ACTIVATIONS[op] + onnx_layers.DEFAULTS[op] * (D - 1)
    if case["activations"] == "other with parameters":
        users = [onnx_layers.PARAMETERS.get(n, ()) for n in attrs["activations"]]
        attrs["activation_alpha"] = [0.3 + 0.1 * i for i, p in enumerate(users) if p]
        if any(len(p) > 1 for p in users):
            attrs["activation_beta"] = [0.4 for p in users if len(p) > 1]
    if case["activations"] in ("parameters both ways", "fewer"):
        attrs["activations"] = WITH_PARAMETERS[op][: D * len(onnx_layers.DEFAULTS[op])]
        wide = sum(n == "HardSigmoid" for n in attrs["activations"])
        less = case["activations"] == "fewer"  # the last of them have their defaults
        attrs["activation_alpha"] = [0.2 + 0.07 * i for i in range(len(attrs["activations"]) - less)]
        attrs["activation_beta"] = [0.35 + 0.1 * i for i in range(wide - less)]
        attrs = {n: v for n, v in attrs.items() if v != []}
    return attrs


def arrays_of(op: str, case: Mapping[str, Any], D: int, rng: np.random.Generator, dtype: Any) -> dict[str, Any]:
    G = GATES[op] * H
    shapes: dict[str, tuple[int, ...]] = {"X": (T, B, I), "W": (D, G, I), "R": (D, G, H)}
    if case["B"]:
        shapes["B"] = (D, 2 * G)
    if case["state"] != "absent":
        shapes["initial_h"] = (D, 1 if case["state"] == "zeros of one row" else B, H)
        if op == "LSTM":
            shapes["initial_c"] = shapes["initial_h"]
    if case.get("P"):
        shapes["P"] = (D, 3 * H)
    arrays = {k: (rng.normal(size=s) * 0.6).astype(dtype) for k, s in shapes.items()}
    for name in ("initial_h", "initial_c"):
        if name in arrays and case["state"].startswith("zeros"):
            arrays[name] *= 0
        if name in arrays and case["layout"]:
            arrays[name] = np.ascontiguousarray(arrays[name].swapaxes(0, 1))
    if case["layout"]:
        arrays["X"] = np.ascontiguousarray(arrays["X"].swapaxes(0, 1))
    if case["lengths"]:
        arrays["sequence_lens"] = rng.permutation(np.array([0, T, int(rng.integers(1, T))], np.int32))
    return arrays


def built(op: str, case: Mapping[str, Any], rng: np.random.Generator, dtype: Any = np.float32) -> Any:
    """The model, its inputs, and all operands and attributes for the oracle."""
    D = 2 if case["direction"] == "bidirectional" else 1
    attrs, arrays = attributes(op, case, D), arrays_of(op, case, D, rng, dtype)
    slots = SLOTS if op == "LSTM" else SLOTS[:6]
    names = [s if s in arrays else "" for s in slots]
    inputs = {"X"}
    if case["weights"] == "inputs":
        inputs |= {"W", "R", "B", "P"} & set(arrays)
    if case["lengths"] == "input":
        inputs.add("sequence_lens")
    if case["state"] == "input":
        inputs |= {"initial_h", "initial_c"} & set(arrays)
    fed = {n: a for n, a in arrays.items() if n in inputs}
    infos = {n: (shape_of(n, a, case), a.dtype) for n, a in fed.items()}
    wanted = {"Y": "Y", "Y_h": " Y_h", "states": " Y_h Y_c", "all": "Y Y_h Y_c"}[case["outputs"]].split(" ")
    outputs = wanted[: 3 if op == "LSTM" else 2]
    made = om.model(
        [om.node(op, names, outputs, **attrs)], infos, [n for n in outputs if n],
        {n: a for n, a in arrays.items() if n not in inputs}, case["opset"],
    )  # fmt: skip
    if case["state"] == "zeros of one row":
        wide = [B, 1, 1] if case["layout"] else [1, B, 1]
        arrays |= {n: np.tile(arrays[n], wide) for n in ("initial_h", "initial_c") if n in arrays}
    return made, fed, arrays, attrs


def shape_of(name: str, a: Any, case: Mapping[str, Any]) -> list[Any]:
    """T and B as numbers, or as names; in an initial state the batch has no name at all."""
    if case["sizes"] == "fixed" or name in ("W", "R", "B", "P"):
        return list(a.shape)
    if name == "X":
        return ["B", "T", I] if case["layout"] else ["T", "B", I]
    if name == "sequence_lens":
        return ["rows"]
    return [None, a.shape[1], H] if case["layout"] else [a.shape[0], None, H]


def expected(op: str, arrays: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The results of the equations by name."""
    return dict(zip(("Y", "Y_h", "Y_c"), onnx_layers.run(op, arrays, attrs), strict=False))
