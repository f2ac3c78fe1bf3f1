"""Samples of gather and scatter_add; expected values by loops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sample import FLOATS, INTS, Array, Sample, bad_of, bound, case, data, of

import lstm_ir as li

NUMBERS = (*FLOATS, *INTS)


@of("gather")
def _gather() -> Iterator[Sample]:
    for k in (*NUMBERS, "i1"):
        for i in INTS if k == "f32" else ("i32",):
            at = np.array([[4, 0, 0], [2, 4, 1]]).astype(data("", i, ()).dtype)
            yield case(
                f"gather {k} {i}",
                lambda x, at: (li.take(x, at), li.take(x, at, 1), li.take(x, at[0, 0], -1)),
                [data("gather", k, (5, 7)), at],
                lambda x, at: (
                    np.array([[x[j] for j in row] for row in at.tolist()]),
                    np.array([[[r[j] for j in row] for row in at.tolist()] for r in x]),
                    x[:, int(at[0, 0])],
                ),
                kind="exact",
            )
    for k, T, B in bound((11, 3), (1, 0)):
        at = np.arange(T * B, dtype=np.int32).reshape(T, B) % 5
        yield case(
            f"gather dynamic {k} {T} {B}",
            lambda x, at: li.take(x, at),
            [data("gather", k, (5, 64)), at],
            lambda x, at: np.array([x[j] for j in at.ravel()]).reshape(*at.shape, 64),
            shapes=[None, ("T", "B")],
            kind="exact",
        )
        yield case(
            f"gather dynamic rows {k} {T} {B}",
            lambda x, at: li.take(x, at, 0),
            [data("gather", k, (T, 7)), np.zeros((3,), np.int64)],
            lambda x, at: np.array([x[0]] * 3),
            shapes=[("T", 7), None],
            kind="exact",
        )


@of("scatter_add")
def _scatter() -> Iterator[Sample]:
    def rows(x: Array, at: Array, u: Array) -> Array:
        out = np.array(x)
        for j, i in enumerate(at.ravel().tolist()):
            out[i] += u.reshape(-1, *x.shape[1:])[j]
        return out

    for k in NUMBERS:
        at = np.array([[4, 0, 0], [2, 4, 4]], np.int32)
        yield case(
            f"scatter_add {k}",
            lambda x, at, u, v: (li.scatter_add(x, at, u), li.scatter_add(x, at, v, axis=1)),
            [data("scatter", k, (5, 7)), at, data("scatter u", k, (2, 3, 7)), data("scatter v", k, (5, 2, 3))],
            lambda x, at, u, v: (rows(x, at, u), rows(x.T, at, np.moveaxis(v, 0, 2)).T),
            kind="summed",
        )
    for k, T, B in bound((11, 3), (0, 1)):
        at = np.arange(T * B, dtype=np.int32).reshape(T, B) % 5
        yield case(
            f"scatter_add dynamic {k} {T} {B}",
            lambda x, at, u: li.scatter_add(x, at, u),
            [data("scatter", k, (5, 64), -1, 1), at, data("scatter u", k, (T, B, 64), -1, 1)],
            rows,
            shapes=[None, ("T", "B"), ("T", "B", 64)],
            kind="summed",
        )
    yield case(
        "scatter_add many f16",
        lambda x, at, u: li.scatter_add(x, at, u),
        [np.zeros(1, np.float16), np.zeros(4096, np.int32), np.ones(4096, np.float16)],
        rows,
        kind="summed",
    )


def _in(*shape: int | str, k: str = "f32") -> li.Value:
    return li.input("x", shape, k)


bad_of("gather", (lambda: li.take(_in(3, 5), _in(2)), "indices are f32"))
bad_of("gather", (lambda: li.take(_in(0, 5), _in(2, k="i32")), "has no rows to pick"))
bad_of(
    "scatter_add", (lambda: li.scatter_add(_in(3, 5), _in(2, k="i32"), _in(2, 4)), "updates .* should have the shape")
)
bad_of("scatter_add", (lambda: li.scatter_add(_in(3, 5), _in(2, k="i32"), _in(2, 5, k="f64")), "updates are f64"))
