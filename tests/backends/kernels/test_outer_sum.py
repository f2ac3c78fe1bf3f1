"""Sums of outer products by a kernel, as weight gradients are, against NumPy in float64."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.kernels import lowering
from lstm_ir.backends.kernels.cpu.machine import NARROW, WIDE
from lstm_ir.backends.kernels.cpu.outer_sum import OuterSum, wide_columns
from lstm_ir.backends.kernels.text.kernel import Kernel

# rows, columns: whole tiles, ragged rows, ragged columns, fewer columns than one vector, one tile; one
# vector, and seven
SHAPES = ((128, 48), (100, 77), (132, 96), (1025, 5), (67, 64), (256, 16), (65, 112))
LENGTHS = ((0, 3), (1, 1), (7, 11), (60, 13))  # sums of 0, 1, 77 and 780 terms; blocks have 256


def graph(rows: int, columns: int, dtype: str) -> li.Graph:
    """[T,B,rows] and [T,B,columns] to [rows,columns]."""
    x, y = li.input("x", ("T", "B", rows), dtype), li.input("y", ("T", "B", columns), dtype)
    return li.Graph("sums", [x, y], {"w": li.dot_general(x, y, ((0, 1), (0, 1)))})


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each product, whether the kernel took it."""
    found: list[bool] = []
    original = lowering.lower_outer_sum

    def counted(*a: Any) -> Any:
        out = original(*a)
        found.append(out is not None)
        return out

    monkeypatch.setattr(lowering, "lower_outer_sum", counted)
    return found


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3", "cpu:x86-64"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_against_numpy(target: str, dtype: str, rng: np.random.Generator, taken: list[bool]) -> None:
    if target != "cpu":
        import platform

        if platform.machine() != "x86_64":
            pytest.skip(f"{target}: this processor is {platform.machine()}")
    program = li.Program("sums", {f"s{m}x{n}": graph(m, n, dtype) for m, n in SHAPES})
    exe = li.compile(program, target)
    assert taken == [True] * len(SHAPES)
    kind: Any = {"f32": np.float32, "f64": np.float64}[dtype]
    for m, n in SHAPES:
        for T, B in LENGTHS:
            a, b = (rng.standard_normal((T, B, k)).astype(kind) for k in (m, n))
            got = exe.entries[f"s{m}x{n}"](x=a, y=b)["w"]
            want = np.einsum("tbm,tbn->mn", a.astype(np.float64), b.astype(np.float64))
            most = np.einsum("tbm,tbn->mn", *(np.abs(v.astype(np.float64)) for v in (a, b)))
            limit = 4 * np.finfo(kind).eps * most.max() if most.size and T else 0.0
            assert got.dtype == kind
            assert np.abs(got - want).max() <= limit, (m, n, T, B)


def test_infinities_and_nan_stay_in_their_row_and_column(rng: np.random.Generator) -> None:
    """Rows that a ragged tile only pads with zeros must not meet an infinity."""
    m, n = 67, 77
    exe = li.compile(graph(m, n, "f32"))
    a, b = (rng.standard_normal((5, 3, k)).astype(np.float32) for k in (m, n))
    a[2, 1, 66], b[4, 0, 76] = np.inf, np.nan
    got = exe(x=a, y=b)["w"]
    bad = ~np.isfinite(got)
    assert bad[66].all()
    assert bad[:, 76].all()
    assert bad.sum() == m + n - 1


@pytest.mark.parametrize("why", ["small", "other axes", "two bytes", "batched"])
def test_another_product_is_left_to_iree(why: str) -> None:
    """Right all the same."""
    T, B, m, n = 5, 3, 64, 72
    x, y = li.input("x", (T, B, m)), li.input("y", (T, B, n))
    made = {
        "small": lambda: li.dot_general(x, y, ((0, 1), (0, 1))),
        "other axes": lambda: li.dot_general(li.transpose(x, (1, 0, 2)), y, ((1, 0), (0, 1))),
        "two bytes": lambda: li.convert(
            li.dot_general(li.convert(x, "bf16"), li.convert(y, "bf16"), ((0, 1), (0, 1))), "f32"
        ),
        "batched": lambda: li.sum(li.dot_general(x, y, ((0,), (0,)), ((1,), (1,))), 0),
    }[why]()
    g = li.Graph("other", [x, y], {"w": made})
    r = np.random.default_rng(7)
    a, b = (r.standard_normal((T, B, k)).astype(np.float32) for k in (m, n))
    got = li.compile(g)(x=a, y=b)["w"]
    if why == "two bytes":
        a, b = (v.astype(ml_dtypes.bfloat16).astype(np.float32) for v in (a, b))
    want = np.einsum("tbm,tbn->mn", a, b)
    # a result in bfloat16 is rounded to 8 bits
    np.testing.assert_allclose(got, want, rtol=2**-8 if why == "two bytes" else 0, atol=1e-5)


