"""LSTM, GRU and RNN of ONNX: every attribute, against the equations and against onnxruntime."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_layers
import onnx_models as om
import pytest
from device import need

import lstm_ir as li

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
    "activations": ["default", "default named", "other", "other with parameters"],
    "weights": ["initializers", "inputs"],
    "sizes": ["fixed", "named"],
    "opset": [1, 7, 14, 22],
}
OWN: dict[str, dict[str, list[Any]]] = {
    "LSTM": {"P": [False, True], "input_forget": [None, 0, 1]},
    "GRU": {"linear_before_reset": [None, 0, 1]},
    "RNN": {},
}


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx")
    need("onnx_ir")


def possible(op: str, case: Mapping[str, Any]) -> bool:
    """Whether the version of the operator has the attributes of the case."""
    too_early = case["layout"] and case["opset"] < 14
    return not (too_early or (case.get("linear_before_reset") is not None and case["opset"] < 3))


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
    for name in ("clip", "input_forget", "linear_before_reset"):
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
    outputs = ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2]
    made = om.model(
        [om.node(op, names, outputs, **attrs)], infos, outputs,
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


def check(
    op: str, case: Mapping[str, Any], rng: np.random.Generator, dtype: Any = np.float32, atol: float = 3e-6
) -> None:
    made, fed, arrays, attrs = built(op, case, rng, dtype)
    got = li.interpret(li.from_onnx(made), fed)
    for name, want in zip(got, onnx_layers.run(op, arrays, attrs), strict=True):
        assert got[name].dtype == dtype
        np.testing.assert_allclose(got[name].astype(np.float64), want, atol=atol, rtol=atol, err_msg=f"{name} {case}")


@pytest.mark.parametrize("op", GATES)
def test_samples_of_all_attributes(op: str, rng: np.random.Generator) -> None:
    for case in sampled(op, 40, rng):
        check(op, case, rng)


@pytest.mark.slow
@pytest.mark.parametrize("op", GATES)
def test_combinations_of_attributes(op: str, seed: int, rng: np.random.Generator) -> None:
    """Of all combinations every n-th, n prime to the number of choices: another part with another seed."""
    step = {"LSTM": 29, "GRU": 13, "RNN": 7}[op]
    for case in itertools.islice(every(op), seed % step, None, step):
        check(op, case, rng)


PLAIN: dict[str, Any] = {
    "direction": "forward", "layout": 0, "B": True, "lengths": None, "state": "input", "clip": None,
    "activations": "default", "weights": "initializers", "sizes": "named", "opset": 22,
}  # fmt: skip


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(
    ("dtype", "atol"), [("float16", 4e-3), ("bfloat16", 3e-2), ("float64", 1e-13)], ids=["f16", "bf16", "f64"]
)
def test_element_types(op: str, dtype: str, atol: float, rng: np.random.Generator) -> None:
    """Operands are rounded to the type; two-byte results once more."""
    import ml_dtypes

    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    check(op, PLAIN | {"direction": "bidirectional", "layout": 1}, rng, kind, atol)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("name", list(onnx_layers.FUNCTIONS))
def test_every_activation(op: str, name: str, rng: np.random.Generator) -> None:
    """With its defaults, then with alpha and beta, in every place; in f64, since some let h grow."""
    places = len(onnx_layers.DEFAULTS[op])
    parameters = onnx_layers.PARAMETERS.get(name, ())
    made, fed, arrays, attrs = built(op, PLAIN, rng, np.float64)
    for given in {0, len(parameters)} - ({0} if None in parameters else set()):
        attrs = {"hidden_size": H, "activations": [name] * places}
        if given:
            attrs["activation_alpha"] = [0.2 + 0.1 * k for k in range(places)]
        if given > 1:
            attrs["activation_beta"] = [0.3 + 0.1 * k for k in range(places)]
        del made.graph.node[0].attribute[:]
        made.graph.node[0].attribute.extend(om.node(op, [], [], **attrs).attribute)
        got = li.interpret(li.from_onnx(made), fed)
        for key, want in zip(got, onnx_layers.run(op, arrays, attrs), strict=True):
            np.testing.assert_allclose(got[key], want, atol=1e-11, rtol=1e-9, err_msg=key)


@pytest.mark.parametrize("op", GATES)
def test_the_oracle_is_right_where_onnxruntime_is(op: str, rng: np.random.Generator) -> None:
    """onnxruntime refuses layout 1, states without B rows and f64. It departs in two more places: ThresholdedRelu
    without alpha has 0, not 1, and a row of length 0 ends with the state 0, not with its initial one."""
    need("onnxruntime")
    for case in sampled(op, 24, rng):
        case |= {"layout": 0, "opset": max(case["opset"], 7)}
        if case["state"] == "zeros of one row":
            case["state"] = "zeros"
        if case["lengths"]:
            case["state"] = "absent"
        made, fed, arrays, attrs = built(op, case, rng)
        for got, want in zip(om.run(made, fed), onnx_layers.run(op, arrays, attrs), strict=True):
            np.testing.assert_allclose(got, want, atol=5e-6, rtol=5e-6, err_msg=str(case))


def compiled(models: Mapping[str, Any], rng: np.random.Generator) -> None:
    """Layers as entries of one module, against the equations."""
    graphs, calls = {}, []
    for name, (op, case) in models.items():
        made, fed, arrays, attrs = built(op, case, rng)
        graphs[name] = prefixed(li.from_onnx(made), name)
        calls.append((name, fed, onnx_layers.run(op, arrays, attrs)))
    exe = li.compile(li.Program("layers", graphs))
    for name, fed, wanted in calls:
        got = exe.entries[name](**fed)
        for key, want in zip(got, wanted, strict=True):
            np.testing.assert_allclose(got[key], want, atol=2e-5, rtol=2e-5, err_msg=f"{name} {key}")


def test_compiled(rng: np.random.Generator) -> None:
    compiled({"gru": ("GRU", PLAIN | {"direction": "reverse", "lengths": "input", "layout": 1, "sizes": "fixed"})}, rng)


@pytest.mark.slow
def test_more_compiled(rng: np.random.Generator) -> None:
    compiled(
        {f"{op}_{k}": (op, case | {"sizes": "named"}) for op in GATES for k, case in enumerate(sampled(op, 2, rng))},
        rng,
    )


def prefixed(graph: li.Graph, prefix: str) -> li.Graph:
    """The graph with other names of weights: those of one program are shared."""
    from lstm_ir.ir.graph import substitute

    new = {v: li.weight(f"{prefix}.{n}", v.node.attrs["value"]) for n, v in graph.weights.items()}
    return substitute(graph, new)


REFUSED = [
    ({"clip": 0.0}, "clip is 0.0; a threshold is positive"),
    ({"direction": "backward"}, "direction is 'backward'"),
    ({"hidden_size": H + 1}, f"hidden_size is {H + 1}"),
    ({"activations": ["Sigmoid", "Tanh"]}, "2 activations, expected 3"),
    ({"activations": ["Sigmoid", "Tanh", "Sine"]}, "the activation 'Sine' is not known"),
    ({"activations": ["Sigmoid", "Tanh", "Elu"], "activation_alpha": [1.0, 0.0]}, "2 numbers for 1 activations"),
    ({"activations": ["Sigmoid", "Tanh", "ScaledTanh"]}, "scaled_tanh has no default alpha and beta"),
    ({"fast": 1}, "the attribute fast is not known to LSTM"),
    ({"layout": 2}, "layout is 2, not 0 or 1"),
]


@pytest.mark.parametrize(("attrs", "why"), REFUSED, ids=[w for _, w in REFUSED])
def test_refused(attrs: dict[str, Any], why: str, rng: np.random.Generator) -> None:
    made, _, _, _ = built("LSTM", PLAIN, rng)
    node = made.graph.node[0]
    kept = [a for a in node.attribute if a.name not in attrs]
    del node.attribute[:]
    node.attribute.extend([*kept, *om.node("LSTM", [], [], **attrs).attribute])
    with pytest.raises(li.ModelError, match=r"the_LSTM \(LSTM\): .*" + why):
        li.from_onnx(made)


def test_a_state_of_one_row_is_repeated_only_if_it_is_zero(rng: np.random.Generator) -> None:
    made, _, arrays, _ = built("GRU", PLAIN | {"state": "fixed"}, rng)
    (state,) = (w for w in made.graph.initializer if w.name == "initial_h")
    state.CopyFrom(_tensor("initial_h", arrays["initial_h"][:, :1]))
    with pytest.raises(li.ModelError, match="initial_h has the values of one row, not all 0, and X has B rows"):
        li.from_onnx(made)


def _tensor(name: str, array: Any) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(array, name)


def test_weights_behind_constant_arithmetic(rng: np.random.Generator) -> None:
    """Two halves of R, one of them quantized, f64 biases, a state made by ConstantOfShape."""
    _, fed, arrays, attrs = built("LSTM", PLAIN | {"state": "absent"}, rng)
    quantized = rng.integers(-90, 90, (1, 4 * H, 2)).astype(np.int8)
    left = rng.normal(size=(4 * H, 1, 2)).astype(np.float32) * 0.4
    parts = {
        "low": left, "q": quantized, "scale": np.float32(0.005), "b64": arrays["B"].astype(np.float64).T,
        "ends": np.array([8 * H], np.int64), "zero": np.array([0], np.int64), "shape": np.array([1, 1, H], np.int64),
        "one": np.array([0], np.int64),
    }  # fmt: skip
    nodes = [
        om.node("Transpose", ["low"], ["low_t"], perm=[1, 0, 2]),
        om.node("DequantizeLinear", ["q", "scale"], ["high"]),
        om.node("Concat", ["low_t", "high"], ["R_"], axis=2),
        om.node("Cast", ["b64"], ["b32"], to=1),
        om.node("Slice", ["b32", "zero", "ends", "zero"], ["b_"]),
        om.node("Squeeze", ["b_"], ["b_row"]),
        om.node("Unsqueeze", ["b_row", "one"], ["B_"]),
        om.node("ConstantOfShape", ["shape"], ["h_"]),
        om.node("LSTM", ["X", "W", "R_", "B_", "", "h_"], ["Y", "Y_h", "Y_c"], **attrs),
    ]
    whole = om.model(
        nodes, {"X": (["T", "B", I], np.float32)}, ["Y", "Y_h", "Y_c"], parts | {"W": arrays["W"]}
    )  # fmt: skip
    arrays["R"] = np.concatenate([left.transpose(1, 0, 2), quantized * np.float32(0.005)], 2)
    g = li.from_onnx(whole)
    (layer,) = (n for n in g.nodes if n.op.name == "lstm")
    assert layer.arg("h0") is None
    assert str(layer.loc) == "<onnx>:the_LSTM"
    assert set(g.weights) == {"W", "low", "b64"}
    got = li.interpret(g, fed)
    for key, want in zip(got, onnx_layers.run("LSTM", arrays, attrs), strict=True):
        np.testing.assert_allclose(got[key], want, atol=3e-6, rtol=3e-6, err_msg=key)
