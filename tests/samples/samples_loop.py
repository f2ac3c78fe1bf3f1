"""Samples of leaves, sizes and `scan`; expected values by Python loops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sample import FLOATS, INTS, Array, Sample, bad_of, case, data, of

import lstm_ir as li


@of("parameter", "weight", "constant")
def _leaves() -> Iterator[Sample]:
    for k in (*FLOATS, *INTS, "i1"):
        w = data("weight", k, (3, 5))
        yield case(
            f"leaves {k}",
            lambda x, w=w: (x, li.weight("w/1", w), li.constant(w[0])),
            [data("leaf", k, (2,))],
            lambda x, w=w: (x, w.astype(np.float64) if x.dtype.kind == "f" else w, w[0]),
            kind="exact",
        )


@of("dim")
def _dim() -> Iterator[Sample]:
    for T, B in ((11, 3), (0, 1)):
        yield case(
            f"dim {T} {B}",
            lambda x: (li.dim(x, 0), li.dim(x, 2), li.size("2*T+B-1")),
            [data("dim", "f32", (T, B, 5))],
            lambda x: (np.int32(x.shape[0]), np.int32(5), np.int32(2 * x.shape[0] + x.shape[1] - 1)),
            shapes=[("T", "B", 5)],
        )


@of("in_range")
def _in_range() -> Iterator[Sample]:
    for k in INTS:
        x = np.array([0, 3, 11], data("", k, ()).dtype)
        yield case(
            f"in_range {k}",
            lambda x, t: (li.in_range(x, 0, "T"), li.sum(t)),
            [x, np.zeros(11, np.float32)],
            lambda x, t: (x, np.zeros(())),
            shapes=[None, ("T",)],
        )


def _decay(h: li.Value, x: li.Value, w: li.Value) -> tuple[li.Value, li.Value]:
    new = h * w + x
    return new, new * 2.0


@of("scan")
def _scan() -> Iterator[Sample]:
    def loop(x: Array, h: Array, w: Array, order: list[int]) -> tuple[Array, Array]:
        ys = np.zeros_like(x)
        for t in order:
            h = h * w + x[t]
            ys[t] = 2 * h
        return h, ys

    for k in FLOATS:
        if k in ("f16", "bf16"):
            continue  # every step rounds: the loop in float64 is no oracle at two bytes
        for T in (5, 0):
            yield case(
                f"scan {k} T={T}",
                lambda x, h, w: li.scan(_decay, h, x, w),
                [data("scan x", k, (T, 3)), data("scan h", k, (3,)), data("scan w", k, (3,), -1, 1)],
                lambda x, h, w: loop(x, h, w, list(range(len(x)))),
                shapes=[("T", 3)],
                kind="summed",
            )
        yield case(
            f"scan reverse {k}",
            lambda x, h, w: li.scan(_decay, h, x, w, reverse=True),
            [data("scan x", k, (5, 3)), data("scan h", k, (3,)), data("scan w", k, (3,), -1, 1)],
            lambda x, h, w: loop(x, h, w, list(range(len(x)))[::-1]),
            kind="summed",
        )
        yield case(
            f"scan count {k}",
            lambda x, h, w, n: li.scan(_decay, h, x, w, count=n),
            [data("scan x", k, (5, 3)), data("scan h", k, (3,)), data("scan w", k, (3,), -1, 1), np.array(3, np.int32)],
            lambda x, h, w, n: loop(x, h, w, [0, 1, 2]),
            kind="summed",
        )


def _in(*shape: int | str, k: str = "f32") -> li.Value:
    return li.input("x", shape, k)


bad_of("in_range", (lambda: li.in_range(_in(3), 0, 5), "takes integers, got f32"))
bad_of("scan", (lambda: li.scan(lambda h, x: (h, h), _in(3)), "length is required"))
bad_of("scan", (lambda: li.scan(lambda h, x: (li.sum(h), h), _in(3), _in(5, 3)), "carry 0 goes in as"))
