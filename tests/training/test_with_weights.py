"""`li.with_weights`: what was trained, as the weights of the graph that is shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_ir as li

W = np.arange(15, dtype="f4").reshape(3, 5) / 10
B = np.full(5, 0.5, "f4")


def graph(rows: int | str = "N") -> li.Graph:
    x = li.input("x", (rows, 3))
    return li.Graph("line", [x], {"y": x @ li.weight("w", W) + li.weight("b", B)})


def learner() -> Any:
    inference = graph()
    want = li.input("want", ("N", 5))
    loss = li.mse(inference.output("y"), want)
    return li.compile(li.train_step(li.Graph("fit", [*inference.params, want], {"loss": loss}), "loss", li.adam(0.1)))


def test_a_trained_program_gives_its_weights(tmp_path: Path, rng: np.random.Generator) -> None:
    x, want = (rng.standard_normal(s).astype("f4") for s in ((7, 3), (7, 5)))
    exe = learner()
    for _ in range(3):
        exe.entries["train"](x=x, want=want)
    w, b = (np.asarray(exe.state[n]) for n in ("w", "b"))
    assert np.abs(w - W).max() > 0.1
    made = li.with_weights(graph(), exe)
    np.testing.assert_allclose(li.interpret(made, x=x)["y"], x @ w + b, rtol=1e-5, atol=1e-5)
    li.export(made, tmp_path / "line.lirpkg", ["cpu:host"])
    with li.load(tmp_path / "line.lirpkg") as loaded:
        np.testing.assert_allclose(loaded(x=x)["y"], x @ w + b, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(loaded.weights["w"], w)


def test_arrays_by_name_and_what_is_not_named_stays() -> None:
    made = li.with_weights(graph(), {"b": np.zeros(5, "f4")})
    x = np.eye(3, dtype="f4")
    np.testing.assert_array_equal(li.interpret(made, x=x)["y"], W)
    assert li.with_weights(graph(), {}).weights.keys() == {"w", "b"}


def test_weights_inside_of_loops_and_locations_stay() -> None:
    x, w = li.input("x", ("T", 2)), li.weight("w", np.ones((2, 2), "f4"))
    y = li.scan(lambda h, x, w: ((h + x) @ w, h), li.zeros((2,)), x, (w,))[1]
    assert isinstance(y, li.Value)
    made = li.with_weights(li.Graph("g", [x], {"y": y}), {"w": np.zeros((2, 2), "f4")})
    np.testing.assert_array_equal(li.interpret(made, x=np.ones((3, 2), "f4"))["y"], np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"v": B}, "graph @line has no weight 'v'; it has w, b"),
        ({"b": np.zeros(4, "f4")}, r"b is f32\[4\], in graph @line f32\[5\]"),
        ({"b": np.zeros(5)}, r"b is f64\[5\], in graph @line f32\[5\]"),
        ([B], "expected an executable, arrays by name or the path of a file, got list"),
        (3, "expected an executable, arrays by name or the path of a file, got int"),
    ],
)
def test_what_does_not_fit_is_refused(weights: Any, said: str) -> None:
    with pytest.raises(li.IRError, match=f"with_weights: {said}"):
        li.with_weights(graph(), weights)


def test_a_file_gives_its_weights(tmp_path: Path) -> None:
    """Of what `save_state` wrote, too: what the optimizer keeps is passed over."""
    exe, path = learner(), tmp_path / "line.safetensors"
    exe.state["b"] = np.arange(5, dtype="f4")
    exe.save_state(path)
    assert {"w", "b", "step", "adam/m/w"} < li.read_weights(path).keys()
    made = li.with_weights(graph(), path)
    np.testing.assert_array_equal(li.interpret(made, x=np.eye(3, dtype="f4"))["y"], W + np.arange(5, dtype="f4"))
    x = li.input("x", (2,))
    with pytest.raises(li.IRError, match=r"the file .*line\.safetensors holds .*; graph @g has none of these weights"):
        li.with_weights(li.Graph("g", [x], {"y": x * li.weight("v", np.ones(2, "f4"))}), str(path))
    with pytest.raises(li.PackageError, match=r"line\.txt: expected a \.npz or \.safetensors file"):
        li.with_weights(graph(), tmp_path / "line.txt")


def test_a_package_gives_its_weights(tmp_path: Path) -> None:
    li.export(li.with_weights(graph(), {"b": np.zeros(5, "f4")}), tmp_path / "line.lirpkg", ["cpu:host"])
    with li.load(tmp_path / "line.lirpkg") as loaded:
        made = li.with_weights(graph(), loaded)
    np.testing.assert_array_equal(li.interpret(made, x=np.eye(3, dtype="f4"))["y"], W)


def test_an_executable_without_such_weights_is_refused() -> None:
    x = li.input("x", (2,))
    other: Any = li.Graph("g", [x], {"y": x + 1.0})
    with pytest.raises(li.IRError, match="the executable holds nothing; graph @line has none of these weights"):
        li.with_weights(graph(), li.compile(other))
    program: Any = li.Program.of(graph())
    with pytest.raises(li.IRError, match=r"got Program, which holds no trained weights: give what li\.compile made"):
        li.with_weights(graph(), program)
    with pytest.raises(li.GradientError, match="with_weights: takes a graph, got the program"):
        li.with_weights(li.Program.of(graph()), {})  # type: ignore[arg-type]
