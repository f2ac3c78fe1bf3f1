"""What a value may be: numbers that fit, arrays on either side, lengths of 64 bits, odd names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_ir as li

X = li.input("x", (2,))
I = li.input("i", (2,), "i32")
LOST: dict[str, tuple[Callable[[], Any], str]] = {
    "a float beyond f32": (lambda: X + 1e300, "1e+300 does not fit f32"),
    "a fraction as u8": (lambda: li.weight("w", np.array([300.7, -5.0]), "u8"), "300.7"),
    "a negative number as u8": (lambda: li.weight("w", np.array([7, -5]), "u8"), "-5 does not"),
    "a fraction as i32": (lambda: li.constant([1.5], "i32"), "1.5 does not fit i32"),
    "nan as i32": (lambda: li.constant([np.nan], "i32"), "NaN"),
    "2^63 as i64": (lambda: li.constant([2.0**63], "i64"), "does not fit i64"),
    "a float beyond f16": (lambda: li.full((1,), 1e30, "f16"), "1e+30 does not fit f16"),
    "a float beyond bf16": (lambda: li.constant([1e39], "bf16"), "1e+39 does not fit bf16"),
    "an integer beyond i32": (lambda: I + 2**40, "1099511627776 does not fit i32"),
    "an integer beyond i8": (lambda: li.constant(300, "i8"), "300 does not fit i8"),
    "an integer beyond every dtype": (lambda: li.constant(10**400, "f64"), "does not fit f64"),
    "two as i1": (lambda: li.constant([2], "i1"), "2 does not fit i1"),
    "no number": (lambda: li.constant("a", "f32"), "not an array of f32"),
    "a text of a number": (lambda: li.constant(["1.5"], "f32"), "its elements are str"),
    "a complex number": (lambda: li.constant(np.array([1 + 2j]), "f32"), "its elements are complex128"),
    "a time": (lambda: li.constant(np.array(["2020-01-01"], "M8[D]"), "i64"), "its elements are datetime64"),
    "a mask": (lambda: li.constant(np.ma.array([1.0, 2.0], mask=[True, False])), "whose mask would be lost"),
    "a mask as f64": (lambda: li.weight("w", np.ma.array([1.0], mask=[True]), "f64"), "whose mask would be lost"),
}


@pytest.mark.parametrize("name", LOST)
def test_a_number_that_does_not_fit_is_refused(name: str) -> None:
    case, part = LOST[name]
    with pytest.raises(li.IRError) as caught:
        case()
    assert part in str(caught.value)


def test_rounding_infinity_and_exact_numbers_are_fine() -> None:
    def value(*given: Any) -> Any:
        return li.interpret(li.Graph("g", [], {"y": li.constant(*given)}))["y"]

    np.testing.assert_array_equal(value([0.1], "f32"), np.array([0.1], "f4"))
    np.testing.assert_array_equal(value([np.inf, -np.inf, np.nan], "f16"), [np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(value(np.array([255.0, 0.0]), "u8"), [255, 0])
    np.testing.assert_array_equal(value([-(2.0**63)], "i64"), [-(2**63)])
    np.testing.assert_array_equal(value(2**24 + 1, "f32"), np.float32(2**24))
    np.testing.assert_array_equal(value([1, 0, True], "i1"), [True, False, True])


def test_an_array_may_stand_on_the_left() -> None:
    a = np.array([3.0, 5.0], "f4")
    square = np.array([[1.0, 2.0], [3.0, 4.0]], "f4")
    made: dict[str, Any] = {
        "sum": a + X, "difference": a - X, "product": a * X, "quotient": a / X, "rest": a % X,
        "power": a**X, "matrix": square @ X, "scalar": np.float32(2) * X,
    }  # fmt: skip
    assert all(isinstance(v, li.Value) and v.shape == (2,) for v in made.values())
    x = np.array([2.0, 4.0], "f4")
    want = [a + x, a - x, a * x, a / x, a % x, a**x, square @ x, 2 * x]
    for got, w in zip(li.interpret(li.Graph("g", [X], made), x=x).values(), want, strict=True):
        np.testing.assert_allclose(got, w, rtol=1e-6)
    assert isinstance(a < X, li.Value)
    assert isinstance(np.array([True, False]) & (X > 0.0), li.Value)


def test_lengths_and_count_of_64_bits_are_checked_before_they_are_narrowed() -> None:
    x = li.input("x", ("T", "B", 1))
    lengths, count = li.input("lengths", ("B",), "i64"), li.input("count", (), "i64")
    outputs = {
        f.__name__: f(x, np.full((n, 1), 0.5, "f4"), np.full((n, 1), 0.5, "f4"), lengths=lengths,
                      count=count)[0]
        for f, n in ((li.lstm, 4), (li.gru, 3), (li.rnn, 1))
    }  # fmt: skip
    graph = li.Graph("g", [x, lengths, count], outputs)
    a = np.ones((4, 2, 1), "f4")
    fine = {"x": a, "lengths": np.array([1, 0]), "count": np.array(3)}
    with li.compile(graph) as exe:
        calls: list[Callable[..., Any]] = [lambda given: li.interpret(graph, given), exe]
        results = [call(fine) for call in calls]
        for name in outputs:
            np.testing.assert_allclose(results[0][name], results[1][name], rtol=1e-5)
        for call in calls:
            for wrong in ({"lengths": np.array([2**32 + 1, 0])}, {"lengths": np.array([0, -(2**32)])},
                          {"count": np.array(2**32 + 1)}):  # fmt: skip
                with pytest.raises(li.ValueRangeError):
                    call(fine | wrong)


def test_lengths_of_64_bits_that_are_computed_are_checked_too() -> None:
    x, n = li.input("x", ("T", "B", 1)), li.input("n", ("B",), "i64")
    w = np.full((1, 1), 0.5, "f4")
    graph = li.Graph("g", [x, n], {"y": li.rnn(x, w, w, lengths=n * 2)[0]})
    given = {"x": np.ones((4, 2, 1), "f4"), "n": np.array([2**31, 1])}
    with li.compile(graph) as exe, pytest.raises(li.LstmIrError):
        exe(given)
    with pytest.raises(li.ValueRangeError):
        li.interpret(graph, given)


def test_labels_of_64_bits_are_not_narrowed_in_silence() -> None:
    logits, labels = li.input("logits", (4, 1, 3)), li.input("labels", (1, 2), "i64")
    loss = li.ctc_loss(logits, labels, np.array([4]), np.array([2]))
    graph = li.Graph("g", [logits, labels], {"loss": loss})
    with pytest.raises(li.ValueRangeError):
        li.interpret(graph, logits=np.zeros((4, 1, 3), "f4"), labels=np.array([[2**32 + 1, 2]]))


def test_weights_and_inputs_of_any_name() -> None:
    names = ['a"b', "a\\b", "a\nb", "%61", "\u00e9 \u4e2d", "a\0b", "%a", "plain/w"]
    x = li.input('x"\\\n', (2,))
    total: Any = x
    for i, n in enumerate(names):
        total = total + li.weight(n, np.full(2, 2.0**i, "f4"))
    graph = li.Graph("g", [x], {'y"\\\n': total})
    assert str(li.parse(str(graph))) == str(graph)
    with li.compile(graph) as exe:
        got = exe({'x"\\\n': np.zeros(2, "f4")})['y"\\\n']
    np.testing.assert_array_equal(got, np.full(2, 2.0 ** len(names) - 1, "f4"))
    with pytest.raises(li.IRError, match="an input needs a name"):
        li.input("", (2,))


def test_booleans_of_any_byte() -> None:
    """A view of other bytes is true where any bit is set, as NumPy sees it."""
    k, x = li.input("k", ("B",), "i1"), li.input("x", ("B",))
    g = li.Graph("g", [k, x], {"y": li.where(k, x, -x)})
    mask, ones = np.array([0, 1, 2, 255, 128], np.uint8).view(bool), np.ones(5, np.float32)
    with li.compile(g) as exe:
        for got in (exe(k=mask, x=ones), li.interpret(g, k=mask, x=ones)):
            np.testing.assert_array_equal(got["y"], [-1, 1, 1, 1, 1])
