"""What users of other libraries type: names of arguments, methods of arrays, operands in another form."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_ir as li

any_: Any = li
X, A, V = li.input("x", ("T", "B", 5)), li.input("a", (3, 5)), li.input("v", (4, 3, 5))
W, R = np.ones((28, 5), "f4"), np.ones((28, 7), "f4")
WORDS: dict[str, tuple[Callable[[], object], str]] = {
    "b_ih": (lambda: any_.lstm(X, W, R, b_ih=W, b_hh=W), "no argument 'b_ih' or 'b_hh'. Say b = b_ih + b_hh"),
    "bias": (lambda: any_.gru(X, W, R, bias=W), "Say b, an array"),
    "bidirectional": (lambda: any_.rnn(X, W, R, bidirectional=True), 'Say direction="bidirectional"'),
    "batch_first": (lambda: any_.lstm(X, W, R, batch_first=True), 'Say layout="batch"'),
    "hidden_size": (lambda: any_.lstm_stack(X, [], hidden_size=3), "Say nothing, the sizes are those of w_ih"),
    "dim": (lambda: any_.sum(X, dim=1), "Did you mean axis?"),
    "keepdim": (lambda: any_.mean(X, 1, keepdim=True), "Did you mean keepdims?"),
    "eps": (lambda: any_.layer_norm(A, eps=1e-3), "Did you mean epsilon?"),
    "p": (lambda: any_.dropout(A, p=0.1, key=1), "Did you mean rate?"),
    "a typing error": (lambda: any_.softmax(A, axsi=1), "Did you mean axis?"),
    "an unknown word": (lambda: any_.relu(A, zzz=1), "no argument 'zzz'; they are x"),
    "too few": (lambda: any_.relu(), "missing a required argument: 'x'; it is relu(x)"),
    "too many": (lambda: any_.relu(A, 1, 2), "too many positional arguments; it is relu(x)"),
    "seed for a key": (lambda: li.random_normal(0, (3,)), "li.random_key(0) makes a key"),
    "floats for ids": (lambda: li.embedding(np.ones((4, 2), "f4"), A), "embedding: ids are f32[3,5], not integers"),
    "ids first": (lambda: li.embedding(np.ones((2, 3), "i4"), A), "The other way round?"),
    "concat": (lambda: any_.concat(A, A), "takes a list of values: li.concat([x, y])"),
    "stack": (lambda: any_.stack(A, A), "takes a list of values: li.stack([x, y])"),
    "right matrix": (lambda: A @ np.ones((7, 5), "f4"), "and 7 (rhs axis 0). Transposed? the right one (rhs.T)"),
    "left matrix": (lambda: li.matmul(A, np.ones((3, 7), "f4")), "Transposed? the left one (lhs.T)"),
    "batched": (lambda: V @ li.input("w", (4, 7, 5)), "Transposed? the right one (li.swapaxes(rhs, -1, -2))"),
    "no way round": (lambda: A @ np.ones((7, 2), "f4"), "5 (lhs axis 1) and 7 (rhs axis 0)\n"),
}


@pytest.mark.parametrize("name", WORDS)
def test_our_word_is_said(name: str) -> None:
    case, said = WORDS[name]
    with pytest.raises(li.IRError) as caught:
        case()
    assert said in str(caught.value)
    assert "test_foreign_words.py:" in str(caught.value)


def test_what_is_advised_works() -> None:
    r = np.ones((28, 7), "f4")
    assert li.lstm(X, W, r, W.sum(1) + W.sum(1), direction="reverse", layout="batch").y.rank == 3
    assert li.random_normal(li.random_key(0), (3,)).shape == (3,)
    assert (A @ np.ones((7, 5), "f4").T).shape == (3, 7)
    assert (V @ li.swapaxes(li.input("w", (4, 7, 5)), -1, -2)).shape == (4, 3, 7)
    assert li.concat([A, A]).shape == (6, 5)


def test_an_argument_error_is_a_type_error_too() -> None:
    with pytest.raises(TypeError) as caught:
        any_.sum(X, dim=1)
    assert isinstance(caught.value, li.ArgumentError)


def test_a_type_error_inside_a_cell_stays_what_it_is() -> None:
    def cell(carry: Any, x: Any) -> Any:
        raise TypeError("of the user's")

    with pytest.raises(TypeError, match="of the user's") as caught:
        li.scan(cell, A[0], A)
    assert not isinstance(caught.value, li.LstmIrError)


def test_signatures_are_those_of_the_builders() -> None:
    assert list(inspect.signature(li.sum).parameters) == ["x", "axis", "keepdims"]
    assert li.sum.__name__ == "sum"
    assert li.sum.__doc__


METHODS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(1), "mean": lambda x: x.mean(axis=0), "max": lambda x: x.max(), "min": lambda x: x.min(1),
    "prod": lambda x: x.prod(1, keepdims=True), "std": lambda x: x.std(1), "var": lambda x: x.var(1, ddof=1),
    "any": lambda x: (x > 1).any(), "all": lambda x: (x > -9).all(1), "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(0), "cumsum": lambda x: x.cumsum(1), "clip": lambda x: x.clip(-1.0, 0.5),
    "round": lambda x: x.round(), "squeeze": lambda x: x[:1].squeeze(0), "swapaxes": lambda x: x.swapaxes(0, 1),
    "transpose": lambda x: x.transpose(), "transpose of axes": lambda x: x.transpose(1, 0),
    "transpose of a tuple": lambda x: x.transpose((1, 0)), "ndim": lambda x: x * x.ndim,
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_numpys(name: str, seed: int) -> None:
    a = np.random.default_rng(seed).standard_normal((3, 5))
    want = METHODS[name](a)
    x = li.input("x", (3, 5), "f64")
    got = li.interpret(li.Graph("g", [x], {"y": METHODS[name](x)}), x=a)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-12)
    assert got.shape == want.shape


def test_other_builders_are_named() -> None:
    with pytest.raises(AttributeError, match=r"write li\.exp\(x, \.\.\.\)"):
        _ = any_.input("x", (3,)).exp
    with pytest.raises(AttributeError, match="no attribute 'foo'"):
        _ = any_.input("x", (3,)).foo
    assert not hasattr(A, "__array__")
