"""LSTM, GRU and RNN of ONNX: every attribute, against the equations and against onnxruntime."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_layers
import onnx_models as om
import pytest
from device import need
from onnx_recurrent import GATES, PLAIN, H, I, built, every, expected, sampled

import lstm_ir as li


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx")
    need("onnx_ir")


def check(
    op: str, case: Mapping[str, Any], rng: np.random.Generator, dtype: Any = np.float32, atol: float = 3e-6
) -> None:
    made, fed, arrays, attrs = built(op, case, rng, dtype)
    got = li.interpret(li.from_onnx(made), fed)
    wanted = expected(op, arrays, attrs)
    assert list(got) == [o.name for o in made.graph.output]
    for name in got:
        want = wanted[name]
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
    step = {"LSTM": 449, "GRU": 199, "RNN": 107}[op]
    for case in itertools.islice(every(op), seed % step, None, step):
        check(op, case, rng)


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
        case |= {"layout": 0, "opset": max(case["opset"], 7), "output_sequence": None}
        if case["state"] == "zeros of one row":
            case["state"] = "zeros"
        if case["lengths"]:
            case["state"] = "absent"
        made, fed, arrays, attrs = built(op, case, rng)
        wanted = expected(op, arrays, attrs)
        for output, got in zip(made.graph.output, om.run(made, fed), strict=True):
            np.testing.assert_allclose(got, wanted[output.name], atol=5e-6, rtol=5e-6, err_msg=str(case))


def compiled(models: Mapping[str, Any], rng: np.random.Generator) -> None:
    """Layers as entries of one module, against the equations."""
    graphs, calls = {}, []
    for name, (op, case) in models.items():
        made, fed, arrays, attrs = built(op, case, rng)
        graphs[name] = prefixed(li.from_onnx(made), name)
        calls.append((name, fed, expected(op, arrays, attrs)))
    exe = li.compile(li.Program("layers", graphs))
    for name, fed, wanted in calls:
        got = exe.entries[name](**fed)
        for key, found in got.items():
            np.testing.assert_allclose(found, wanted[key], atol=2e-5, rtol=2e-5, err_msg=f"{name} {key}")


def test_compiled(rng: np.random.Generator) -> None:
    compiled({"gru": ("GRU", PLAIN | {"direction": "reverse", "lengths": "input", "layout": 1, "sizes": "fixed"})}, rng)


@pytest.mark.slow
def test_more_compiled(rng: np.random.Generator) -> None:
    compiled(
        {f"{op}_{k}": (op, case | {"sizes": "named"}) for op in GATES for k, case in enumerate(sampled(op, 2, rng))},
        rng,
    )


@pytest.mark.slow
def test_element_types_compiled(rng: np.random.Generator) -> None:
    """One layer of each type in one module; operands are rounded to the type, two-byte results once more."""
    import ml_dtypes

    graphs: dict[str, li.Graph] = {}
    calls = []
    for op, kind, limit in (("LSTM", np.float16, 4e-3), ("GRU", ml_dtypes.bfloat16, 3e-2), ("RNN", np.float64, 1e-12)):
        made, fed, arrays, attrs = built(op, PLAIN | {"direction": "bidirectional", "lengths": "input"}, rng, kind)
        graphs[op] = prefixed(li.from_onnx(made), op)
        calls.append((op, np.dtype(kind), limit, fed, expected(op, arrays, attrs)))
    with li.compile(li.Program("types", graphs)) as exe:
        for op, dtype, limit, fed, wanted in calls:
            for key, found in exe.entries[op](**fed).items():
                assert found.dtype == dtype
                np.testing.assert_allclose(
                    found.astype("f8"), wanted[key], atol=limit, rtol=limit, err_msg=f"{op} {key}"
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


@pytest.mark.parametrize("name", ["initial_h", "initial_c"])
@pytest.mark.parametrize("op", GATES)
def test_a_state_of_one_row_is_repeated_only_if_it_is_zero(op: str, name: str, rng: np.random.Generator) -> None:
    made, fed, arrays, attrs = built(op, PLAIN | {"state": "fixed"}, rng)
    if name not in arrays:
        return
    (state,) = (w for w in made.graph.initializer if w.name == name)
    state.CopyFrom(_tensor(name, arrays[name][:, :1]))
    with pytest.raises(li.ModelError, match=f"{name} has the values of one row, not all 0, and X has [B3] rows"):
        li.from_onnx(made)
    state.CopyFrom(_tensor(name, 0 * arrays[name][:, :1]))
    got = li.interpret(li.from_onnx(made), fed)
    for key, want in expected(op, arrays | {name: 0 * arrays[name]}, attrs).items():
        np.testing.assert_allclose(got[key], want, atol=3e-6, rtol=3e-6, err_msg=key)


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
