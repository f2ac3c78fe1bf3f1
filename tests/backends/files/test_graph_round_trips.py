"""Graphs of every kind through a package, whose module is not looked at: the same text, the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import zoo
from device import model_file, need

import lstm_ir as li
from lstm_ir.backends.files.archive import write_package
from lstm_ir.backends.files.packed_graph import PackedGraph
from lstm_ir.backends.run.devices import resolve

GIVEN: dict[str, Any] = {"silero": {"constants": {"sr": 16000}, "sizes": {"input_0": "B", "input_1": 576}}}
REAL = (
    "dtln1", "dtln2", "silero", "zoo_bidaf", "zoo_doctr_crnn", "zoo_encodec_slstm", "zoo_rnnoise",
    "zoo_rsl_rl_lstm_policy", "zoo_tagger_packed",
)  # fmt: skip


def through_a_package(made: li.Graph | li.Program, folder: Path) -> li.Program:
    program = li.Program.of(made)
    weights = {n: d.array for n, d in program.weights.items()}
    state = {n: s.initial.array for n, s in program.state.items()}
    graph = PackedGraph.of(program, ["cpu"], {})
    file = folder / "m.lirpkg"
    write_package(file, program.signature(), {"cpu": (resolve("cpu"), b"none")}, weights, state=state, graph=graph)
    found = li.Program.of(li.source(file))
    assert str(found) == str(program)
    for name, data in program.weights.items():
        got = found.weights[name].array
        assert got.dtype == data.array.dtype
        np.testing.assert_array_equal(got, data.array)
        if got.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(got), np.signbit(data.array))
    return found


@pytest.mark.parametrize("name", zoo.ZOO)
def test_the_zoo(name: str, tmp_path: Path) -> None:
    animal = zoo.get(name)
    found = through_a_package(animal.graph, tmp_path).entries["main"]
    want = li.interpret(animal.graph, animal.inputs)
    for output, a in li.interpret(found, animal.inputs).items():
        np.testing.assert_array_equal(a, want[output])


ODD: dict[str, Any] = {
    "nan": np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0], np.float32),
    "many nan": np.full(40, np.nan, np.float32),
    "bf16": np.linspace(-3, 3, 30).astype(ml_dtypes.bfloat16),
    "few bf16": np.array([1.5, -0.0, 1e-40], ml_dtypes.bfloat16),
    "f16": np.array([65504.0, 6e-8, -0.0], np.float16),
    "f64": np.array([np.pi, 5e-324, 1.7976931348623157e308]),
    "i64": np.array([-(2**63), 2**63 - 1]),
    "u32": np.array([0, 2**32 - 1], np.uint32),
    "i8": np.arange(-128, 128).astype(np.int8),
    "booleans": np.arange(40) % 3 == 0,
    "one": np.array(2.5, np.float32),
    "none": np.zeros((0, 3), np.float32),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_arrays(name: str, tmp_path: Path) -> None:
    w = li.weight("w", ODD[name])
    constant = li.constant(ODD[name][::-1].copy() if ODD[name].ndim else ODD[name])
    found = through_a_package(li.Graph("odd", [], {"w": w, "c": constant}), tmp_path)
    for key, a in li.interpret(found.entries["main"]).items():
        want = ODD[name] if key == "w" or not ODD[name].ndim else ODD[name][::-1]
        np.testing.assert_array_equal(a, want)


@pytest.mark.parametrize(
    "name", ["a b", 'a"b', "a\\b", "a/b:0", "ä€𝄞", "%0", "0", "a,b", "weights.safetensors", "a\tb"]
)
def test_odd_names(name: str, tmp_path: Path) -> None:
    x = li.input(name, ("T", 2))
    graph = li.Graph(
        "odd", [x], {f"{name}!": x * li.weight(f"{name}?", np.arange(34, dtype=np.float32).reshape(17, 2)[:1])}
    )
    found = through_a_package(graph, tmp_path).entries["main"]
    assert found.input_names == graph.input_names
    assert found.output_names == graph.output_names


def test_a_weight_and_a_state_of_one_array(tmp_path: Path) -> None:
    """Arrays are found by their hash, whatever they are called."""
    x, h = li.input("x", (2, 3)), li.input("h", (2, 3))
    half = np.full((2, 3), 0.5, np.float32)
    graph = li.Graph("both", [x, h], {"y": (x + h) * li.weight("w", half), "next": x - h})
    program = li.stateful(graph, {"h": "next"}, {"h": half})
    assert str(through_a_package(program, tmp_path)) == str(program)


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_models(name: str, tmp_path: Path) -> None:
    """Of files that lie beside the project, where they do."""
    need("onnx")
    need("onnx_ir")
    graph = li.from_onnx(model_file(f"{name}.onnx"), **GIVEN.get(name, {}))
    through_a_package(graph, tmp_path)
