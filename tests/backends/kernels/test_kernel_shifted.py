"""Rows read one step off where they are, instead of a copy that begins with another row."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.kernels.body.shifted import shifted, without_edge
from lstm_ir.backends.kernels.cpu import outer_sum

SIZES = [(5, 3), (1, 1), (1, 4), (2, 2), (9, 18)]


def _loop(edge: li.Value | None, later: bool, reverse: bool, T: int | str) -> li.Graph:
    x = li.input("x", (T, "B", 20))
    h0 = li.input("h0", ("B", 20))
    first = li.expand_dims(li.zeros(("B", 20), "f32") if edge is None else h0 * 2.0, 0)
    if later:
        moved = li.concat([first, x], 0)[:-1]
    else:
        moved = li.concat([x, first], 0)[1:]

    def step(c: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        new = c * 0.5 + row
        return new, li.tanh(new)

    last, y = li.scan(step, h0, moved, reverse=reverse)
    return li.Graph("moved", [x, h0], {"last": last, "y": y})


@pytest.mark.parametrize("T", [4, "T"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("given", [False, True], ids=["zero", "given"])
def test_a_loop_reads_a_row_off(
    rng: np.random.Generator, given: bool, later: bool, reverse: bool, T: int | str
) -> None:
    g = _loop(li.constant(1.0) if given else None, later, reverse, T)
    exe = li.compile(g)
    for length, B in SIZES if T == "T" else [(4, 3)]:
        arrays = {
            "x": rng.standard_normal((length, B, 20)).astype(np.float32),
            "h0": rng.standard_normal((B, 20)).astype(np.float32),
        }
        got, want = exe(arrays), li.interpret(g, arrays)
        for name, v in want.items():
            np.testing.assert_allclose(got[name], v, rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("edge", [1e-7, -2.5e30, float("inf")])
def test_any_number_is_an_edge(rng: np.random.Generator, edge: float) -> None:
    x = li.input("x", (3, 2, 5))
    moved = li.concat([li.full((1, 2, 5), edge, "f32"), x], 0)[:-1]
    _, y = li.scan(lambda c, row: (c + 1.0, row * 0.5), li.zeros((2, 5), "f32"), moved)
    g = li.Graph("edges", [x], {"y": y})
    a = rng.standard_normal((3, 2, 5)).astype(np.float32)
    np.testing.assert_allclose(li.compile(g)(x=a)["y"], li.interpret(g, {"x": a})["y"], rtol=1e-6)


def test_what_is_a_shift() -> None:
    x, first = li.input("x", (4, 3, 5)), li.zeros((1, 3, 5), "f32")
    other = li.input("other", (1, 3, 5))
    down, up = li.concat([first, x[:-1]], 0), li.concat([x[1:], first], 0)
    for v, later in ((down, True), (up, False), (li.concat([first, x], 0)[:-1], True)):
        found = shifted(v)
        assert found is not None
        assert (found.rows, found.later, found.number) == (x, later, 0.0)
    given = shifted(li.concat([other, x[:-1]], 0))
    assert given is not None
    assert given.number is None
    for v in (
        li.concat([first, x[1:]], 0),  # row t is row t, but for the first
        li.concat([first, x], 0),  # longer
        li.concat([first, x[:-1, :, :]], 0)[:, :, :4],
        li.concat([first[:, :, :2], x[:1, :, :3]], 2),
        x,
    ):
        assert shifted(v) is None
    assert without_edge(li.reshape(down, (12, 5))) is not None
    assert without_edge(li.reshape(down, (4, 15))) is None  # columns of several rows
    assert without_edge(li.concat([other, x[:-1]], 0)) is None


@pytest.mark.slow_cases(given=[True])
@pytest.mark.parametrize("sizes", [(9, 18), (1, 170), ("T", "B")], ids=str)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("given", [False, True], ids=["zero", "given"])
def test_gradients_of_recurrent_weights(
    rng: np.random.Generator, given: bool, direction: str, sizes: tuple[int | str, int | str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Wide enough for the kernel of outer products: sum of da[t] h[t-1]."""
    skips: list[object] = []
    original = outer_sum.OuterSum.run

    def seen(self: outer_sum.OuterSum, *values: object) -> object:
        skips.append(self.skip)
        return original(self, *values)

    monkeypatch.setattr(outer_sum.OuterSum, "run", seen)
    (T, B), H, D = sizes, 64, 2 if direction == "bidirectional" else 1
    x, h0 = li.input("x", (T, B, 16)), li.input("h0", (D, B, H))
    w = [rng.standard_normal((D, 4 * H, n)).astype(np.float32) * 0.1 for n in (16, H)]
    weights = [li.weight(n, a) for n, a in zip(("w_ih", "w_hh"), w, strict=True)]
    first = h0 if given else None
    y, _, _ = li.lstm(x, weights[0], weights[1], h0=first, direction=direction)
    g = li.grad(li.Graph("l", [x, h0], {"loss": li.sum(y * y)}), "loss", ["w_hh", "x"])
    exe = li.compile(g)
    off = [] if given or T == 1 else [str(B)] * D  # T = 1: all of it is edge
    assert [str(s) for s in skips if s != 0] == off
    for length, rows in SIZES if isinstance(T, str) or isinstance(B, str) else [(T, B)]:
        arrays = {
            "x": rng.standard_normal((length, rows, 16)).astype(np.float32),
            "h0": rng.standard_normal((D, rows, H)).astype(np.float32),
        }
        got, want = exe(arrays), li.interpret(g, arrays)
        for name, v in want.items():
            largest = np.abs(v).max(initial=1.0)
            assert np.abs(got[name] - v).max(initial=0.0) <= 2e-5 * largest, (name, length, rows)
