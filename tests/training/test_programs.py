"""Programs that users put together: entries that read what is trained, states, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_ir as li

any_: Any = li
RATE = 0.5
X, Y = li.input("x", ("B", 2)), li.input("y", ("B", 1))
START = np.array([[0.25, -0.5]], "f4")
BIAS = np.array([0.125], "f4")


def line(w: Any = START) -> tuple[li.Value, li.Graph, li.Graph]:
    """w x + b, its loss as a graph, and its prediction as another one; b is not trained."""
    predicted = li.dense(X, li.weight("w", w), li.weight("b", BIAS))
    loss = li.Graph("line", [X, Y], {"loss": li.mse(predicted, Y), "predicted": predicted})
    return predicted, loss, li.Graph("act", [X], {"act": predicted})


def trained() -> li.Program:
    return li.train_step(line()[1], "loss", li.sgd(RATE), trainable="w", infer=())


def test_an_entry_that_is_added_acts_with_the_weights_as_trained() -> None:
    program = trained().with_entry("act", line()[2])
    assert list(program.entries) == ["train", "act"]
    assert program.signature().entries["act"].reads == ("w",)
    assert list(program.only("act").weights) == ["b"]
    assert str(li.parse(str(program))) == str(program)
    x, y = np.array([[1.0, 2.0], [0.5, -1.0]], "f4"), np.array([[3.0], [-1.0]], "f4")
    w = START.astype(np.float64)
    with li.compile(program) as exe:
        for _ in range(3):
            np.testing.assert_allclose(exe.entries["act"](x=x)["act"], x @ w.T + BIAS, rtol=1e-5)
            exe.entries["train"](x=x, y=y)
            w -= RATE * 2 * ((x @ w.T + BIAS - y).T @ x) / len(x)
        assert np.abs(w - START).max() > 0.1


def test_a_weight_in_the_place_of_a_state_is_refused() -> None:
    old = trained()
    entries = {**old.entries, "act": line()[2]}
    with pytest.raises(
        li.VerifyError, match=r"entry 'act': weight 'w' would not be the state of this name; .*with_entry"
    ):
        li.Program("line", entries, old.state, old.binding, old.finite)


def test_an_entry_that_cannot_be_added_is_refused() -> None:
    program: Any = trained()
    wide = li.Graph("g", [X], {"y": X * li.weight("w", np.zeros(2, "f4"))})
    with pytest.raises(li.VerifyError, match=r"entry 'act': weight 'w' is f32\[2\], state 'w' is f32\[1,2\]"):
        program.with_entry("act", wide)
    with pytest.raises(li.VerifyError, match="entry 'train': there is one of this name"):
        program.with_entry("train", line()[2])
    with pytest.raises(li.VerifyError, match="entry 'act': expected a graph, got Program"):
        program.with_entry("act", program)
    w = li.input("w", (1, 2))
    both = li.Graph("g", [w], {"y": w + li.weight("w", START)})
    with pytest.raises(li.VerifyError, match="'w' is an input and a weight that is state; rename the input"):
        program.with_entry("act", both)


def counter(**states: Any) -> li.Program:
    """`count` adds 1 to n."""
    n = li.input("n", (), "i64")
    graph = li.Graph("count", [n], {"next": n + 1})
    return li.Program("p", {"count": graph}, states, {"count": ({"n": "n"}, {"next": "n"})})


@pytest.mark.parametrize(
    "initial", [np.int64(4), np.array(4, "i8"), li.Data.of(np.int64(4))], ids=["scalar", "array", "data"]
)
def test_a_state_starts_as_an_array(initial: Any) -> None:
    program = counter(n=li.State("n", initial))
    with li.compile(program) as exe:
        exe()
        assert exe.state["n"] == 5


def test_a_number_that_starts_a_state_has_the_dtype_of_the_state() -> None:
    state = li.State("h", 0.5, li.input("h", ("B", 3), "f64").type)
    assert state.initial.type == li.TensorType((), li.DType.f64)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: counter(n=li.State("m", np.int64(0))), "state 'm' stands under the name 'n'"),
        (lambda: counter(n=np.int64(0)), r"state 'n': expected li\.State\('n', array\), got int64"),
        (lambda: any_.State(3, np.int64(0)), "a state is called 3; expected text"),
        (lambda: any_.Program("p", {"main": 3}), "entry 'main': expected a graph, got int"),
        (
            lambda: any_.Program("p", {"act": line()[2]}, {}, {"act": {"x": "x"}}),
            r"entry 'act': its binding is \{'x': 'x'\}; expected \(\{input: state\}, \{output: state\}\)",
        ),
        (lambda: any_.Program("p", {"act": line()[2]}, {}, {"act": ("x", "y")}), "its binding is"),
    ],
)
def test_what_is_no_program_is_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(li.VerifyError, match=problem):
        make()


def test_a_type_takes_text() -> None:
    made = any_.TensorType(["T", "2*B", 4], "float32")
    assert made == li.input("x", ("T", "2*B", 4)).type
    assert made.dtype is li.DType.f32
    with pytest.raises(li.IRError, match="element type 'flot' is not one of f16"):
        any_.TensorType((2,), "flot")
