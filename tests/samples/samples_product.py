"""Samples of products and convolution; expected values by einsum and loops."""

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


def _convolved(x: Array, w: Array, stride: int, low: int, high: int, dilation: int, groups: int) -> Array:
    """The definition, by loops."""
    (n, _, length), (o, each, taps) = x.shape, w.shape
    steps = (length + low + high - (taps - 1) * dilation - 1) // stride + 1
    out = np.zeros((n, o, steps), x.dtype)
    for f in range(o):
        for t in range(steps):
            for k in range(taps):
                at = t * stride + k * dilation - low
                if 0 <= at < length:
                    first = f // (o // groups) * each
                    out[:, f, t] += (x[:, first : first + each, at] * w[f, :, k]).sum(1, dtype=x.dtype)
    return out


@of("convolution_1d")
def _convolution() -> Iterator[Sample]:
    forms = [(1, 0, 0, 1, 1), (2, 1, 2, 1, 1), (1, 2, 0, 2, 1), (3, 1, 1, 1, 2), (2, 4, 3, 2, 2)]
    for k in NUMBERS:
        x, w, v = (data("conv x", k, (2, 4, 11)), data("conv w", k, (6, 4, 3)), data("conv v", k, (6, 2, 3)))
        yield case(
            f"convolution_1d {k}",
            lambda x, w, v: tuple(li.conv1d(x, w if g == 1 else v, s, (a, b), d, g) for s, a, b, d, g in forms),
            [x, w, v],
            lambda x, w, v: tuple(_convolved(x, w if g == 1 else v, s, a, b, d, g) for s, a, b, d, g in forms),
            kind="summed",
        )
    for N, L in ((3, 11), (1, 3), (0, 4)):
        yield case(
            f"convolution_1d dynamic {N} {L}",
            lambda x, w: (li.conv1d(x, w, padding=1), li.conv1d(x, w, 2, (2, 0))),
            [data("conv x", "f64", (N, 5, L)), data("conv w", "f64", (7, 5, 3))],
            lambda x, w: (_convolved(x, w, 1, 1, 1, 1, 1), _convolved(x, w, 2, 2, 0, 1, 1)),
            shapes=[("N", 5, "L")],
            kind="summed",
        )
    yield case(
        "convolution_1d wide and negative padding",
        lambda x, w: (li.conv1d(x, w, padding=(5, 2)), li.conv1d(x, w, padding=-2)),
        [data("conv x", "f64", (2, 4, 11)), data("conv w", "f64", (6, 4, 3))],
        lambda x, w: (_convolved(x, w, 1, 5, 2, 1, 1), _convolved(x[:, :, 2:-2], w, 1, 0, 0, 1, 1)),
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
bad_of("convolution_1d", (lambda: li.conv1d(_in(2, 4, 9), _in(6, 3, 3)), "4 channels, but 1 groups of 3"))
bad_of("convolution_1d", (lambda: li.conv1d(_in(2, 4, 2), _in(6, 4, 3)), "a window of 3 does not fit 2"))
bad_of("convolution_1d", (lambda: li.conv1d(_in(2, 4, 9), _in(5, 2, 3), groups=2), "5 output channels do not divide"))
bad_of("convolution_1d", (lambda: li.conv1d(_in(2, 4, 9), _in(6, 4, 3), stride=0), "are 1 or more"))
bad_of("convolution_1d", (lambda: li.conv1d(_in(2, 4, 9), _in(6, 4, "K")), "the kernel size is K"))
