"""Loops whose carries have any type: arithmetic on them, alone and beside carries of another width."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exact_cases import Case, agree

import lstm_ir as li

Array = np.ndarray[Any, Any]
T, B = 5, 3
KINDS = ("f16", "bf16", "u8", "u32", "i8", "i32", "i64", "f64")


def _sums(rng: np.random.Generator, kind: str, named: bool, from_input: bool) -> Case:
    """Running sums, which are whole numbers or wrap: exact in any type."""
    t, b = ("T", "B") if named else (T, B)
    dtype = li.DType(kind).numpy
    x = li.input("x", (t, b), kind)
    start = li.input("start", (b,), kind) if from_input else li.full((b,), 3, kind)
    last, before = li.scan(lambda h, row: (h + row, h), start, x)
    whole = kind[0] in "iu"
    rows = rng.integers(0, 2 ** (min(li.DType(kind).bits, 62) - 1) if whole else 9, (T, B)).astype(dtype)
    first = rng.integers(0, 9, B).astype(dtype) if from_input else np.full(B, 3, dtype)
    with np.errstate(over="ignore"):
        sums = [first.astype(dtype if whole else "f8")]
        for row in rows:
            sums.append(sums[-1] + row.astype(sums[0].dtype))
    given = {"x": rows} | ({"start": first} if from_input else {})
    want = {"last": sums[-1].astype(dtype), "before": np.array(sums[:-1]).astype(dtype)}
    name = f"{kind}_{named}_{from_input}"
    return li.Graph(name, [x, start] if from_input else [x], {"last": last, "before": before}), given, want, name


def _counted(kind: str, counter: str, named: bool) -> Case:
    """Two carries of different widths; the step's number as any integer."""
    x = li.input("x", ("T", "B") if named else (T, B), kind)

    def step(held: Any, row: li.Value, at: li.Value) -> Any:
        h, n = held
        return (li.maximum(row - h, -h), n + 3), li.convert(n + li.convert(at, counter), kind)

    (h, n), ys = li.scan(step, (li.zeros((x.shape[1],), kind), li.constant(1, counter)), x, with_step=True)
    dtype = li.DType(kind).numpy
    rows = np.arange(T * B).reshape(T, B).astype(dtype)
    wide = np.zeros(B)
    for row in rows.astype("f8"):
        wide = np.maximum(row - wide, -wide)
    numbers = np.array([1 + 4 * i for i in range(T)])
    want = {"h": wide.astype(dtype), "n": np.asarray(1 + 3 * T, li.DType(counter).numpy), "y": numbers.astype(dtype)}
    name = f"{kind}_{counter}_{named}"
    return li.Graph(name, [x], {"h": h, "n": n, "y": ys}), {"x": rows}, want, name


def _narrowed(named: bool) -> Case:
    """Rows made in the loop, of a type that nothing else has."""
    x = li.input("x", ("T", "B") if named else (T, B), "i64")
    _, ys = li.scan(lambda _, row: ((), li.convert(row, "u32")), (), x)
    rows = np.arange(T * B, dtype=np.int64).reshape(T, B) * 2**30 - 7
    return li.Graph(f"u_{named}", [x], {"y": ys}), {"x": rows}, {"y": (rows % 2**32).astype("u4")}, f"narrowed {named}"


COUNTED = (("f64", "i32"), ("f64", "i64"), ("f32", "u32"), ("f16", "u8"), ("bf16", "i64"))


def test_sums(rng: np.random.Generator) -> None:
    agree([_sums(rng, kind, k % 2 == 0, k % 3 == 2) for k, kind in enumerate(KINDS)], kernels=False)


def test_two_widths() -> None:
    agree([*(_counted(*kinds, named=True) for kinds in COUNTED), _narrowed(False)], kernels=False)


@pytest.mark.slow
@pytest.mark.parametrize("kernels", [False, True])
def test_every_form(rng: np.random.Generator, kernels: bool) -> None:
    both = (False, True)
    agree([_sums(rng, kind, named, given) for kind in KINDS for named in both for given in both], kernels=kernels)
    agree([_counted(*kinds, named) for kinds in COUNTED for named in both] + [_narrowed(True)], kernels=kernels)


