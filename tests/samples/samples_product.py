"""Samples of products; expected values by einsum."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sample import FLOATS, INTS, Array, Sample, bad_of, bound, case, data, of

import lstm_ir as li

NUMBERS = (*FLOATS, *INTS)


def _total(spec: str, *arrays: Array) -> Array:
    """einsum, wrapping in the type of the operands."""
    return np.asarray(np.einsum(spec, *arrays), arrays[0].dtype)


@of("dot_general")
def _dot() -> Iterator[Sample]:
    for k in NUMBERS:
        a, b, c = data("dot a", k, (3, 5)), data("dot b", k, (5, 7)), data("dot c", k, (2, 5, 7))
        yield case(
            f"dot {k}",
            lambda a, b, c: (
                li.dot(a, b),
                a @ c,
                c @ b.T,
                li.dot_general(c, c, ((1,), (1,)), ((0,), (0,))),
                li.dot_general(c, b, ((1, 2), (0, 1))),
                li.dot_general(c, b, ((2, 1), (1, 0))),
                li.dot_general(a, b, ((), ())),
                c[0, 0] @ b.T,
                a @ b[:, 0],
            ),
            [a, b, c],
            lambda a, b, c: (
                _total("mk,kn->mn", a, b),
                _total("mk,bkn->bmn", a, c),
                _total("bmk,nk->bmn", c, b),
                _total("bkm,bkn->bmn", c, c),
                _total("bmk,mk->b", c, b),
                _total("bmk,mk->b", c, b),
                _total("ab,cd->abcd", a, b),
                _total("n,kn->k", c[0, 0], b),
                _total("mk,k->m", a, b[:, 0]),
            ),
            kind="summed",
        )
    for k, T, B in bound((11, 3), (0, 1), (1, 0)):
        yield case(
            f"dot dynamic {k} {T} {B}",
            lambda x, w: (x @ w, li.dot_general(x, x, ((2,), (2,)), ((0,), (0,)))),
            [data("dot x", k, (T, B, 64), -1, 1), data("dot w", k, (64, 7), -1, 1)],
            lambda x, w: (np.einsum("tbi,ih->tbh", x, w), np.einsum("tbi,tci->tbc", x, x)),
            shapes=[("T", "B", 64)],
            kind="summed",
        )
    yield case(
        "dot over no elements, of rank 0, and broadcast",
        lambda a, b, c, d: (a @ b, li.dot_general(c[0, 0, 0, 0], c[0, 0, 0, 1], ((), ())), c @ d),
        [
            data("dot", "f64", (3, 0)),
            data("dot", "f64", (0, 5)),
            data("dot", "f64", (2, 1, 3, 5)),
            data("dot", "f64", (4, 5, 7)),
        ],
        lambda a, b, c, d: (np.zeros((3, 5)), c[0, 0, 0, 0] * c[0, 0, 0, 1], np.einsum("bomk,akn->bamn", c, d)),
        kind="summed",
    )


def _in(*shape: int | str, k: str = "f32") -> li.Value:
    return li.input("x", shape, k)


bad_of("dot_general", (lambda: _in(3, 5) @ _in(4, 7), "contracting sizes differ: 5 .* and 4"))
bad_of("dot_general", (lambda: _in(3, "T") @ _in("B", 7), "name them alike"))
bad_of("dot_general", (lambda: _in(3, 5) @ _in(5, 7, k="f16"), "lhs is f32, rhs f16"))
bad_of("dot_general", (lambda: _in(3, 5) @ _in(), "use \\*"))
bad_of("dot_general", (lambda: li.dot(_in(2, 3, 5), _in(5, 7)), "dot takes two matrices"))
bad_of("dot_general", (lambda: li.dot_general(_in(3, 5), _in(5), ((1,), ())), "1 contracting axes of lhs, 0 of rhs"))
bad_of("dot_general", (lambda: li.dot_general(_in(3), _in(3), ((1,), (0,))), "axis 1 is outside"))
bad_of("dot_general", (lambda: _in(3, 5, k="i1") @ _in(5, 7, k="i1"), "takes numbers, got i1"))
