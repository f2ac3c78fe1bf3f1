"""Convolutions of what a loop carries: each step is the kernel for stencils; its operand is packed before the loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ops.scan.tuned import UNROLLED_STEPS

T, B, C, SIDE = 6, 3, 5, 4


def convolved(h: li.Value, w: li.Value) -> li.Value:
    return li.tanh(li.conv2d(h, w, padding=1))


def loop(w: li.Value, x: li.Value, h: li.Value, **more: Any) -> Any:
    return li.scan(lambda c, row: ((y := convolved(c, w) + row), y), h, x, **more)


def graph(form: str, steps: int | str = T, dtype: str = "f32") -> li.Graph:
    rng = np.random.default_rng(0)
    w, u = (li.weight(n, 0.3 * rng.standard_normal((C, C, 3, 3)), dtype) for n in "wu")
    x, h = li.input("x", (steps, B, C, SIDE, SIDE), dtype), li.input("h", (B, C, SIDE, SIDE), dtype)
    given, out = [x, h], {}
    if form == "two loops":  # one after the other, of one shape
        h_n, ys = loop(w, x, h)
        out = {"y": loop(u, ys, h_n)[1], "z": ys}
    elif form == "one body twice":
        out = {"y": loop(w, x, h)[1], "z": loop(u, x, h)[1]}
    elif form == "count":
        given.append(li.input("n", (), "i32"))
        out["h_n"], out["y"] = loop(w, x, h, count=given[-1])
    elif form == "until":
        out["h_n"], out["y"], out["steps"] = loop(w, x, h, until=lambda c, y: li.max(y, (0, 1, 2, 3)) > 2.0)
    elif form == "by the step":  # what a step multiplies by depends on its row
        out["h_n"], out["y"] = li.scan(lambda c, row: (convolved(c, w * li.max(row)) + row, row), h, x)
    elif form in ("nested", "nested, long"):
        inner = li.input("inner", (2 if form == "nested" else UNROLLED_STEPS + 1, B, C, SIDE, SIDE), dtype)
        given.append(inner)
        out["h_n"], out["y"] = li.scan(lambda c, row: ((d := loop(w, inner, c)[0] + row), d), h, x)
    else:
        out["h_n"], out["y"] = loop(w, x, h)
    return li.Graph("g", given, out)


def arrays(g: li.Graph, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for name, p in zip(g.input_names, g.params, strict=True):
        shape = tuple(d if isinstance(d, int) else T for d in p.shape)
        found[name] = np.asarray(T - 2, "i4") if name == "n" else rng.standard_normal(shape).astype(p.dtype.numpy)
    return found


FORMS = ("plain", "two loops", "one body twice", "count", "until", "by the step", "nested")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("steps", [T, "T"])
def test_the_same_numbers(form: str, steps: int | str, seed: int) -> None:
    g = graph(form, steps)
    given = arrays(g, seed)
    got, want = li.compile(g, "cpu")(given), li.interpret(g, given)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=2e-5, atol=2e-5, err_msg=name)


def test_double_precision(seed: int) -> None:
    g = graph("two loops", dtype="f64")
    given = arrays(g, seed)
    got, want = li.compile(g, "cpu")(given), li.interpret(g, given)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("form", [*FORMS, "nested, long"])
def test_where_it_is_the_kernel(form: str) -> None:
    """Where constants alone decide what is multiplied by, in a loop at the top; short ones in it are written out."""
    text = prepare(graph(form), resolve("cpu")).text
    assert ("@stencil_" in text) is (form not in ("by the step", "nested, long"))
