"""Dimensions as text: what is written is read back as the same size."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim

T, B = dims.name("T"), dims.name("B")
QUARTER, FIFTH = dims.floordiv(T, 4), dims.floordiv(dims.add(dims.mul(T, 3), B), 5)
SIZES: dict[str, Dim] = {
    "(T)//4": QUARTER,
    "4*((T)//4)": dims.mul(QUARTER, 4),
    "-((T)//4)": dims.mul(QUARTER, -1),
    "((T)//4)*B": dims.mul(QUARTER, B),
    "-4*((T)//4)+T": dims.add(T, dims.mul(QUARTER, -4)),
    "-2*((B+3*T)//5)*((T)//4)": dims.mul(dims.mul(QUARTER, FIFTH), -2),
    "2*((4*((T)//4)+1)//3)": dims.mul(dims.floordiv(dims.add(dims.mul(QUARTER, 4), 1), 3), 2),
}


@pytest.mark.parametrize("text", SIZES)
def test_a_size_is_read_as_it_is_written(text: str) -> None:
    assert str(SIZES[text]) == text
    assert dims.parse(text) == SIZES[text]


def test_from_left_to_right() -> None:
    """As Python reads it."""
    for t in (3, 7, 9):
        assert dims.evaluate(dims.parse("4*(T)//4"), {"T": t}) == 4 * (t) // 4
        assert dims.evaluate(dims.parse("4*((T)//4)"), {"T": t}) == 4 * (t // 4)


def test_a_sign_before_a_quotient_is_placed(seed: int) -> None:
    """-T//2 is (-T)//2 in Python, and was -(T//2) in older texts: neither is guessed."""
    for text in ("-T//2+T", "-2*T//3", "T-(-T//2)", "-(T)//4", "-T//2*3"):
        with pytest.raises(li.DimError, match="write one of them"):
            dims.parse(text)
    draw, at = random.Random(seed), {"T": 5, "B": 8}
    for _ in range(2000):
        text = _written(draw, 4)
        d = dims.parse(text)
        assert dims.evaluate(d, at) == eval(text, {}, dict(at)) == eval(str(d), {}, dict(at)), text
        assert dims.parse(str(d)) == d, text


def test_quotients_of_quotients_are_one(seed: int) -> None:
    """Two windows of stride 2, one after the other, have the size of one of stride 4, as in front of a speech model."""
    for text, want in (
        ("((T+1)//2+1)//2", "(T+3)//4"), ("((T)//2)//3", "(T)//6"), ("(2*((T)//4))//4", "(T)//8"),
        ("(B+(T)//3)//2", "(3*B+T)//6"), ("(6*T+9)//15", "(2*T+3)//5"), ("(2*((T)//4)+B)//4", "(2*((T)//4)+B)//4"),
    ):  # fmt: skip
        assert dims.parse(text) == dims.parse(want)
        assert str(dims.parse(text)) == want
    x = li.input("x", ("T", 3))
    assert li.reshape(x[::2][::2], ("(T+3)//4*3",)).shape == li.reshape(x[::4], (-1,)).shape
    draw = random.Random(seed)
    for _ in range(500):
        text = f"(({_written(draw, 3)})//{draw.randint(1, 9)}+{draw.randint(0, 9)})//{draw.randint(1, 9)}"
        at = {"T": draw.randint(0, 40), "B": draw.randint(0, 40)}
        assert dims.evaluate(dims.parse(text), at) == eval(text, {}, dict(at)), text


def _written(draw: random.Random, depth: int) -> str:
    """A random size in the words of Python."""
    if depth == 0 or draw.random() < 0.3:
        return draw.choice(["T", "B", str(draw.randint(0, 9))])
    a, b = _written(draw, depth - 1), _written(draw, depth - 1)
    forms = (
        f"({a}+{b})",
        f"({a}-({b}))",
        f"({a})*({b})",
        f"(({a})//{draw.randint(1, 7)})",
        f"(-({a}))",
        f"(({a})-({b}))",
    )
    return draw.choice(forms)


