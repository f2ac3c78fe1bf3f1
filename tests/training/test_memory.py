"""`memory`: where loops are cut so that what they save fits, and what long sequences take."""

from __future__ import annotations

from typing import Any

import child
import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.training.memory import limit_of, readable

Array = np.ndarray[Any, Any]
B, H = 2, 4


def cell(h: Any, x: Any, u: Any) -> Any:
    h = li.tanh(x + h @ u)
    return h, h


def model(T: Any, kind: str = "scan", layers: int = 1) -> li.Graph:
    rng = np.random.default_rng(0)
    x = y = li.input("x", (T, B, H))
    for k in range(layers):
        u = li.weight(f"u{k}", (rng.normal(size=(H, H)) / 2).astype("f4"))
        if kind == "scan":
            _, y = li.scan(cell, li.zeros((B, H)), y, u)
        else:
            w = li.weight(f"w{k}", (rng.normal(size=(4 * H, 2 * H)) / 2).astype("f4"))
            y, _, _ = li.lstm(y, w[:, :H], w[:, H:], li.weight(f"b{k}", np.zeros(4 * H, "f4")))
    return li.Graph("g", [x], {"loss": li.mean(y * y)})


def loops(graph: li.Graph) -> list[int]:
    """How deep loops stand in one another: 1 for each that stands alone."""
    return [1 + max(loops(n.attrs["body"]), default=0) for n in graph.nodes if n.op.name == "scan"]


STATE = B * H * 4  # bytes of a step's state, which is all that the cell saves


def test_what_fits_is_not_cut() -> None:
    """Carries of 1000 steps, and the stacked terms of the sum over all steps, are twice 1000 states."""
    graph = li.grad(model(1000), "loss", "u0", memory=2 * 1000 * STATE)
    assert max(loops(graph)) == 1
    assert max(loops(li.grad(model(1000), "loss", "u0", memory=2 * 1000 * STATE - 1))) == 2


def test_segments_and_segments_of_segments() -> None:
    """One level needs about 2 sqrt(2 T) states, two levels 3 (2 T)^(1/3) at the cost of one more pass."""
    one = li.grad(model(1000), "loss", "u0", memory=90 * STATE)
    assert max(loops(one)) == 2
    two = li.grad(model(1000), "loss", "u0", memory=89 * STATE)
    assert max(loops(two)) == 3


def test_the_least_is_said() -> None:
    with pytest.raises(li.GradientError) as found:
        li.grad(model(1000), "loss", "u0", memory="1KiB")
    said = str(found.value)
    assert said.startswith("grad: memory is 1KiB; the loops save 1.")
    assert "KiB at least, with remat=(" in said
    assert said.endswith("and 62.5KiB without")
    least = said.split("save ")[1].split(" at least")[0]
    assert max(loops(li.grad(model(1000), "loss", "u0", memory=least))) == 3


@pytest.mark.parametrize("kind", ["scan", "lstm"])
@pytest.mark.parametrize("states", [100000, 300, 120])
def test_the_gradient_is_the_same(kind: str, states: int) -> None:
    """Of two layers, with T as a name whose size is given."""
    given = {"x": np.random.default_rng(1).normal(size=(300, B, H)).astype("f4")}
    graph = model("T", kind, 2)
    names = [n for n in graph.weights if n != "u0" or kind == "scan"]
    want = li.interpret(li.grad(graph, "loss", names), given)
    made = li.grad(graph, "loss", names, memory=states * STATE * (1 if kind == "scan" else 6), sizes={"T": 300})
    assert (max(loops(made), default=1) > 1) == (states < 100000)
    got = li.interpret(made, given)
    for k, v in want.items():
        np.testing.assert_allclose(got[k], v, rtol=2e-5, atol=1e-7, err_msg=k)


