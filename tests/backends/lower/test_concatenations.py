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


@pytest.mark.vulkan
@pytest.mark.parametrize("common", ["first", "last"])
def test_two_of_booleans_on_vulkan(rng: np.random.Generator, common: str) -> None:
    """Of named sizes: two fills of booleans are one tensor to IREE 3.13, whatever is written to them."""
    need("vulkan")
    x, a, b = li.input("x", ("N", 3), "i1"), li.input("a", (2, 3), "i1"), li.input("b", (2, 3), "i1")
    order = 1 if common == "first" else -1
    pairs = {"y": (x, a)[::order], "z": (x, b)[::order]}
    given = {n: rng.integers(0, 2, (size, 3)).astype(bool) for n, size in (("x", 5), ("a", 2), ("b", 2))}
    with li.compile(
        li.Graph("masks", [x, a, b], {k: li.concat(list(v), 0) for k, v in pairs.items()}), "vulkan"
    ) as exe:
        got = exe(**given)
    for name, other in (("y", "a"), ("z", "b")):
        want = np.concatenate([given["x"], given[other]][::order])
        np.testing.assert_array_equal(got[name], want, err_msg=name)


# Of the values at the end of `segments_of_a_gru.lir`: %6 and %10 come from a loop, %3 from a single step before it.
JOINS = {
    "concatenate": """%11 = reshape(%10) {shape=[2, 4, 5]} : f64[2,4,5]
  %12 = concatenate([%11, %3]) {dimension=0} : f64[3,4,5]
  return y0=%12""",
    "the start of a loop": """%11 = reshape(%3) {shape=[4, 5]} : f64[4,5]
  %12, %13 = scan([], [%6, %11], [], _) {length=3, reverse=[]} : [f64[4,5], f64[4,5]], [] with body {
    graph @sums(%step: i32[], %a: f64[4,5], %b: f64[4,5]) {
      %0 = add(%a, %b) : f64[4,5]
      return %0, %a
    }
  }
  return y0=%12, y1=%13""",
    "an update": """%11 = reshape(%10) {shape=[2, 4, 5]} : f64[2,4,5]
  %12 = concatenate([%11, %11]) {dimension=0} : f64[4,4,5]
  %13 = constant() {value=3} : i32[]
  %14 = constant() {value=0} : i32[]
  %15 = dynamic_update_slice(%12, %3, [%13, %14, %14]) : f64[4,4,5]
  return y0=%15""",
}


@pytest.mark.parametrize("join", list(JOINS))
def test_rows_of_loops_and_of_what_stands_before_them(rng: np.random.Generator, join: str) -> None:
    """A part of the gradient of a GRU in segments: IREE 3.13 moves the loop before the step that stands before it."""
    text = Path(__file__).with_name("segments_of_a_gru.lir").read_text(encoding="utf-8")
    g = li.parse(text + f"  {JOINS[join]}\n}}\n")
    assert isinstance(g, li.Graph)
    a = {
        n: rng.integers(0, 3, p.shape).astype("i4") if p.dtype is li.DType.i32 else rng.uniform(0.1, 0.9, p.shape)
        for n, p in zip(g.input_names, g.params, strict=True)
    }
    want = li.interpret(g, a)
    with li.compile(g, options={"kernels": False, "verify": True, "cache": False}) as exe:
        got = exe(**a)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-9, err_msg=name)


def test_a_joined_tensor_in_a_sum_of_products(rng: np.random.Generator) -> None:
    """A mean over the valid steps of both directions: read where it is picked element by element, IREE 3.13 fails."""
    a, b, m = li.input("a", ("T", "B", 24)), li.input("b", ("T", "B", 12)), li.input("m", ("B", "T"))
    y = li.transpose(li.concat([a, b], -1), (1, 0, 2))
    g = li.Graph("pooled", [a, b, m], {"y": li.sum(y * m[:, :, None], 1)})
    given = {n: rng.standard_normal(s, np.float32) for n, s in (("a", (7, 3, 24)), ("b", (7, 3, 12)), ("m", (3, 7)))}
    with li.compile(g, options={"cache": False}) as exe:
        assert not [note for note in exe.report.notes if note.startswith("compiled with")]
        got = exe(**given)["y"]
    both = np.concatenate([given["a"], given["b"]], -1)
    np.testing.assert_allclose(got, np.einsum("tbc,bt->bc", both, given["m"]), rtol=1e-5, atol=1e-5)