def test_dropout_by_the_number_of_the_step() -> None:
    """The mask of each step is that of its number, drawn outside of any loop."""
    x = li.input("x", ("T", 40))
    _, ys = li.scan(
        lambda _, row, at: ((), li.dropout(row, 0.5, li.random_key(7, li.convert(at, "i64")))), (), x, with_step=True
    )
    ones = li.constant(np.ones(40, np.float32))
    alone = [li.dropout(ones, 0.5, li.random_key(7, li.constant(np.int64(i)))) for i in range(T)]
    exe = li.compile(li.Graph("drops", [x], {"y": ys, "alone": li.stack(alone)}), options={"kernels": False})
    got = exe(x=np.ones((T, 40), np.float32))
    np.testing.assert_array_equal(got["y"], got["alone"])
    assert set(np.unique(got["y"])) == {0, 2}
    assert len(np.unique(got["y"], axis=0)) == T


@pytest.mark.parametrize("kernels", [False, True])
def test_the_number_of_the_step_in_f64(kernels: bool) -> None:
    x, scale = li.input("x", ("T", "B")), li.input("scale", (), "i64")

    def step(total: li.Value, row: li.Value, at: li.Value) -> tuple[li.Value, li.Value]:
        late = li.convert(at, "f64") * li.convert(scale, "f64") > 3.0
        return total + li.select(late, row, row * 2.0), li.convert(at + 1, "f64")

    total, numbers = li.scan(step, li.zeros(("B",)), x, with_step=True)
    exe = li.compile(li.Graph("g", [x, scale], {"total": total, "numbers": numbers}), options={"kernels": kernels})
    rows = np.arange(T * B, dtype=np.float32).reshape(T, B)
    got = exe(x=rows, scale=np.int64(2))
    np.testing.assert_array_equal(got["numbers"], np.arange(1.0, T + 1))
    np.testing.assert_array_equal(got["total"], 2 * rows[:2].sum(0) + rows[2:].sum(0))


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("by_f32", [False, True])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_the_number_of_the_step_in_halves(dtype: str, by_f32: bool, kernels: bool) -> None:
    x = li.input("x", (5, 3), dtype)

    def step(total: li.Value, row: li.Value, at: li.Value) -> tuple[li.Value, li.Value]:
        number = li.convert(li.convert(at, "f32"), dtype) if by_f32 else li.convert(at, dtype)
        return total + row * number, number

    total, numbers = li.scan(step, li.zeros((3,), dtype), x, with_step=True)
    exe = li.compile(li.Graph("g", [x], {"total": total, "numbers": numbers}), options={"kernels": kernels})
    rows = np.arange(15).reshape(5, 3)
    got = exe(x=rows.astype(x.dtype.numpy))
    np.testing.assert_array_equal(got["numbers"].astype("i4"), np.arange(5))
    np.testing.assert_array_equal(got["total"].astype("i4"), (rows * np.arange(5)[:, None]).sum(0))


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("counted", [False, True])
def test_rows_that_are_one_constant(counted: bool, kernels: bool) -> None:
    """A weight that every step stacks, with and without a state that changes places; scalars and rows."""
    x, count = li.input("x", (5, 2)), li.input("count", (), "i32")
    w, v = li.weight("w", np.array(0.5, np.float32)), li.weight("v", np.array([1.5, 2.5, 3.5], np.float32))
    start = li.constant(np.int64(-6395833188577933658))
    (a, b), (s, r, t) = li.scan(
        lambda c, row: ((c[1], c[0]), (w, v, c[0])), (start, start), x, count=count if counted else None
    )
    inputs = [x, count] if counted else [x]
    graph = li.Graph("g", inputs, {"a": a, "b": b, "s": s, "r": r, "t": t})
    exe = li.compile(graph, options={"kernels": kernels})
    got = exe({"x": np.zeros((5, 2), np.float32)} | ({"count": np.int32(3)} if counted else {}))
    there = np.arange(5) < (3 if counted else 5)
    np.testing.assert_array_equal(got["s"], 0.5 * there)
    np.testing.assert_array_equal(got["r"], np.outer(there, [1.5, 2.5, 3.5]))
    np.testing.assert_array_equal(got["t"], -6395833188577933658 * there)
    assert got["a"] == got["b"] == -6395833188577933658
    assert not any("compiled" in n for n in exe.report.notes)