# Axes of both operands, those of the sum, and whether the kernel takes it: einsum's letters; t and b are summed.
EINSUMS = {
    "several columns": ("tbm", "tbsn", True),
    "several rows": ("tbsm", "tbn", True),
    "terms between columns": ("tsbn", "tbm", True),
    "terms behind": ("mtb", "sntb", True),
    "in another order": ("tbm", "btsn", True),
    "one sum": ("tm", "tsn", True),
    "few columns beside a transposed operand": ("tsbn", "tbf", False),
}
SIZES = {"t": 60, "b": 9, "s": 13, "m": 37, "n": 48, "f": 7}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("name", EINSUMS)
def test_several_axes(name: str, named: bool, rng: np.random.Generator, taken: list[bool]) -> None:
    left, right, by_kernel = EINSUMS[name]
    sizes: dict[str, Any] = SIZES | ({"t": 230} if "b" not in left else {})
    open_ = {**sizes, "t": "T", "b": "B"} if named else sizes
    x, y = (li.input(n, tuple(open_[c] for c in axes)) for n, axes in (("x", left), ("y", right)))
    both = [c for c in left if c in right]
    at = tuple(left.index(c) for c in both), tuple(right.index(c) for c in both)
    g = li.Graph("sum", [x, y], {"w": li.dot_general(x, y, at)})
    with li.compile(g) as exe:
        assert taken == [by_kernel]
        a, b = (rng.standard_normal([sizes[c] for c in axes]).astype(np.float32) for axes in (left, right))
        got = exe(x=a, y=b)["w"]
    free = [c for c in left + right if c not in both]
    want = np.einsum(f"{left},{right}->{''.join(free)}", a.astype(np.float64), b.astype(np.float64))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-4)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_both_weights_of_a_cell_share_a_kernel(
    direction: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of other widths too: neither sizes nor which operand is a row off are part of the text."""
    symbols: list[str] = []
    original = OuterSum.executable

    def seen(self: OuterSum, kernel: Kernel) -> str:
        symbols.append(original(self, kernel))
        return symbols[-1]

    monkeypatch.setattr(OuterSum, "executable", seen)
    ways = 2 if direction == "bidirectional" else 1
    x, bound = li.input("x", (60, 16, 64), "f32"), 32**-0.5
    w_ih, w_hh = (
        li.weight(n, rng.uniform(-bound, bound, (ways, 128, k)).astype(np.float32))
        for n, k in (("w_ih", 64), ("w_hh", 32))
    )
    y, _, _ = li.lstm(x, w_ih, w_hh, direction=direction)
    g = li.grad(li.Graph("cell", [x], {"loss": li.sum(y * y)}), "loss", ["w_ih", "w_hh"])
    exe = li.compile(g)
    assert len(symbols) == 2 * ways
    assert len(set(symbols)) == 1
    arrays = {"x": rng.standard_normal((60, 16, 64)).astype(np.float32)}
    got, want = exe(arrays), li.interpret(g, arrays)
    for name, v in want.items():
        assert np.abs(got[name] - v).max() <= 2e-5 * np.abs(v).max(), name


def test_narrow_tiles_take_what_wide_ones_leave() -> None:
    for lanes in (2, 4, 8, 16):
        for columns in range(1, 20 * lanes):
            wide = wide_columns(columns, lanes)
            left = -(-(columns - wide) // lanes)
            assert wide % (WIDE * lanes) == 0
            assert wide <= columns
            if columns % lanes:
                assert left > 0  # the last vector needs a mask, which wide tiles have not
            elif columns >= NARROW * lanes:
                assert left % NARROW == 0
            assert left < 3 * WIDE
