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


@rewrite(instead.SLICE)
def slice_of_rows() -> Graphs:
    return same_cell(lambda h: h, lambda r: r[:B], lambda v: v[:, :B], [x(T, 2 * B, H)])


@rewrite(instead.JOIN_ROWS)
def joined_rows() -> Graphs:
    v, u = x(), x(T, B, H, name="u")
    a = loop(lambda h, r: (li.tanh(h + li.concat(list(r), 0)), h), zeros(2 * B, H), (v, u))
    b = loop(lambda h, r: (li.tanh(h + r), h), zeros(2 * B, H), li.concat([v, u], 1))
    return graph([v, u], *a), graph([v, u], *b)


@rewrite(instead.RESHAPE)
def reshaped_rows() -> Graphs:
    v = x(T, 2 * B, H // 2)
    return same_cell(lambda h: h, lambda r: li.reshape(r, (B, H)), lambda r: li.reshape(r, (T, B, H)), [v])


@rewrite(instead.COLUMNS_LAST)
def transposed_rows() -> Graphs:
    return same_cell(lambda h: h, lambda r: r.T, lambda v: li.transpose(v, (0, 2, 1)), [x(T, H, B)])


@rewrite(instead.MIXED_ROWS)
def another_rows_carry() -> Graphs:
    v = x()
    a = loop(lambda h, r: (li.tanh(li.broadcast_to(h[:1], (B, H)) + r), h), zeros(), v)
    b, y = loop(
        lambda h, r: (li.tanh(li.broadcast_to(h[:, :1], (H, B)) + r), h), zeros(H, B), li.transpose(v, (0, 2, 1))
    )
    return graph([v], *a), graph([v], b.T, li.transpose(y, (0, 2, 1)))


@rewrite(instead.MIXED_ROWS)
def mean_of_the_batch() -> Graphs:
    v = x()
    a = loop(lambda h, r: (li.tanh(h - li.mean(h, 0, keepdims=True) + r), h), zeros(), v)
    b, y = loop(
        lambda h, r: (li.tanh(h - li.mean(h, 1, keepdims=True) + r), h), zeros(H, B), li.transpose(v, (0, 2, 1))
    )
    return graph([v], *a), graph([v], b.T, li.transpose(y, (0, 2, 1)))


@rewrite(instead.EVERY_ROW)
def carry_without_rows() -> Graphs:
    v = x()
    (a, c), _ = loop(lambda s, r: ((li.tanh(s[0] + r + s[1]), li.sin(s[1] + 1.0)), None), (zeros(), zeros(H)), v)
    (b, d), _ = loop(lambda s, r: ((li.tanh(s[0] + r + s[1]), li.sin(s[1] + 1.0)), None), (zeros(), zeros()), v)
    return graph([v], a, c), graph([v], b, d[0])


@rewrite(instead.of_op("gather"))
def rows_of_a_table() -> Graphs:
    table = li.weight("table", W)
    take = lambda ids: li.take(table, ids, axis=0)  # noqa: E731
    return same_cell(lambda h: h, take, take, [x(T, B, dtype="i32")])


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
def padded_columns() -> Graphs:
    v = x()
    a = loop(lambda h, r: (li.tanh(li.pad(h[:, 1:], (0, 0), (0, 1)) + r), h), zeros(), v)
    b = loop(lambda h, r: (li.tanh(li.concat([h[:, 1:], zeros(B, 1)], 1) + r), h), zeros(), v)
    return graph([v], *a), graph([v], *b)


@rewrite(instead.of_op("argmax"))
def argmax_of_a_step() -> Graphs:
    v = x()
    a = loop(lambda h, r: (li.tanh(h + r), li.argmax(h + r, 1)), zeros(), v)
    b, y = loop(lambda h, r: (li.tanh(h + r), h + r), zeros(), v)
    return graph([v], *a), graph([v], b, li.argmax(y, 2))


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
    v = x()

    def over_columns(r: li.Value) -> Any:
        columns = li.transpose(r, (1, 0))
        return loop(lambda s, c: (li.tanh(s + c), None), zeros(r.shape[0]), columns)[0]

    a = loop(lambda h, r: (li.tanh(h + li.expand_dims(over_columns(r), 1)), h), zeros(), v)
    before = li.reshape(over_columns(li.reshape(v, (T * B, H))), (T, B, 1))
    b = loop(lambda h, r: (li.tanh(h + r), h), zeros(), before)
    return graph([v], *a), graph([v], *b)


@rewrite(instead.ONE_SUM)
def product_over_two_axes() -> Graphs:
    m = li.weight("m", W.reshape(2, H // 2, H))
    v = x(T, B, 2, H // 2)
    a = loop(lambda h, r: (li.tanh(h + li.einsum("bij,ijk->bk", r, m)), h), zeros(), v)
    b = loop(lambda h, r: (li.tanh(h + li.reshape(r, (B, H)) @ li.reshape(m, (H, H))), h), zeros(), v)
    return graph([v], *a), graph([v], *b)


@rewrite(instead.BOTH_CHANGE)
def product_of_two_rows() -> Graphs:
    v = x()
    a = loop(lambda h, r: (li.tanh(li.expand_dims(li.einsum("bi,bi->b", h + 1.0, r), 1) + r), h), zeros(), v)
    b = loop(lambda h, r: (li.tanh(li.sum((h + 1.0) * r, 1, keepdims=True) + r), h), zeros(), v)
    return graph([v], *a), graph([v], *b)


@rewrite(instead.NUMBERS)
def matrix_of_a_named_size() -> Graphs:
    def made(k: int | str) -> li.Graph:
        v, m = x(T, B, k), x(k, H, name="m")
        return graph([v, m], *loop(lambda h, r: (li.tanh(h + r @ m), h), zeros(), v))

    return made("K"), made(H)


@rewrite(instead.NUMBERS)
def columns_of_a_named_size() -> Graphs:
    def made(k: int | str) -> li.Graph:
        v = x(T, B, k)
        return graph([v], *loop(lambda h, r: (li.tanh(h + r), h), zeros(B, k), v))

    return made("K"), made(H)


@rewrite(instead.NUMBERS)
def sum_of_a_named_size() -> Graphs:
    def made(k: int | str) -> li.Graph:
        v = x(T, B, k)
        return graph([v], *loop(lambda h, r: (h + li.sum(li.tanh(r + h), 1, keepdims=True), h), zeros(B, 1), v))

    return made("K"), made(H)


@rewrite(instead.COLUMN_BY_COLUMN)
def matrix_of_each_row() -> Graphs:
    v, m = x(), x(B, H, H, name="m")
    a = loop(lambda h, r: (li.tanh(r + li.einsum("bi,bij->bj", h, m)), h), zeros(), v)

    def cell(h: Any, r: Any) -> Any:
        total = r
        for i in range(H):
            total = total + h[:, i : i + 1] * m[:, i]
        return li.tanh(total), h

    return graph([v, m], *a), graph([v, m], *loop(cell, zeros(), v))


@rewrite(instead.ROWS_FIRST)
def columns_first() -> Graphs:
    v, m = x(T, H, B), li.weight("m", W)
    a = loop(lambda h, r: (li.tanh(m @ h + r), h), zeros(H, B), v)
    b, y = loop(lambda h, r: (li.tanh(h @ m.T + r), h), zeros(), li.transpose(v, (0, 2, 1)))
    return graph([v], *a), graph([v], b.T, li.transpose(y, (0, 2, 1)))


@rewrite(instead.RESULT_ROWS)
def carries_of_other_rows() -> Graphs:
    v, u = x(), x(T, 2 * B, H, name="u")
    (a, c), _ = loop(
        lambda s, r: ((li.tanh(s[0] + r[0]), li.sin(s[1] + r[1])), None), (zeros(), zeros(2 * B, H)), (v, u)
    )
    b, _ = loop(lambda s, r: (li.tanh(s + r), None), zeros(), v)
    d, _ = loop(lambda s, r: (li.sin(s + r), None), zeros(2 * B, H), u)
    return graph([v, u], a, c), graph([v, u], b, d)


@rewrite(instead.RESULT_ROWS)
def result_without_rows() -> Graphs:
    v, u = x(), x(T, H, name="u")
    a, y = loop(lambda s, r: (li.tanh(s + r[0]), li.tanh(r[1])), zeros(), (v, u))
    b, _ = loop(lambda s, r: (li.tanh(s + r), None), zeros(), v)
    return graph([v, u], a, y), graph([v, u], b, li.tanh(u))


@rewrite(instead.SCALAR)
def carried_scalar() -> Graphs:
    v = x()
    (a, c), _ = loop(lambda s, r: ((li.tanh(s[0] + r), s[1] * 0.5 + 1.0), None), (zeros(), li.constant(1.0)), v)
    (b, d), _ = loop(lambda s, r: ((li.tanh(s[0] + r), s[1] * 0.5 + 1.0), None), (zeros(), li.full((B,), 1.0)), v)
    return graph([v], a, c), graph([v], b, d[0])


@rewrite(instead.NO_ELEMENTS)
def result_without_elements() -> Graphs:
    v = x()
    a, _ = loop(lambda h, r: (li.tanh(h + r), h[:, :0]), zeros(), v)
    a, y = loop(lambda h, r: (li.tanh(h + r), h[:, :0]), zeros(), v)
    b, _ = loop(lambda h, r: (li.tanh(h + r), None), zeros(), v)
    return graph([v], a, y), graph([v], b, zeros(T, B, 0))


@rewrite(instead.FOLD_AXES)
def many_leading_indices() -> Graphs:
    v = x(T, 17, 2, 9, H)
    a = loop(lambda h, r: (li.tanh(h + r), h), zeros(17, 2, 9, H), v)
    b, y = loop(lambda h, r: (li.tanh(h + r), h), zeros(306, H), li.reshape(v, (T, 306, H)))
    return graph([v], *a), graph([v], li.reshape(b, (17, 2, 9, H)), li.reshape(y, (T, 17, 2, 9, H)))


@rewrite(instead.IN_F32)
def division_of_integers() -> Graphs:
    v = x(dtype="i32")
    a, _ = loop(lambda h, r: (li.divide(h, 3) + r, None), zeros(dtype="i32"), v)

    def cell(h: Any, r: Any) -> Any:
        q = h / 3.0
        return li.select(q < 0.0, li.ceil(q), li.floor(q)) + r, None

    b, _ = loop(cell, zeros(), li.convert(v, "f32"))
    return graph([v], a), graph([v], li.convert(b, "i32"))


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
def arithmetic_in_f16() -> Graphs:
    v = x(dtype="f16")
    a, _ = loop(lambda h, r: (li.tanh(h * 0.5 + r), None), zeros(dtype="f16"), v)

    def cell(h: Any, r: Any) -> Any:
        return li.convert(li.tanh(li.convert(h, "f32") * 0.5 + li.convert(r, "f32")), "f16"), None

    b, _ = loop(cell, zeros(dtype="f16"), v)
    return graph([v], a), graph([v], b)


@rewrite(instead.THROUGH_F32)
def product_in_f16() -> Graphs:
    v, m = x(dtype="f16"), W.astype("f2")
    a, _ = loop(lambda h, r: (li.tanh(h + li.convert(r @ li.constant(m), "f32")), None), zeros(), v)
    wide = li.constant(m.astype("f4"))
    b, _ = loop(lambda h, r: (li.tanh(h + li.convert(r, "f32") @ wide), None), zeros(), v)
    return graph([v], a), graph([v], b)


@rewrite(instead.OUTSIDE)
def one_half_to_the_other() -> Graphs:
    def narrow(r: li.Value) -> li.Value:
        return li.convert(r, "bf16")

    v = x(dtype="f16")
    a, _ = loop(lambda h, r: (li.tanh(h + li.convert(narrow(r), "f32")), None), zeros(), v)
    b, _ = loop(lambda h, r: (li.tanh(h + li.convert(r, "f32")), None), zeros(), narrow(v))
    return graph([v], a), graph([v], b)


@rewrite(instead.CONVERT_AFTER)
def floats_to_integers() -> Graphs:
    v = x()
    a = loop(lambda h, r: (li.tanh(h + r), li.convert(h * 10.0, "i64")), zeros(), v)
    b, y = loop(lambda h, r: (li.tanh(h + r), h * 10.0), zeros(), v)
    return graph([v], *a), graph([v], b, li.convert(y, "i64"))


@rewrite(instead.CONVERT_BEFORE)
def bytes_of_a_picture() -> Graphs:
    wide = lambda r: li.convert(r, "f32") * (1 / 255)  # noqa: E731
    return same_cell(lambda h: h, wide, wide, [x(dtype="u8")])


@rewrite(instead.SUM_IN_F32)
def sum_of_integers() -> Graphs:
    v = x(dtype="i32")
    a, _ = loop(lambda h, r: (h + li.sum(r, 1, keepdims=True), None), zeros(dtype="i32"), v)
    b, _ = loop(lambda h, r: (h + li.sum(li.convert(r, "f32"), 1, keepdims=True), None), zeros(), v)
    return graph([v], a), graph([v], li.convert(b, "i32"))


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
