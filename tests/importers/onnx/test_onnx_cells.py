"""Cells as exporters write them, with plain ops: right as they stand, and found by the pass `fuse-cell`.

The files and the frameworks' results were recorded by tests/oracles/record_onnx_cells.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need
from paths import DATA, MODELS

import lstm_ir as li
from lstm_ir.importers.examined import planned
from lstm_ir.importers.onnx.examine import examine
from lstm_ir.passes.pipeline import PassResult, Pipeline

FOLDER = DATA / "onnx_cells"
NAMES = sorted(p.stem for p in FOLDER.glob("*.onnx"))
CORE = Pipeline.parse("core")
B, I, H = 4, 5, 7
Arrays = dict[str, Any]


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx")
    need("onnx_ir")


def open_sizes(path: Path) -> dict[str, str]:
    """Every size without a number is B: TensorFlow gives each input a name of its own."""
    import onnx

    dims = [d for v in onnx.load(path).graph.input for d in v.type.tensor_type.shape.dim]
    return {d.dim_param: "B" for d in dims if d.dim_param}


def recorded(name: str) -> tuple[li.Graph, Arrays, Arrays]:
    """The graph, its inputs, and the framework's results."""
    path = FOLDER / f"{name}.onnx"
    graph = li.from_onnx(path, sizes=open_sizes(path))
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as found:
        arrays = dict(found)
    return graph, {n: arrays[n] for n in graph.input_names}, {n: arrays[n] for n in graph.output_names}


def close(got: Arrays, want: Arrays) -> None:
    assert set(got) == set(want)
    for n, w in want.items():
        np.testing.assert_allclose(got[n], w, rtol=2e-6, atol=2e-6, err_msg=n)


def cells(result: PassResult) -> list[li.Node]:
    return [n for n in result.graph.nodes if n.op.name in ("lstm", "gru", "rnn")]


def test_all_exporters_are_recorded() -> None:
    kinds = {tuple(n.split("_")[:3]) for n in NAMES}
    exporters = (("torch", "script"), ("torch", "dynamo"), ("keras", "tf2onnx"))
    assert kinds == {(*e, k) for e in exporters for k in ("lstm", "gru")}
    assert len(NAMES) == 21


@pytest.mark.parametrize("name", NAMES)
def test_as_plain_ops(name: str) -> None:
    graph, arrays, want = recorded(name)
    close(li.interpret(graph, arrays), want)


@pytest.mark.parametrize("name", NAMES)
def test_found_by_the_pass(name: str) -> None:
    graph, arrays, want = recorded(name)
    result = CORE.run(graph)
    close(li.interpret(result.graph, arrays), want)
    kind = "lstm" if "lstm" in name else "gru"
    assert [n.op.name for n in cells(result)] == [kind]
    if "unrolled" in name:  # three steps, written one after the other
        assert [n.inputs[0].shape[0] for n in cells(result)] == [3]
    left = [n.op.name for n in result.graph.nodes if n.op.name in ("tanh", "dot_general", "clamp", "minimum")]
    assert not left
    for n in cells(result):
        assert (n.arg("b") is None) == ("no_bias" in name)
        if kind == "gru":
            assert n.attrs["reset_after"] == ("before" not in name)
        elif "hard" in name:
            assert n.attrs["activations"][0].startswith("hard_sigmoid(0.1666666")
        elif "relu" in name:
            assert n.attrs["activations"] == ("sigmoid", "sigmoid", "relu", "sigmoid", "relu")
        else:
            assert n.attrs["activations"] == ()


@pytest.mark.parametrize("name", NAMES)
def test_counted_in_the_report(name: str) -> None:
    path = FOLDER / f"{name}.onnx"
    found = examine(path, sizes=open_sizes(path))
    assert found.graph is not None
    (step,) = [s for s in CORE.run(found.graph).steps if s.name == "fuse-cell"]
    report = planned(found.report, "cpu", step.after, (), kernels=True)
    assert report.fused == 1
    assert {r.kind for r in report.recurrences} == {"lstm" if "lstm" in name else "gru"}
    if "packed" in name:
        assert [(s.input, s.output) for s in report.states] == [("state", "out1")]


@pytest.mark.parametrize("name", NAMES)
def test_other_batches_beside_onnxruntime(name: str, rng: np.random.Generator) -> None:
    need("onnxruntime")
    import onnx

    graph, arrays, _ = recorded(name)
    made = onnx.load(FOLDER / f"{name}.onnx")
    for batch in (1, 6):
        given = {
            n: rng.standard_normal([batch if d == B else d for d in a.shape]).astype(a.dtype) for n, a in arrays.items()
        }
        want = dict(zip(graph.output_names, om.run(made, given), strict=True))
        close(li.interpret(CORE.run(graph).graph, given), want)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_compiled(name: str) -> None:
    graph, arrays, want = recorded(name)
    with li.compile(graph) as exe:
        close(exe(arrays), want)


def test_an_unrolled_lstm_of_a_real_file() -> None:
    path = MODELS / "dtln2.onnx"
    if not path.is_file():
        pytest.skip("the file is not here")
    graph = li.from_onnx(path)
    result = CORE.run(graph)
    assert [n.op.name for n in cells(result)] == ["lstm", "lstm"]


def test_quantized_weights_stay_small() -> None:
    """The scale is a scalar, so a literal; the product of it and 8-bit integers is not stored."""
    q = np.arange(300 * 300).astype(np.int8).reshape(300, 300)
    nodes = [om.node("DequantizeLinear", ["q", "scale"], ["w"]), om.node("MatMul", ["x", "w"], ["y"])]
    made = om.model(nodes, {"x": (["B", 300], "f4")}, ["y"], {"q": q, "scale": np.array(0.5, np.float32)})
    graph = li.from_onnx(made)
    held = [n.types[0] for n in graph.nodes if n.op.name in ("constant", "weight")]
    assert [t.dtype for t in held if t.rank == 2] == [li.DType.i8]
    x = np.ones((2, 300), np.float32)
    np.testing.assert_allclose(li.interpret(graph, x=x)["y"], x @ (q * np.float32(0.5)), rtol=1e-6)


# scalars ----------------------------------------------------------------------------------------


def test_a_scalar_initializer_is_a_number_and_one_with_an_axis_a_weight() -> None:
    """Training must not change the 1 of 1 - z."""
    nodes = [om.node("Sub", ["one", "x"], ["a"]), om.node("Mul", ["a", "scale"], ["y"])]
    weights = {"one": np.array(1.0, np.float32), "scale": np.array([2.0], np.float32)}
    graph = li.from_onnx(om.model(nodes, {"x": ([3], "f4")}, ["y"], weights))
    assert set(graph.weights) == {"scale"}
    x = np.array([0.25, 0.5, 4.0], np.float32)
    np.testing.assert_array_equal(li.interpret(graph, x=x)["y"], (1 - x) * 2)