def test_segments_of_an_open_loop_are_read_back(rng: np.random.Generator) -> None:
    x = li.input("x", ("T", 3))
    _, y = li.scan(lambda h, row: ((n := li.tanh(h + row)), n), li.zeros((3,)), x)
    back = li.grad(li.Graph("g", [x], {"loss": li.sum(y * y)}), "loss", "x", remat=4)
    again = li.parse(str(back))
    assert isinstance(again, li.Graph)
    assert str(again) == str(back)
    a = rng.standard_normal((11, 3)).astype(np.float32)
    want, got = li.interpret(back, x=a), li.interpret(again, x=a)
    np.testing.assert_array_equal(got["d_x"], want["d_x"])


def test_whole_numbers_and_sizes_compute_sizes() -> None:
    found = [T + 1, 1 + T, T - np.int64(2), 7 - T, 3 * T, T * B, T // 2, (T + 1) // 2, -T]
    assert [dims.evaluate(d, {"T": 5, "B": 4}) for d in found] == [6, 6, 3, 2, 15, 20, 2, 3, -5]


REFUSED: dict[str, Callable[[Any], object]] = {
    "(T)//(B) is no size; only positive integers": lambda t: t // B,
    "(6)//(T) is no size; only positive integers": lambda t: 6 // t,
    "a dimension is divided by 0": lambda t: t // 0,
    "(T)/2 is no size; (T)//2 is one; in a graph li.size('T') is the value of T, i32[]": lambda t: t / 2,
    "1/(T) is no size": lambda t: 1 / t,
    "(T) % 2 is no size; T - (T)//2*2 is one": lambda t: t % 2,
    "(T)**2 is no size; a product is one": lambda t: t**2,
    "1.5 beside the size T is not a whole number": lambda t: t * 1.5,
    "T < 3 is known at a call alone": lambda t: t < 3,
    "T >= B is known at a call alone": lambda t: t >= B,
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_is_no_size_is_told(said: str) -> None:
    with pytest.raises(li.IRError, match=re.escape(said)):
        REFUSED[said](T)


def test_what_is_advised_for_a_remainder_is_one() -> None:
    assert dims.evaluate(T - (T) // 2 * 2, {"T": 7}) == 1


def _random_size(draw: random.Random, depth: int) -> Dim:
    """A sum of products of names and of floor divisions of such sums."""
    out: Dim = draw.randint(-6, 6)
    for _ in range(draw.randint(1, 3)):
        part: Dim = draw.choice((T, B))
        if depth and draw.random() < 0.5:
            part = dims.floordiv(_random_size(draw, depth - 1), draw.choice((2, 3, 4)))
        elif draw.random() < 0.2:
            part = dims.mul(T, B)
        out = dims.add(out, dims.mul(part, draw.choice((-8, -6, -4, -3, -2, -1, 1, 2, 3, 4, 6, 8))))
    return out


def test_what_is_known_of_a_size_holds_at_every_call(seed: int) -> None:
    draw, found = random.Random(seed), {True: 0, False: 0, None: 0}
    for _ in range(1500):
        d, low = _random_size(draw, 2), draw.randint(-3, 3)
        known = dims.at_least(d, low)
        found[known] += 1
        if known is not None:
            values = [dims.evaluate(d, {"T": t, "B": b}) for t in range(12) for b in range(12)]
            assert all((v >= low) == known for v in values), (d, low)
    assert min(found.values()) > 100, found


def test_what_is_left_of_a_division_is_known() -> None:
    """Rows that fill the last of a number of frames, and frames that are not less than none."""
    for k in (2, 3, 4):
        for frames in (dims.floordiv(dims.add(T, k - 1), k), dims.mul(dims.floordiv(dims.mul(T, -1), k), -1)):
            assert dims.at_least(dims.add(dims.mul(frames, k), dims.mul(T, -1)), 0) is True
            assert dims.at_least(dims.add(dims.mul(frames, k), dims.mul(T, -1)), k) is False
            assert dims.at_least(frames, 0) is True
