"""Texts that ask for more than a reader should do, or that contradict themselves: refused by a ParseError."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ir import dims


def one(node: str, params: str = "") -> str:
    return f"graph @g({params}) {{\n  %0 = {node}\n  return %0\n}}\n"


REFUSED = {
    "constant has no attribute name": one("constant() {value=1.0, name=[1]} : f32[]"),
    "a line number of more than 9 digits": one(f"constant() {{value=1.0}} : f32[] @ f:{'1' * 5000}"),
    "dim: the size T is in no input's shape": one("dim() {size=T} : i32[]"),
    "broadcast_in_dim: the size N is in no input's shape": one(
        "broadcast_in_dim(%x) {shape=[N], broadcast_dimensions=[]} : f32[N]", "%x: f32[]"
    ),
    "constant: attribute value is given twice": one("constant() {value=1.0, value=2.0} : f32[]"),
    "two states are called 's'": (
        "program @p {\n  state s = 1.0 : f32[]\n  state s = 2.0 : f32[]\n"
        "  entry e bind (a <- s)\n  graph @g(%a: f32[]) { return y=%a }\n}\n"
    ),
    "'a' is bound twice": (
        "program @p {\n  state s = 1.0 : f32[]\n  state t = 2.0 : f32[]\n"
        "  entry e bind (a <- s, a <- t)\n  graph @g(%a: f32[]) { return y=%a }\n}\n"
    ),
    "scan: attribute body is given twice": (
        "graph @g(%h: f32[3]) {\n  %0 = scan([], [%h], [], _) {length=2, reverse=[]} : [f32[3]], [] with body {\n"
        "  graph @b(%step: i32[], %h: f32[3]) { return %h }\n  } with body {\n"
        "  graph @b(%step: i32[], %h: f32[3]) { return %h }\n  }\n  return %0\n}\n"
    ),
    "dim: the size N is in no input's shape": (
        "graph @g(%h: i32[]) {\n  %0 = scan([], [%h], [], _) {length=2, reverse=[]} : [i32[]], [] with body {\n"
        "  graph @b(%step: i32[], %h: i32[]) {\n    %0 = dim() {size=N} : i32[]\n    return %0 }\n  }\n"
        "  return %0\n}\n"
    ),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_a_text_that_does_not_verify(problem: str) -> None:
    with pytest.raises(li.ParseError, match=re.escape(problem)) as caught:
        li.parse(REFUSED[problem])
    assert caught.value.line >= 1


def test_a_body_may_use_a_size_of_the_graph_around_it() -> None:
    x = li.input("x", ("T", 3))
    _, y = li.scan(lambda h, row: (h + row, h * li.convert(li.size("T"), "f32")), li.zeros((3,)), x)
    g = li.Graph("g", [x], {"y": y})
    assert str(li.parse(str(g))) == str(g)


def test_a_size_is_bounded() -> None:
    """Each factor doubles the terms; a text is measured before it is taken apart."""
    begin = time.perf_counter()
    product = "*".join(f"(A{i}+B{i})" for i in range(33))
    with pytest.raises(li.DimError, match="a product of sizes has more than 250 terms"):
        dims.parse(product)
    with pytest.raises(li.ParseError, match="a product of sizes has more than 250 terms"):
        li.parse(f"graph @g(%x: f32[{product}]) {{ return %x }}\n")
    with pytest.raises(li.DimError, match="more than 2000 characters"):
        dims.parse("T " * 2_000_000)
    with pytest.raises(li.DimError, match="more than 200 tokens"):
        dims.parse("T" + "+1" * 900)
    assert time.perf_counter() - begin < 10
    many = dims.total(dims.name(f"N{i}") for i in range(300))  # one factor multiplies any sum
    assert dims.evaluate(dims.mul(many, 4), {f"N{i}": i for i in range(300)}) == 4 * 299 * 150


def test_arrays_without_elements_are_written_at_once() -> None:
    for shape in ((10**9, 0), (0,), (2, 0, 3)):
        g = li.Graph("g", [], {"y": li.constant(np.zeros(shape, "f4"))})
        assert "value=[]" in str(g)
        again = li.parse(str(g))
        assert isinstance(again, li.Graph)
        assert li.interpret(again)["y"].shape == shape


def bits(g: li.Graph) -> bytes:
    return li.interpret(g)["y"].tobytes()


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_a_nan_keeps_its_bits(kind: str) -> None:
    """The sign is written; other bits are known by their hash, as those of a large array are."""
    whole = li.DType(kind).numpy
    plain = np.array([np.nan, -np.nan, 1.0]).astype(whole)
    g = li.Graph("g", [], {"y": li.constant(plain)})
    assert "value=[nan, -nan, 1.0]" in str(g)
    again = li.parse(str(g))
    assert isinstance(again, li.Graph)
    assert bits(again) == plain.tobytes()
    odd = plain.view(f"u{plain.itemsize}") + np.array([1, 2, 0], f"u{plain.itemsize}")
    g = li.Graph("g", [], {"y": li.constant(odd.view(whole))})
    found = re.search(r"sha256\((\w+)\)", str(g))
    assert found is not None
    again = li.parse(str(g), data={found.group(1): odd.view(whole)})
    assert isinstance(again, li.Graph)
    assert bits(again) == odd.tobytes()


def test_lines_end_where_the_parser_counts_them() -> None:
    """A form feed, a carriage return and U+2028 end no line."""
    text = "graph @g(%x: f32[3]) {\n  // \x0c \u2028 \r |\n  %0 = tanhh(%x) : f32[3]\n  return %0\n}\n"
    with pytest.raises(li.ParseError) as caught:
        li.parse(text)
    assert caught.value.line == 3
    assert "tanhh(%x) : f32[3]" in str(caught.value)


def test_a_negative_zero_beside_a_default_of_zero_is_written() -> None:
    x, w = li.input("x", (2, 1, 1)), np.ones((4, 1), "f4")
    y, _, _ = li.lstm(x, w, w, forget_bias=-0.0)
    g = li.Graph("g", [x], {"y": y})
    assert "forget_bias=-0.0" in str(g)
    assert str(li.parse(str(g))) == str(g)
