"""What `train` gives beside the loss, and the entry `evaluate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable

pytestmark = pytest.mark.one_day("exe")

Array = np.ndarray[Any, Any]
T, B, I, H, C = 6, 4, 3, 5, 2
RNG = np.random.default_rng(20261124)
SHAPES = {"w_ih": (4 * H, I), "w_hh": (4 * H, H), "out": (C, H)}
START = {n: RNG.uniform(-0.6, 0.6, s).astype("f4") for n, s in SHAPES.items()}


def graph(rate: float = 0.0, arrays: Mapping[str, Array] = START) -> li.Graph:
    """x [T,B,I], label [B] -> loss, accuracy, h_n, scores; with dropout where rate is not 0."""
    w = {n: li.weight(n, arrays[n]) for n in SHAPES}
    x, label, step = li.input("x", ("T", "B", I)), li.input("label", ("B",), "i32"), li.input("step", (), "i64")
    given = li.dropout(x, rate, li.random_key(3, step)) if rate else x
    _, h_n, _ = li.lstm(given, w["w_ih"], w["w_hh"])
    scores = li.dense(h_n[0], w["out"])
    accuracy = li.mean(li.convert(li.equal(li.argmax(scores, 1), label), "f32"))
    outputs = {"loss": li.cross_entropy(scores, label), "scores": scores, "accuracy": accuracy, "h_n": h_n}
    return li.Graph("g", [x, label, step], outputs)


def batch(rng: np.random.Generator) -> dict[str, Array]:
    return {"x": rng.standard_normal((T, B, I)).astype("f4"), "label": rng.integers(0, C, B).astype("i4")}


def program(**options: Any) -> li.Program:
    shown = ("accuracy", "h_n")
    return li.train_step(graph(0.4), "loss", li.sgd(0.5), outputs=shown, evaluate=True, **options)


@pytest.fixture(scope="module")
def exe() -> Iterator[Executable]:
    with li.compile(program().only("train", "evaluate")) as made:
        yield made


def held(session: Any) -> dict[str, Array]:
    return {n: session.state[n] for n in session.state}


def test_train_gives_what_it_computed(exe: Executable, rng: np.random.Generator) -> None:
    """The outputs of training: of the weights before the update, with what was dropped."""
    with exe.session() as s:
        for step in range(4):
            b, before = batch(rng), held(s)
            got = s.entries["train"](b)
            assert set(got) == {"loss", "grad_norm", "accuracy", "h_n"}
            given = {**b, "step": np.int64(step)}
            want = li.interpret(graph(0.4, before), given)
            for n in ("loss", "accuracy", "h_n"):
                np.testing.assert_allclose(got[n], want[n], atol=1e-5, err_msg=n)
            still = li.interpret(graph(0.0, before), given)
            assert np.abs(still["h_n"] - got["h_n"]).max() > 1e-2, "nothing was dropped"


def test_evaluate_drops_and_updates_nothing(exe: Executable, rng: np.random.Generator) -> None:
    with exe.session() as s:
        for _ in range(3):
            s.entries["train"](batch(rng))
        b, before = batch(rng), held(s)
        got = s.entries["evaluate"](b)
        assert set(got) == {"loss", "scores", "accuracy", "h_n"}
        given = {**b, "step": np.int64(99)}
        want = li.interpret(graph(0.0, before), given)
        for n, a in want.items():
            np.testing.assert_allclose(got[n], a, atol=1e-5, err_msg=n)
        assert got["accuracy"] == (got["scores"].argmax(1) == b["label"]).mean(dtype="f4")
        for n, a in before.items():
            np.testing.assert_array_equal(s.state[n], a, err_msg=n)


def test_a_loss_that_is_not_finite_is_evaluated(exe: Executable, rng: np.random.Generator) -> None:
    b = batch(rng)
    b["x"][...] = np.nan
    assert np.isnan(exe.entries["evaluate"](b)["loss"])
    with pytest.raises(li.ValueRangeError, match="train: loss is nan at step 1"):
        exe.entries["train"](b)


def test_nothing_is_computed_that_is_not_asked_for() -> None:
    assert set(li.train_step(graph(), "loss", li.sgd(0.5)).entries) == {"train", "infer"}
    plain = li.train_step(graph(), "loss", li.sgd(0.5), grads=True)
    assert set(plain.entries) == {"train", "grads", "apply", "infer"}
    assert set(plain.signature().entries["train"].outputs[i].name for i in range(2)) == {"loss", "grad_norm"}
    assert len(plain.signature().entries["train"].outputs) == 2
    more = li.train_step(graph(), "loss", li.sgd(0.5), outputs="accuracy", grads=True)
    assert len(more.entries["train"].nodes) > len(plain.entries["train"].nodes)
    assert len(more.entries["grads"].nodes) == len(plain.entries["grads"].nodes)
    assert {p.name for p in plain.signature().entries["infer"].inputs} == {"x", "label"}


def test_infer_takes_what_its_outputs_need() -> None:
    made = li.train_step(graph(), "loss", li.sgd(0.5), infer=("scores", "h_n"), evaluate=True).signature().entries
    assert [p.name for p in made["infer"].inputs] == ["x"]
    assert [p.name for p in made["infer"].outputs] == ["scores", "h_n"]
    assert [p.name for p in made["evaluate"].outputs] == ["loss", "scores", "accuracy", "h_n"]
    assert "infer" not in li.train_step(graph(), "loss", li.sgd(0.5), infer=()).entries


def test_the_forward_pass_is_made_once() -> None:
    """An output reads the node that the gradient keeps, not another one."""
    lstms = [n for n in program().entries["train"].nodes if n.op.name == "lstm"]
    assert len(lstms) == 1


def test_outputs_are_the_same_where_states_are_computed_again(rng: np.random.Generator) -> None:
    made = [li.train_step(graph(0.4), "loss", li.sgd(0.5), outputs=("h_n", "scores"), remat=k) for k in (None, 2)]
    b = batch(rng)
    one, two = (
        li.interpret(p.entries["train"], {**{n: v.initial.array for n, v in p.state.items()}, **b}) for p in made
    )
    assert set(one) == set(two)
    for n, a in one.items():
        np.testing.assert_allclose(two[n], a, atol=1e-6, err_msg=n)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"outputs": "los"}, "no other output 'los'; there is scores, accuracy, h_n"),
        ({"outputs": ["accuracy", "loss"]}, "no other output 'loss'"),
        ({"outputs": 5}, "outputs is 5; expected a name or a list of names"),
        ({"outputs": [5]}, "expected a name or a list of names"),
        ({"infer": "los"}, "infer: graph @g has no other output 'los'; there is scores, accuracy, h_n"),
        ({"infer": 5}, "infer is 5; expected a name or a list of names"),
        ({"evaluate": 1}, "evaluate is 1; expected True or False"),
    ],
)
def test_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(li.GradientError, match=problem):
        li.train_step(graph(), "loss", li.sgd(0.5), **options)


def test_an_output_that_is_called_as_a_weight_is() -> None:
    x, w = li.input("x", (3,)), li.weight("w", np.ones(3, "f4"))
    g = li.Graph("g", [x], {"loss": li.sum(x * w * w), "w": x * w})
    with pytest.raises(li.GradientError, match="an output of train is called 'w', as a weight that is trained is"):
        li.train_step(g, "loss", li.sgd(0.1), outputs="w")
