"""Expressions that read more tensors than a dispatch of a device takes, alone and in steps of loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need_target

import lstm_ir as li

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)
A = RNG.standard_normal((5, 3, 4)).astype(np.float32)
SIZES: dict[str, tuple[Any, ...]] = {"numbers": (5, 3, 4), "T": ("T", 3, 4), "T and B": ("T", "B", 4)}
SLOPES = np.linspace(0.1, 1.3, 40)


def _kept(shape: tuple[Any, ...], n: int) -> li.Graph:
    """A loop that keeps n values of each step, and the sum of their squares."""
    x = li.input("x", shape)

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, tuple[li.Value, ...]]:
        rows = tuple(li.tanh(h * float(a) + row) for a in SLOPES[:n])
        return sum(rows[1:], rows[0]) * (1 / n), rows

    h, ys = li.scan(cell, li.zeros(shape[1:]), x)
    loss = sum((li.sum(y * y) for y in ys), li.sum(h))
    return li.Graph("kept", [x], {"loss": loss, "h": h, "y": li.stack(ys, 0)})


def _by_hand(n: int) -> dict[str, Array]:
    """The loop and its gradient, in f64."""
    slopes, x, h = SLOPES[:n, None, None], A.astype(np.float64), np.zeros(A.shape[1:])
    rows = []
    for row in x:
        rows.append(np.tanh(h * slopes + row))
        h = rows[-1].mean(0)
    dx, dh = np.zeros(A.shape), np.ones(h.shape)
    for t in reversed(range(len(x))):
        dz = (2 * rows[t] + dh / n) * (1 - rows[t] ** 2)
        dx[t], dh = dz.sum(0), (dz * slopes).sum(0)
    y = np.stack(rows, 1)
    return {"loss": np.asarray((y**2).sum() + h.sum()), "h": h, "y": y, "d_x": dx}


def _agree(got: dict[str, Array], want: dict[str, Array]) -> None:
    for name, a in got.items():
        np.testing.assert_allclose(a, want[name], rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize(
    ("target", "sizes", "n"),
    [("cpu", "T and B", 40), ("vulkan", "T and B", 40), ("cpu", "T and B", 20), ("cpu", "T", 20), ("cpu", "T", 40)],
)
def test_values_that_a_loop_keeps(target: str, sizes: str, n: int) -> None:
    """40 rows of a step, where T and B are names, had 84 words of offsets in one dispatch."""
    need_target(target)
    graph, want = _kept(SIZES[sizes], n), _by_hand(n)
    with li.compile(graph, target) as exe:
        _agree(exe(x=A), want)
    with li.compile(li.grad(graph, "loss", ["x"]), target) as exe:
        got = exe(x=A)
        _agree({"d_x": got["d_x"]}, want)


def test_a_loop_that_is_no_kernel_says_why(kernels: bool) -> None:
    if not kernels:
        pytest.skip("this run has none")
    for n, why in ((28, "the offsets of 31 tensors and its sizes may take 72 words"), (40, "43 tensors")):
        with li.compile(_kept(SIZES["T and B"], n), "cpu") as exe:
            assert why in str(exe.report)


@pytest.mark.parametrize("sizes", ["numbers", "T and B"])
@pytest.mark.parametrize("target", ["cpu", "vulkan"])
def test_sums_of_many_tensors(target: str, sizes: str) -> None:
    """Inputs are tensors of their own; sums and running sums lie in one, each at an offset."""
    need_target(target)
    xs = [li.input(f"x{k}", SIZES[sizes]) for k in range(40)]
    arrays = RNG.standard_normal((40, *A.shape)).astype(np.float32)
    x = xs[0]
    outputs = {
        "inputs": sum((li.tanh(v) for v in xs[1:]), x),
        "sums": sum((li.sum(li.tanh(x * float(a)), 0) for a in SLOPES[1:]), li.sum(li.tanh(x * float(SLOPES[0])), 0)),
        "running": sum((li.cumsum(x * float(a), 0) for a in SLOPES[1:]), li.cumsum(x * float(SLOPES[0]), 0)),
    }
    wide = arrays.astype(np.float64)
    want = {
        "inputs": wide[0] + np.tanh(wide[1:]).sum(0),
        "sums": np.tanh(wide[0] * SLOPES[:, None, None, None]).sum((0, 1)),
        "running": np.cumsum(wide[0], 0) * SLOPES.sum(),
    }
    with li.compile(li.Graph("sums", xs, outputs), target) as exe:
        got = exe(**{f"x{k}": a for k, a in enumerate(arrays)})
    _agree(got, want)
