"""A convert to fewer bits rounds, also where its result is widened again at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from device import need

import lstm_ir as li

Array = np.ndarray[Any, Any]
WAYS = (("f32", "bf16"), ("f32", "f16"), ("f64", "bf16"), ("f64", "f16"), ("f64", "f32"))
DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
OPS: dict[str, Callable[[li.Value], li.Value]] = {
    "cos": li.cos, "sin": li.sin, "erf": li.erf, "tanh": li.tanh, "times": lambda v: v * 1.5,
}  # fmt: skip


def rounded(v: li.Value, kind: str) -> li.Value:
    return li.convert(li.convert(v, kind), v.dtype)


def flat(wide: str, kind: str, op: str, named: bool) -> li.Graph:
    x = li.input("x", ("T", 3, 9) if named else (5, 3, 9), wide)
    v = rounded(OPS[op](x), kind)
    more = {"sum": v * 2 + rounded(x, kind)} if named else {}
    return li.Graph("flat", [x], {"y": v} | more)


def loop(wide: str, kind: str, op: str, named: bool, narrow_carry: bool) -> li.Graph:
    """Rounds in every step; with `narrow_carry`, the carry is kept narrow, and read when fresh."""
    x = li.input("x", ("T", 3, 9) if named else (5, 3, 9), wide)

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        new = li.convert(OPS[op](row + li.convert(h, wide) * 0.5), kind)
        fresh = li.convert(new, wide)
        return (new if narrow_carry else fresh), fresh

    first = li.zeros((3, 9), kind if narrow_carry else wide)
    _, y = li.scan(cell, first, x)
    return li.Graph("loop", [x], {"y": y})


def values(rng: np.random.Generator, wide: str) -> Array:
    return np.asarray(rng.standard_normal((5, 3, 9)) * 2, li.DType(wide).numpy)


def check(rng: np.random.Generator, graphs: dict[str, li.Graph], target: str = "cpu", **options: Any) -> None:
    """Nearly all results are those of the NumPy meaning to the last bit of the narrow type.

    A function's error may lie across the boundary of a rounding, in few elements. What was not
    rounded differs in nearly all.
    """
    exe = li.compile(li.Program("rounding", graphs), target, options=options)
    for name, g in graphs.items():
        x = values(rng, g.params[0].dtype.value)
        got, want = exe.entries[name](x=x), li.interpret(g, x=x)
        for out, w in want.items():
            error = np.abs(got[out] - w) > 1e-6 * np.maximum(1, np.abs(w))
            assert error.mean() < 0.05, f"{name} {out}: {error.mean():.0%} differ"
            y = got[out].astype("f8")
            if out == "y":  # each value is one of the narrow type
                kind = name.split("_")[1]
                np.testing.assert_array_equal(y.astype(DTYPES[kind]).astype("f8"), y, name)


@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
def test_elementwise(rng: np.random.Generator, named: bool) -> None:
    ways = WAYS[:2] if named else WAYS
    check(rng, {f"{w}_{k}_{op}": flat(w, k, op, named) for w, k in ways for op in ("cos", "erf")})


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
@pytest.mark.parametrize("op", OPS)
def test_every_op(rng: np.random.Generator, op: str, named: bool) -> None:
    check(rng, {f"{w}_{k}_{op}": flat(w, k, op, named) for w, k in WAYS})


@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
def test_loops(rng: np.random.Generator, named: bool) -> None:
    graphs = {
        f"f32_bf16_{op}_{narrow}": loop("f32", "bf16", op, named, narrow)
        for op in ("times", "tanh")
        for narrow in (False, True)
    }
    check(rng, graphs)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["cos", "tanh", "times"])
@pytest.mark.parametrize("kernels", [False, True])
def test_every_loop(rng: np.random.Generator, op: str, kernels: bool) -> None:
    for named in (False, True):
        graphs = {f"{w}_{k}_{op}": loop(w, k, op, named, narrow_carry=False) for w, k in WAYS}
        check(rng, graphs, kernels=kernels)


@pytest.mark.vulkan
def test_elementwise_on_vulkan(rng: np.random.Generator) -> None:
    need("vulkan")
    check(rng, {f"f32_{k}_cos": flat("f32", k, "cos", False) for k in ("bf16", "f16")}, "vulkan")


def test_the_bits(rng: np.random.Generator) -> None:
    """Ties, neighbours of ties, values that two roundings would round wrong, and what is no number.

    Nothing below the smallest normal f16: baseline x86-64 takes it for 0.
    """
    tie = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11])
    near = [tie * (1 + s * 2.0**-n) for s in (-1, 0, 1) for n in (20, 30, 45)]
    odd = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.99, 65520, 3.3e38, 2.0**-14]
    x = np.concatenate([*near, odd, rng.uniform(0.01, 3, 99)])
    graphs, given = {}, {}
    for wide, kind in WAYS:
        with np.errstate(over="ignore"):
            given[wide] = np.concatenate([x, -x]).astype(li.DType(wide).numpy)
        v = li.input("x", given[wide].shape, wide)
        graphs[f"{wide}_{kind}"] = li.Graph("bits", [v], {"y": rounded(v, kind)})
    exe = li.compile(li.Program("bits", graphs))
    for name, g in graphs.items():
        a = given[name.split("_")[0]]
        got, want = exe.entries[name](x=a)["y"], li.interpret(g, x=a)["y"]
        np.testing.assert_array_equal(got, want, name)
        kept = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[kept]), np.signbit(want[kept]), name)
