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
        ([B], "expected an executable or arrays by name, got list"),
    ],
)
def test_what_does_not_fit_is_refused(weights: Any, said: str) -> None:
    with pytest.raises(li.IRError, match=f"with_weights: {said}"):
        li.with_weights(graph(), weights)


def test_an_executable_without_such_state_is_refused() -> None:
    with pytest.raises(li.IRError, match="the executable keeps nothing, and graph @line has none of these weights"):
        li.with_weights(graph(), li.compile(graph()))
    with pytest.raises(li.GradientError, match="with_weights: takes a graph, got the program"):
        li.with_weights(li.Program.of(graph()), {})  # type: ignore[arg-type]