@pytest.mark.parametrize("remat", [(20, 6), (60, 5), (12, 3, 1), (400, 7)])
@pytest.mark.parametrize("length", [1, 50])
def test_levels(remat: tuple[int, ...], length: int) -> None:
    given = {"x": np.random.default_rng(1).normal(size=(length, B, H)).astype("f4")}
    for T in ("T", length):
        want = li.interpret(li.grad(model(T), "loss", ["x", "u0"]), given)
        got = li.interpret(li.grad(model(T), "loss", ["x", "u0"], remat=remat), given)
        for k, v in want.items():
            np.testing.assert_allclose(got[k], v, rtol=2e-5, atol=1e-7, err_msg=k)


def test_a_program_that_trains() -> None:
    rows = np.random.default_rng(1).normal(size=(60, B, H)).astype("f4")
    steps = []
    for more in ({}, {"memory": 60 * STATE}, {"memory": 60 * STATE, "sizes": {"T": 60}}):
        graph = model("T" if "sizes" in more else 60)
        program = li.train_step(graph, "loss", li.sgd(0.1), **more)
        assert max(loops(program.entries["train"])) == (2 if more else 1)
        if "sizes" not in more:
            learner = li.compile(program.only("train"))
            learner.entries["train"](x=rows)
            steps.append(learner.state["u0"])
    np.testing.assert_allclose(steps[1], steps[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"memory": "lots"}, "memory is 'lots'; expected bytes, or a text such as \"256MiB\""),
        ({"memory": 0}, "memory is 0; expected bytes"),
        ({"memory": 1.5}, "memory is 1.5; expected bytes"),
        ({"memory": "1MiB", "remat": 3}, "remat and memory are given; memory chooses remat"),
        ({"memory": 9}, "memory needs the sizes of a call: the dimension T has no value here; give them: sizes="),
        ({"memory": 9, "sizes": {"T": "x"}}, "sizes is {'T': 'x'}; expected numbers by name"),
        ({"sizes": {"T": 3}}, "sizes are those at which memory is counted; memory is not given"),
        ({"remat": (3, 5)}, r"remat is \(3, 5\); each number of steps is below the one before it"),
        ({"remat": ()}, r"remat is \(\); it is a number of steps, at least 1, or a few of them"),
    ],
)  # fmt: skip
def test_what_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(li.GradientError, match=problem):
        li.grad(model("T"), "loss", "u0", **options)


def test_texts_of_sizes() -> None:
    for text, size in (("256MiB", 2**28), ("1.5 kB", 1500), ("7", 7), ("2GB", 2 * 10**9), ("3KiB", 3072)):
        assert limit_of("grad", text) == size
    for size, text in ((900, "900B"), (2048, "2KiB"), (2049, "2.1KiB"), (2**20 * 3 // 2, "1.5MiB"), (2**31, "2GiB")):
        assert readable(size) == text


# Peaks of processes of their own: what the allocator held at most, what the process grew by, inputs and results.


def peak(*words: object) -> tuple[int, int, int]:
    held, grown, own = map(int, child.script("long_memory.py", *words).split())
    return held, grown, own


@pytest.mark.slow
def test_inference_takes_inputs_and_results() -> None:
    """At T = 100,000, one row: 51.2 MB. Products of the rows that were made before the loop would be 102 MB more."""
    held, grown, own = peak("infer", 100_000)
    assert own == 2 * 100_000 * 64 * 4
    assert held < own + 2**20
    assert grown < own + 8 * 2**20


@pytest.mark.slow
def test_a_gradient_with_a_limit() -> None:
    """Beside what the limit counts there are the rows x, the states y of whole segments and with the rest of the steps
    behind them, which named sizes join in a tensor of their own, and the gradient of both."""
    limit, rows = 16 * 2**20, 100_000 * 64 * 4
    held, grown, own = peak("train", 100_000, limit)
    assert held < own + 4 * rows + limit // 4
    assert grown < own + 4 * rows + limit // 4 + 8 * 2**20
    free, _, own = peak("train", 50_000)
    assert free > own + 4 * rows // 2 + limit // 4, "the bound would hold without a limit"
