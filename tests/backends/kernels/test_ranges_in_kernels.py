"""Integers that a step computes are moved into the range that the graph states, in kernels as in loops."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_ir as li

T, B, H = 4, 2, 9
SIZES = {"T": T, "2*T": 2 * T}
RANGES: tuple[tuple[int | str, int | str], ...] = ((0, 3), (2, 2), (1, "T"), ("T", "2*T"), (0, 1000))


def sums(dtype: str, low: int | str, high: int | str) -> li.Graph:
    """Of rows: one is held in each step and carried on, the other one only as it is shown."""
    x = li.input("x", ("T", B, H), dtype)

    def cell(
        state: tuple[li.Value, li.Value], row: li.Value
    ) -> tuple[tuple[li.Value, li.Value], tuple[li.Value, li.Value]]:
        held, free = li.in_range(state[0] + row, low, high), state[1] + row
        return (held, free), (held, li.in_range(free, low, high))

    start = li.zeros((B, H), dtype)
    _, (held, shown) = li.scan(cell, (start, start), x)
    return li.Graph("sums", [x], {"held": held, "shown": shown})


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "loop"])
@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "u32", "i64"])
def test_computed_integers(dtype: str, kernel: bool) -> None:
    program = li.Program("ranges", {f"from {low} to {high}": sums(dtype, low, high) for low, high in RANGES})
    exe = li.compile(program, options={"kernels": kernel})
    assert (": kernel" in str(exe.report)) is kernel
    kind = li.DType.of(dtype).numpy
    info = np.iinfo(kind)
    a = np.random.default_rng(3).integers(-3 if info.min else 0, 4, (T, B, H)).astype(kind)
    for low, high in RANGES:
        least, most = (min(int(SIZES.get(str(end), end)), info.max) for end in (low, high))
        kept, rows = np.zeros((B, H), kind), []
        for row in a:
            kept = np.clip(kept + row, least, most)
            rows.append(kept)
        got = exe.entries[f"from {low} to {high}"](x=a)
        np.testing.assert_array_equal(got["held"], rows)
        np.testing.assert_array_equal(got["shown"], np.clip(np.cumsum(a, 0, dtype=kind), least, most))
