"""Samples of the ops that rearrange or repeat; expected values by NumPy's indexing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sample import FLOATS, INTS, Array, Sample, bad_of, bound, case, data, of

import lstm_ir as li

ALL = (*FLOATS, *INTS, "i1")
DYNAMIC: list[tuple[int | str, ...] | None] = [("T", "B", 64)]
BINDINGS = ((11, 3), (0, 1), (1, 0))


@of("reshape")
def _reshape() -> Iterator[Sample]:
    for k in ALL:
        yield case(
            f"reshape {k}",
            lambda x: (li.reshape(x, (3, 70)), x.reshape(7, -1, 6)),
            [data("reshape", k, (5, 6, 7))],
            lambda x: (x.ravel().reshape(3, 70), x.ravel().reshape(7, 5, 6)),
            kind="exact",
        )
    for k, T, B in bound(*BINDINGS):
        yield case(
            f"reshape dynamic {k} {T} {B}",
            lambda x: (li.reshape(x, ("T*B", 64)), li.reshape(x, ("T", -1, 8))),
            [data("reshape", k, (T, B, 64))],
            lambda x: (
                np.concatenate([*x, x[:0, 0] if x.shape[1] else np.zeros((0, 64))]) if len(x) else np.zeros((0, 64)),
                np.stack([x[:, b, 8 * i : 8 * i + 8] for b in range(x.shape[1]) for i in range(8)], 1)
                if x.shape[1]
                else np.zeros((len(x), 0, 8)),
            ),
            shapes=DYNAMIC,
            kind="exact",
        )
    yield case(
        "reshape rank 0 and empty",
        lambda a, b: (li.reshape(a, ()), li.expand_dims(li.squeeze(a), (0, 1)), li.reshape(b, (7, 0))),
        [data("reshape 0", "f64", (1, 1, 1)), data("reshape 0", "f64", (0, 5))],
        lambda a, b: (a[0, 0, 0], a[0], np.zeros((7, 0))),
        kind="exact",
    )


@of("transpose")
def _transpose() -> Iterator[Sample]:
    for k in ALL:
        yield case(
            f"transpose {k}",
            lambda x: (li.transpose(x), li.transpose(x, (1, 2, 0)), li.swapaxes(x, 0, -1)),
            [data("transpose", k, (3, 5, 7))],
            lambda x: (np.einsum("abc->cba", x), np.einsum("abc->bca", x), np.einsum("abc->cba", x)),
            kind="exact",
        )
    for k, T, B in bound(*BINDINGS):
        yield case(
            f"transpose dynamic {k} {T} {B}",
            lambda x: li.transpose(x, (1, 0, 2)),
            [data("transpose", k, (T, B, 64))],
            lambda x: np.moveaxis(x, 1, 0),
            shapes=DYNAMIC,
            kind="exact",
        )


@of("reverse")
def _reverse() -> Iterator[Sample]:
    for k in ALL:
        yield case(
            f"reverse {k}",
            lambda x: (li.reverse(x), li.reverse(x, 1), x[::-1, :, ::-1]),
            [data("reverse", k, (3, 5, 7))],
            lambda x: (x[::-1, ::-1, ::-1], x[:, ::-1], x[::-1, :, ::-1]),
            kind="exact",
        )
    for k, T, B in bound(*BINDINGS):
        yield case(
            f"reverse dynamic {k} {T} {B}",
            lambda x: li.reverse(x, 0),
            [data("reverse", k, (T, B, 64))],
            lambda x: x[::-1],
            shapes=DYNAMIC,
            kind="exact",
        )


@of("concatenate")
def _concatenate() -> Iterator[Sample]:
    for k in ALL:
        arrays = [data(f"concat {i}", k, s) for i, s in enumerate([(3, 5), (3, 2), (3, 0), (1, 5)])]

        def oracle(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, ...]:
            wide = np.zeros((3, 7), a.dtype)
            wide[:, :5], wide[:, 5:] = a, b
            return wide, np.array([*a, *d]), np.array([a, a])

        yield case(
            f"concatenate {k}",
            lambda a, b, c, d: (li.concat([a, b, c], -1), li.concat([a, d]), li.stack([a, a])),
            arrays,
            oracle,
            kind="exact",
        )
    for k, T, B in bound(*BINDINGS):
        yield case(
            f"concatenate dynamic {k} {T} {B}",
            lambda x: (li.concat([x, x[:, :, :32]], 2), li.concat([x, x, x], 0)),
            [data("concat", k, (T, B, 64))],
            lambda x: (np.dstack([x, x[:, :, :32]]), np.vstack([x, x, x])),
            shapes=DYNAMIC,
            kind="exact",
        )


@of("broadcast_in_dim")
def _broadcast() -> Iterator[Sample]:
    for k in ALL:
        yield case(
            f"broadcast {k}",
            lambda a, b, c: (
                li.broadcast_to(a, (3, 5, 7)),
                li.broadcast_in_dim(b, (5, 3, 2), (0,)),
                li.broadcast_to(c, (2, 0)),
                li.broadcast_in_dim(a, (5, 2, 7), (0, 2)),
            ),
            [data("broadcast", k, (5, 1)), data("broadcast b", k, (5,)), data("broadcast c", k, ())],
            lambda a, b, c: (
                np.tile(a, (3, 1, 7)),
                np.repeat(b, 6).reshape(5, 3, 2),
                np.zeros((2, 0), a.dtype),
                np.tile(a[:, None], (1, 2, 7)),
            ),
            kind="exact",
        )
    for k, T, B in bound(*BINDINGS):
        arrays = [data("broadcast T", k, (T, B, 1)), data("broadcast w", k, (64,))]
        yield case(
            f"broadcast dynamic {k} {T} {B}",
            lambda x, w: (li.broadcast_to(x, ("T", "B", 64)), li.broadcast_in_dim(w, ("T", "B", 64), (2,))),
            arrays,
            lambda x, w: (x + 0 * w, 0 * x + w),
            shapes=[("T", "B", 1)],
            kind="exact",
        )


@of("iota")
def _iota() -> Iterator[Sample]:
    want = np.array([[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3], [4, 4, 4]])
    for k in (*FLOATS, *INTS):
        yield case(
            f"iota {k}",
            lambda x, k=k: (li.iota((5, 3), 0, k), li.iota((3, 5), 1, k), li.arange(5, k) + 0 * x),
            [data("iota", k, ())],
            lambda x: (want, want.T, want[:, 0] + 0 * x),
            kind="exact",
        )
    for k, T in bound((11,), (0,)):
        yield case(
            f"iota dynamic {k} {T}",
            lambda x: li.iota(("T", 3), 0) + li.convert(x, "i32"),
            [data("iota", "i8", (T, 3))],
            lambda x: x.astype(np.int32) + np.array([[t] * 3 for t in range(len(x))], np.int32).reshape(-1, 3),
            shapes=[("T", 3)],
        )


def _in(*shape: int | str) -> li.Value:
    return li.input("x", shape, "f32")


bad_of("reshape", (lambda: li.reshape(_in(3, 5), (4, 4)), "has 15 elements, .* has 16"))
bad_of("reshape", (lambda: li.reshape(_in("T", 5), ("B", 5)), "name them alike if they are equal"))
bad_of("reshape", (lambda: li.reshape(_in("T", 5), (-1, 3)), "no size that can be decided"))
bad_of("reshape", (lambda: li.reshape(_in(3, 5), (-1, -1)), "no size that can be decided"))
bad_of("reshape", (lambda: li.reshape(_in(3, 5), (-3, -5)), "a size is -3"))
bad_of("transpose", (lambda: li.transpose(_in(3, 5), (0, 0)), "does not order the axes"))
bad_of("transpose", (lambda: li.transpose(_in(3, 5), (0, 2)), "axis 2 is outside"))
bad_of("reverse", (lambda: li.reverse(_in(3, 5), 2), "axis 2 is outside"))
bad_of("reverse", (lambda: li.reverse(_in(3, 5), (0, -2)), "name one axis twice"))
bad_of("concatenate", (lambda: li.concat([_in(3, 5), _in(3, 4)]), "value 1 has size 4 on axis 1"))
bad_of("concatenate", (lambda: li.concat([_in(3, 5), _in(5)]), "value 1 has rank 1"))
bad_of("concatenate", (lambda: li.concat([_in("T", 5), _in("T", "B")]), "name them alike"))
bad_of("concatenate", (lambda: li.concat([]), "takes at least one value"))
bad_of("broadcast_in_dim", (lambda: li.broadcast_to(_in(3, 5), (3, 7)), "axis 1 of .* is not 1 and not 7"))
bad_of("broadcast_in_dim", (lambda: li.broadcast_in_dim(_in(3), (5, 3), (2,)), "broadcast dimension 2 is outside"))
bad_of("iota", (lambda: li.iota((3,), 1), "dimension 1 is outside"))
bad_of("iota", (lambda: li.iota((3,), 0, "i1"), "not i1"))
bad_of("iota", (lambda: li.iota((-3,), 0), "a size is -3"))
