"""Loops that become no kernel, and the same written as their reason says: two graphs of the same inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lstm_ir as li
from lstm_ir.backends.kernels.body import instead

T, B, H = 4, 3, 8
Graphs = tuple[li.Graph, li.Graph]
REWRITES: dict[str, tuple[str, Callable[[], Graphs]]] = {}
_RNG = np.random.default_rng(20261)
W = (0.3 * _RNG.standard_normal((H, H))).astype("f4")
EYE = np.eye(H, dtype="f4")


def rewrite(write: str) -> Callable[[Callable[[], Graphs]], Callable[[], Graphs]]:
    def keep(make: Callable[[], Graphs]) -> Callable[[], Graphs]:
        REWRITES[make.__name__] = (write, make)
        return make

    return keep


def x(*shape: Any, name: str = "x", dtype: str = "f32") -> li.Value:
    return li.input(name, shape or (T, B, H), dtype)


def zeros(*shape: Any, dtype: str = "f32") -> li.Value:
    return li.zeros(shape or (B, H), dtype)


def loop(cell: Any, init: Any, xs: Any) -> tuple[Any, Any]:
    """The last carries and the results of a scan."""
    found: tuple[Any, Any] = li.scan(cell, init, xs)
    return found


def graph(inputs: list[li.Value], *outputs: li.Value) -> li.Graph:
    return li.Graph("g", inputs, {f"o{i}": v for i, v in enumerate(outputs)})


def same_cell(cell: Any, before: Any, after: Any, inputs: list[li.Value], init: Any = None) -> Graphs:
    """One-carry loops whose scanned rows are made in the body (`before`), or before the loop."""
    start = zeros() if init is None else init
    a = loop(lambda h, r: (li.tanh(cell(h) + before(r)), h), start, inputs[0])
    b = loop(lambda h, r: (li.tanh(cell(h) + r), h), start, after(inputs[0]))
    return graph(inputs, *a), graph(inputs, *b)


@rewrite(instead.SLICE)
def columns_with_a_step() -> Graphs:
    v, pick = x(), li.constant(EYE[:, ::2].copy())
    a = loop(lambda h, r: (li.concat([li.tanh(h[:, ::2] + r[:, ::2])] * 2, 1), h), zeros(), v)
    b = loop(lambda h, r: (li.concat([li.tanh(h @ pick + r @ pick)] * 2, 1), h), zeros(), v)
    return graph([v], *a), graph([v], *b)


@rewrite(instead.RESHAPE)
def reshaped_rows() -> Graphs:
    v = x(T, 2 * B, H // 2)
    return same_cell(lambda h: h, lambda r: li.reshape(r, (B, H)), lambda r: li.reshape(r, (T, B, H)), [v])


@rewrite(instead.of_op("dynamic_slice"))
def slices_by_the_step() -> Graphs:
    v = x()

    def cell(h: Any, i: Any) -> Any:
        return li.tanh(h + li.reshape(li.dynamic_slice(v, (i, 0, 0), (1, B, H)), (B, H))), None

    a, _ = loop(cell, zeros(), li.arange(T, "i32"))
    b, _ = loop(lambda h, r: (li.tanh(h + r), None), zeros(), v)
    return graph([v], a), graph([v], b)


@rewrite(instead.of_op("reverse"))
def reversed_columns() -> Graphs:
    v, flip = x(), li.constant(EYE[::-1].copy())
    a = loop(lambda h, r: (li.tanh(h[:, ::-1] + r), h), zeros(), v)
    b = loop(lambda h, r: (li.tanh(h @ flip + r), h), zeros(), v)
    return graph([v], *a), graph([v], *b)


@rewrite(instead.of_op("pad"))
def spread_columns() -> Graphs:
    v, half = x(), (H + 1) // 2
    spread = li.constant(np.eye(H, dtype="f4")[::2])
    gap = (0, 0), (0, H - 2 * half + 1), (0, 1)
    a = loop(lambda h, r: (li.tanh(li.pad(h[:, :half], *gap) + r), h), zeros(), v)
    b = loop(lambda h, r: (li.tanh(h[:, :half] @ spread + r), h), zeros(), v)
    return graph([v], *a), graph([v], *b)


@rewrite(instead.of_op("cumsum"))
def running_sum_of_columns() -> Graphs:
    v, ones = x(), li.constant(np.triu(np.ones((H, H), "f4")))
    a = loop(lambda h, r: (li.tanh(li.cumsum(h, 1) + r), h), zeros(), v)
    b = loop(lambda h, r: (li.tanh(h @ ones + r), h), zeros(), v)
    return graph([v], *a), graph([v], *b)


@rewrite(instead.of_op("stencil"))
def convolution_of_a_state() -> Graphs:
    v, taps = x(), W[:3, 0].copy()
    kernel = li.weight("taps", taps[None, None])
    band = sum(np.eye(H, k=1 - k, dtype="f4") * taps[k] for k in range(3))

    def cell(h: Any, r: Any) -> Any:
        return li.tanh(r + li.reshape(li.conv1d(li.reshape(h, (B, 1, H)), kernel, padding=1), (B, H))), h

    a = loop(cell, zeros(), v)
    b = loop(lambda h, r: (li.tanh(r + h @ li.constant(band)), h), zeros(), v)
    return graph([v], *a), graph([v], *b)


@rewrite(instead.of_op("scan"))
def loop_in_a_loop() -> Graphs:
    v = x(T, B, 24)

    def over_columns(r: li.Value) -> Any:
        columns = li.expand_dims(li.transpose(r, (1, 0)), 2)
        return loop(lambda s, c: (li.tanh(s + c), None), zeros(r.shape[0], H), columns)[0]

    a = loop(lambda h, r: (li.tanh(h + over_columns(r)), h), zeros(), v)
    before = li.reshape(over_columns(li.reshape(v, (T * B, 24))), (T, B, H))
    b = loop(lambda h, r: (li.tanh(h + r), h), zeros(), before)
    return graph([v], *a), graph([v], *b)


@rewrite(instead.NUMBERS)
def matrix_of_a_named_size() -> Graphs:
    def made(k: int | str) -> li.Graph:
        v, m = x(T, B, k), x(k, H, name="m")
        return graph([v, m], *loop(lambda h, r: (li.tanh(h + r @ m), h), zeros(), v))

    return made("K"), made(H)


@rewrite(instead.NO_ELEMENTS)
def result_without_elements() -> Graphs:
    v = x()
    a, _ = loop(lambda h, r: (li.tanh(h + r), h[:, :0]), zeros(), v)
    a, y = loop(lambda h, r: (li.tanh(h + r), h[:, :0]), zeros(), v)
    b, _ = loop(lambda h, r: (li.tanh(h + r), None), zeros(), v)
    return graph([v], a, y), graph([v], b, zeros(T, B, 0))


@rewrite(instead.BY_FLOOR)
def remainder_of_floats() -> Graphs:
    v = x()
    a, _ = loop(lambda h, r: (li.remainder(h + r, 0.5), None), zeros(), v)

    def cell(h: Any, r: Any) -> Any:
        q = (h + r) / 0.5
        return (h + r) - 0.5 * li.select(q < 0.0, li.ceil(q), li.floor(q)), None

    b, _ = loop(cell, zeros(), v)
    return graph([v], a), graph([v], b)


@rewrite(instead.THROUGH_F32)
def product_in_f16() -> Graphs:
    v, m = x(dtype="f16"), W.astype("f2")
    a, _ = loop(lambda h, r: (li.tanh(h + li.convert(r @ li.constant(m), "f32")), None), zeros(), v)
    wide = li.constant(m.astype("f4"))
    b, _ = loop(lambda h, r: (li.tanh(h + li.convert(r, "f32") @ wide), None), zeros(), v)
    return graph([v], a), graph([v], b)


@rewrite(instead.ONE_TENSOR)
def many_scanned_values() -> Graphs:
    vs = [x(name=f"x{i}") for i in range(40)]

    def cell(h: Any, rows: Any) -> Any:
        for r in rows:
            h = li.tanh(h + r)
        return h, None

    def sliced(h: Any, row: Any) -> Any:
        return cell(h, [row[:, i * H : (i + 1) * H] for i in range(40)])

    a, _ = loop(cell, zeros(), tuple(vs))
    b, _ = loop(sliced, zeros(), li.concat(vs, 2))
    return graph(vs, a), graph(vs, b)


@rewrite(instead.JOIN_ROWS)
def joined_rows() -> Graphs:
    v, u, w = x(), x(T, B, H, name="u"), li.weight("w", W)
    a = loop(lambda h, r: (li.tanh(h @ w + li.concat(list(r), 0)), h), zeros(2 * B, H), (v, u))
    b = loop(lambda h, r: (li.tanh(h @ w + r), h), zeros(2 * B, H), li.concat([v, u], 1))
    return graph([v, u], *a), graph([v, u], *b)


@rewrite(instead.MIXED_ROWS)
def rows_in_pairs() -> Graphs:
    w = li.weight("w", W)
    blocks, v = li.weight("blocks", np.kron(np.eye(B), W).astype("f4")), x()

    def cell(h: Any, r: Any) -> Any:
        largest = li.sum(li.maximum(li.reshape(h, (B, 1, H)), li.reshape(h, (1, B, H))), 1)
        return li.tanh(h @ w + 0.1 * largest + r), h

    def one(h: Any, r: Any) -> Any:
        parts = [h[:, k * H : (k + 1) * H] for k in range(B)]
        largest = li.concat([sum(li.maximum(p, q) for q in parts) for p in parts], 1)
        return li.tanh(h @ blocks + 0.1 * largest + r), h

    a = loop(cell, zeros(), v)
    b = loop(one, zeros(1, B * H), li.reshape(v, (T, 1, B * H)))
    return graph([v], *a), graph([v], li.reshape(b[0], (B, H)), li.reshape(b[1], (T, B, H)))


def rows_in_both_orders() -> Graphs:
    """A kernel of CPUs as it is; for GPUs rows have one order."""
    v, w = x(T, B, H, H), li.weight("w", W)
    a = loop(lambda h, r: (li.tanh(h @ w + r[:, :, 0] + r[:, 0, :]), h), zeros(), v)
    b = loop(
        lambda h, r: (li.tanh(h @ w + r[0][:, 0, :] + r[1][:, 0, :]), h), zeros(), (li.transpose(v, (0, 1, 3, 2)), v)
    )
    return graph([v], *a), graph([v], *b)


@rewrite(instead.of_op("gather"))
def elements_of_a_table() -> Graphs:
    table = li.weight("table", W[0])
    take = lambda ids: li.take(table, ids, axis=0)  # noqa: E731
    return same_cell(lambda h: h, take, take, [x(T, B, H, dtype="i32")])


def picked(pick: Any) -> li.Graph:
    """A cell that reads its own carry at places i: `pick` of carry and i."""
    rows, i = x(), x(T, B, name="i", dtype="i32")

    def cell(h: li.Value, step: Any) -> Any:
        h = li.tanh(h + step[0])
        return h, pick(h, li.minimum(step[1], B - 1))

    last, y = loop(cell, zeros(), (rows, i))
    return graph([rows, i], last, y)


@rewrite(instead.PICK)
def rows_of_the_carry() -> Graphs:
    return picked(lambda h, i: li.take(h, i, 0)), picked(lambda h, i: li.matmul(li.one_hot(i, B), h))


@rewrite(instead.PICK)
def elements_of_the_carry() -> Graphs:
    along = picked(lambda h, i: li.take_along_axis(h, li.reshape(i, (B, 1)), 1)[:, 0])
    return along, picked(lambda h, i: li.sum(h * li.one_hot(i, H), 1))


@rewrite(instead.OUTSIDE)
def powers() -> Graphs:
    change = lambda r: li.power(li.abs(r), 0.7)  # noqa: E731
    return same_cell(lambda h: h, change, change, [x()])
