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


def _by_integers(x: Array, w: Array, scale: Array, zero: Array | int) -> Array:
    """Rows as u8 by the range of all of them, by integers; in f64."""
    low, high = min(x.min(initial=0), 0), max(x.max(initial=0), 0)
    step = (high - low) / 255 or 1
    middle = np.round(-low / step)
    p = np.clip(np.round(x / step) + middle, 0, 255) - middle
    return np.asarray(np.einsum("...k,kn->...n", p, np.subtract(w, zero, dtype=np.float64)) * step * scale)


@of("dynamic_quantize_matmul")
def _quantized() -> Iterator[Sample]:
    for k in ("i8", "u8"):
        w, zero = data("quantized w", k, (5, 7)), data("quantized zero", k, (7,))
        some, every = data("quantized scale", "f32", (1,), 0.1, 0.3), data("quantized scales", "f32", (7,), 0.1, 0.3)
        arrays = [data("quantized x", "f32", (2, 3, 5)), w, some, every, zero]
        yield case(
            f"dynamic_quantize_matmul {k}",
            lambda x, w, s, e, z: (
                li.dynamic_quantize_matmul(x, w, s), li.dynamic_quantize_matmul(x, w, e, z),
                li.dynamic_quantize_matmul(x[0, 1], w, e, z[:1]), li.dynamic_quantize_matmul(x * 0.0, w, s),
            ),
            arrays,
            lambda x, w, s, e, z: (
                _by_integers(x, w, s, 0), _by_integers(x, w, e, z), _by_integers(x[0, 1], w, e, z[:1]),
                np.zeros((2, 3, 7)),
            ),
            kind="summed",
            smooth=False,
        )  # fmt: skip
    for T in (11, 0):
        yield case(
            f"dynamic_quantize_matmul dynamic {T}",
            lambda x, w, s: li.dynamic_quantize_matmul(x, w, s),
            [data("rows", "f32", (T, 9)), data("quantized w", "i8", (9, 4)), data("scale", "f32", (4,), 0.1, 0.3)],
            lambda x, w, s: _by_integers(x, w, s, 0),
            shapes=[("T", 9)],
            kind="summed",
            smooth=False,
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


S, N7 = np.ones(1, "f4"), np.ones(7, "f4")
bad_of("dynamic_quantize_matmul", *(
    (lambda: li.dynamic_quantize_matmul(_in(3, 5, k="f64"), _in(5, 7, k="i8"), S), r"rows are f64\[3,5\], expected"),
    (lambda: li.dynamic_quantize_matmul(_in(3, 5), _in(5, 7), S), r"w is f32\[5,7\], expected i8\[K,N\] or u8\[K,N\]"),
    (lambda: li.dynamic_quantize_matmul(_in(3, 5), _in(4, 7, k="i8"), S), "rows have 5 elements, w 4 rows"),
    (lambda: li.dynamic_quantize_matmul(_in(3, 5), _in(5, 7, k="i8"), N7[:3]), r"scale is f32\[3\], expected f32\[1\]"),
    (lambda: li.dynamic_quantize_matmul(_in(3, 5), _in(5, 7, k="i8"), S, _in(7, k="u8")), r"zero is u8\[7\], expected"),
))  # fmt: skip
