"""Tensors that are joined: one beginning in two of them, and parts that loops make."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from device import need

import lstm_ir as li


def _two_of_one_beginning() -> li.Graph:
    """x beside h, and x beside r h, as in the gradient of a GRU's weights; r h has another reader."""
    x, h = li.input("x", (1, 4)), li.input("h", (1, 1))
    r, u, b, c = (li.input(n, (1, 1)) for n in "rubc")
    p, q = li.input("p", (1, 2)), li.input("q", (1, 1))
    rh = r * h
    new = b + c * li.tanh(rh @ u)
    plain = li.transpose(li.concat([x, h], 1), (1, 0)) @ p
    gated = li.transpose(li.concat([x, rh], 1), (1, 0)) @ q
    return li.Graph("weights", [x, h, r, u, b, c, p, q], {"new": new, "plain": plain, "gated": gated})


@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
def test_two_of_one_beginning(rng: np.random.Generator, target: str) -> None:
    """IREE 3.13 makes the beginning once, and writes both ends into it."""
    if target != "cpu":
        need(target)
    g = _two_of_one_beginning()
    a = {n: rng.uniform(0.1, 0.9, p.shape).astype(np.float32) for n, p in zip(g.input_names, g.params, strict=True)}
    with li.compile(g, target, options={"cache": False}) as exe:
        got = exe(**a)
    rh = a["r"] * a["h"]
    np.testing.assert_allclose(got["plain"], np.hstack([a["x"], a["h"]]).T @ a["p"], rtol=1e-5)
    np.testing.assert_allclose(got["gated"], np.hstack([a["x"], rh]).T @ a["q"], rtol=1e-5)
    np.testing.assert_allclose(got["new"], a["b"] + a["c"] * np.tanh(rh @ a["u"]), rtol=1e-5)


@pytest.mark.parametrize("verify", [False, True])
def test_rows_of_loops_and_of_what_stands_before_them(rng: np.random.Generator, verify: bool) -> None:
    """A part of the gradient of a GRU in segments: rows of a loop beside those of a single step before it.

    IREE 3.13 moves the loop before what makes the single step's.
    """
    g = li.parse(Path(__file__).with_name("segments_of_a_gru.lir").read_text(encoding="utf-8"))
    assert isinstance(g, li.Graph)
    a = {
        n: rng.integers(0, 3, p.shape).astype("i4") if p.dtype is li.DType.i32 else rng.uniform(0.1, 0.9, p.shape)
        for n, p in zip(g.input_names, g.params, strict=True)
    }
    want = li.interpret(g, a)["y0"]
    with li.compile(g, options={"kernels": False, "verify": verify, "cache": False}) as exe:
        np.testing.assert_allclose(exe(**a)["y0"], want, rtol=1e-9)
