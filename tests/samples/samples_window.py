"""Samples of slice, pad and the dynamic windows; expected values by NumPy's indexing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sample import FLOATS, INTS, Array, Sample, bad_of, bound, case, data, of

import lstm_ir as li

ALL = (*FLOATS, *INTS, "i1")
STARTS = (0, 2, -4, 9, 4)


@of("slice")
def _slice() -> Iterator[Sample]:
    for k in ALL:
        yield case(
            f"slice {k}",
            lambda x: (x[1:4, 2:], x[::2, 1::3], x[2], x[:, -1], li.slice(x, (0, 3), (5, 3)), x[4:0:-2]),
            [data("slice", k, (5, 7))],
            lambda x: (x[1:4, 2:], x[::2, 1::3], x[2], x[:, -1], x[:, :0], x[4:0:-2]),
            kind="exact",
        )
    for k, T, B in bound((11, 3), (12, 1), (3, 0)):
        yield case(
            f"slice dynamic {k} {T} {B}",
            lambda x: (x[:-1], x[1:], x[-1], x[::2], x[::-3], x[..., 16:32], x[2:"T-1", None], x[-2::-1]),
            [data("slice", k, (T, B, 64))],
            lambda x: (x[:-1], x[1:], x[-1], x[::2], x[::-3], x[..., 16:32], x[2 : len(x) - 1, None], x[-2::-1]),
            shapes=[("T", "B", 64)],
            kind="exact",
        )
    yield case(
        "slice T=0",
        lambda x: (x[::2], x[:, 3:], x[::-1]),
        [data("slice", "f64", (0, 5))],
        lambda x: (x, x[:, 3:], x),
        shapes=[("T", 5)],
        kind="exact",
    )


def _put(x: Array, sizes: tuple[int, ...], places: list[tuple[int, int, int, int]], value: float) -> Array:
    """x[i, j] at (a0 + i k0, a1 + j k1), by loops."""
    out = np.full(sizes, value, x.dtype)
    (a, _, _, p), (b, _, _, q) = places
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            r, c = a + i * (p + 1), b + j * (q + 1)
            if 0 <= r < sizes[0] and 0 <= c < sizes[1]:
                out[r, c] = x[i, j]
    return out


@of("pad")
def _pad() -> Iterator[Sample]:
    edges = [
        (((1, 2, 3, 0), (2, 0, 7, 0)), (6, 9)),
        (((-1, 0, 3, 0), (0, -2, 7, 0)), (2, 5)),
        (((1, 0, 3, 2), (-2, 1, 7, 1)), (8, 12)),
        (((-5, 4, 3, 0), (0, 0, 7, 0)), (2, 7)),
        (((0, 0, 3, 1), (-1, -12, 7, 1)), (5, 0)),
    ]
    for k in ALL:
        value = True if k == "i1" else 2

        def build(x: li.Value, value: bool | int = value) -> tuple[li.Value, ...]:
            out = []
            for (a, b), _ in edges:
                out.append(li.pad(x, (a[0], b[0]), (a[1], b[1]), (a[3], b[3]), value))
            return tuple(out)

        yield case(
            f"pad {k}",
            build,
            [data("pad", k, (3, 7))],
            lambda x, value=value: tuple(_put(x, sizes, [*pair], value) for pair, sizes in edges),
            kind="exact",
        )
    yield case(
        "pad with a value",
        lambda x, v: li.pad(x, (0, 1), (2, 0), (1, 0), v),
        [data("pad", "f64", (3, 7)), data("pad v", "f64", ())],
        lambda x, v: _put(x, (7, 8), [(0, 0, 0, 1), (1, 0, 0, 0)], float(v)),
        kind="exact",
    )
    yield case(
        "pad empty",
        lambda x: li.pad(x, (1, 0), (2, 0), (3, 0)),
        [data("pad", "f64", (0, 3))],
        lambda x: np.zeros((3, 3)),
        kind="exact",
    )
    for k, T in bound((11,), (1,)):
        yield case(
            f"pad dynamic {k} {T}",
            lambda x: (li.pad(x, (1, 0), (0, 3)), li.pad(x, (0, -60), ("T", 0)), li.pad(x, (0, 0), (0, 0), (1, 0))),
            [data("pad T", k, (T, 64))],
            lambda x: (
                np.pad(x, ((1, 0), (0, 3))),
                np.pad(x[:, 60:], ((0, len(x)), (0, 0))),
                _put(x, (2 * len(x) - 1, 64), [(0, 0, 0, 1), (0, 0, 0, 0)], 0),
            ),
            shapes=[("T", 64)],
            kind="exact",
        )
    yield case(
        "pad T=0",
        lambda x: li.pad(x, (1, 0), (0, 3)),
        [data("pad", "f32", (0, 5))],
        lambda x: np.zeros((1, 8)),
        shapes=[("T", 5)],
        kind="exact",
    )


def _inside(start: int, size: int, room: int) -> int:
    return 0 if start < 0 else room - size if start > room - size else start


@of("dynamic_slice")
def _dynamic_slice() -> Iterator[Sample]:
    for k in ALL:
        for s in STARTS if k == "f32" else STARTS[1:2]:
            yield case(
                f"dynamic_slice {k} {s}",
                lambda x, i: li.dynamic_slice(x, (i, 1), (3, 4)),
                [data("dynamic_slice", k, (5, 7)), np.array(s, np.int32)],
                lambda x, i: x[_inside(int(i), 3, 5) :][:3, 1:5],
                kind="exact",
            )
    for k, T in bound((11,), (1,)):
        yield case(
            f"dynamic_slice dynamic {k} {T}",
            lambda x, i: (li.dynamic_slice(x, (i, 0), (1, 64)), li.dynamic_slice(x, (i, 0), ("T", 3))),
            [data("dynamic_slice", k, (T, 64)), np.array(7, np.int32)],
            lambda x, i: (x[7:8] if len(x) > 7 else x[-1:], x[:, :3]),
            shapes=[("T", 64)],
            kind="exact",
        )


@of("dynamic_update_slice")
def _update() -> Iterator[Sample]:
    def oracle(x: Array, u: Array, i: Array) -> Array:
        out = np.array(x)
        at = _inside(int(i), len(u), len(x))
        for r in range(len(u)):
            out[at + r, 2 : 2 + u.shape[1]] = u[r]
        return out

    for k in ALL:
        for s in STARTS if k == "f32" else STARTS[1:2]:
            yield case(
                f"dynamic_update_slice {k} {s}",
                lambda x, u, i: li.dynamic_update_slice(x, u, (i, 2)),
                [data("update x", k, (5, 7)), data("update u", k, (3, 4)), np.array(s, np.int32)],
                oracle,
                kind="exact",
            )
    for k, T in bound((11,), (1,)):
        yield case(
            f"dynamic_update_slice dynamic {k} {T}",
            lambda x, u, i: li.dynamic_update_slice(x, u, (i, 2)),
            [data("update x", k, (T, 64)), data("update u", k, (1, 62)), np.array(6, np.int32)],
            oracle,
            shapes=[("T", 64)],
            kind="exact",
        )


def _in(*shape: int | str, k: str = "f32") -> li.Value:
    return li.input("x", shape, k)


bad_of("slice", (lambda: li.slice(_in(5), (2,), (6,)), r"\[2, 6\) on axis 0 is outside \[0, 5\)"))
bad_of("slice", (lambda: li.slice(_in(5), (4,), (2,)), "ends before it starts"))
bad_of("slice", (lambda: li.slice(_in(5), (0,), (2,), (0,)), "the stride on axis 0 is 0"))
bad_of("slice", (lambda: li.slice(_in("T"), (0,), ("T+1",)), "is outside"))
bad_of("slice", (lambda: li.slice(_in(5, 3), (0,), (2,)), "starts, limits and strides for 2 axes"))
bad_of("slice", (lambda: _in(5)[5], "index 5 is outside axis 0"))
bad_of("slice", (lambda: _in(5)[-6], "index -6 is outside axis 0"))
bad_of("slice", (lambda: _in(5)[0, 0], "2 indices for 1 axes"))
bad_of("slice", (lambda: _in(5)[..., ...], "more than one"))
bad_of("slice", (lambda: _in(5)[1.5], "not an integer, a slice"))
bad_of("slice", (lambda: _in(5)[True], "not an integer, a slice"))
bad_of("slice", (lambda: _in(5)[::0], "the step 0"))
bad_of("slice", (lambda: _in(5)[_in(k="i32")], "use li.take or li.dynamic_slice"))
bad_of("pad", (lambda: li.pad(_in(5), (-3,), (-3,)), "is below 0"))
bad_of("pad", (lambda: li.pad(_in(5), (0,), (0,), (-1,)), "interior padding of axis 0 is -1"))
bad_of("pad", (lambda: li.pad(_in(5), (0, 0), (0,)), "paddings for 1 axes"))
bad_of("pad", (lambda: li.pad(_in(5), (0,), (1,), value=_in(k="i32")), "padding_value is i32"))
bad_of("dynamic_slice", (lambda: li.dynamic_slice(_in(5), (0,), (6,)), "6 elements do not fit axis 0"))
bad_of("dynamic_slice", (lambda: li.dynamic_slice(_in(5), (0, 0), (1,)), "2 start indices for 1 axes"))
bad_of("dynamic_slice", (lambda: li.dynamic_slice(_in(5), (_in(),), (1,)), "start index 0 is f32"))
bad_of("dynamic_update_slice", (lambda: li.dynamic_update_slice(_in(5), _in(6), (0,)), "6 elements do not fit"))
bad_of("dynamic_update_slice", (lambda: li.dynamic_update_slice(_in(5), _in(2, k="f64"), (0,)), "update is f64"))
