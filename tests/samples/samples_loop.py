"""Samples of leaves, sizes and `scan`; expected values by Python loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sample import FLOATS, INTS, Array, Sample, bad_of, case, data, of

import lstm_ir as li

OUTSIDE = li.exp(li.input("beta", (3, 5)))


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


@of("stop_gradient")
def _stop_gradient() -> Iterator[Sample]:
    for k in (*FLOATS, *INTS, "i1"):
        x = data("stop", k, (3, 5))
        name = f"stop_gradient {k}"
        yield case(name, lambda x: (li.stop_gradient(x), x), [x], lambda x: (x, x), kind="exact", smooth=False)


def _product(a: li.Value, b: li.Value) -> tuple[tuple[li.Value, li.Value], tuple[li.Value, li.Value]]:
    return (a * b, a > b), (a, b)


def _product_back(kept: tuple[li.Value, li.Value], ct: tuple[li.Value, None]) -> tuple[li.Value, li.Value]:
    a, b = kept
    return ct[0] * b, ct[0] * a


@of("custom_vjp")
def _custom_vjp() -> Iterator[Sample]:
    """The gradient written is that of the function: what holds for all ops holds here."""
    for k in FLOATS:
        yield case(
            f"custom_vjp {k}",
            lambda a, b: li.custom_vjp(_product, _product_back)(a, b),
            [data("custom a", k, (3, 5)), data("custom b", k, (3, 5))],
            lambda a, b: (a * b, a > b),
        )
        yield case(
            f"custom_vjp named {k}",
            lambda a, b: li.custom_vjp(_product, _product_back)(a, b)[0],
            [data("custom a", k, (4, 2)), data("custom b", k, (4, 2))],
            lambda a, b: a * b,
            shapes=[("T", 2), ("T", 2)],
        )


def _in(*shape: int | str, k: str = "f32") -> li.Value:
    return li.input("x", shape, k)


bad_of("in_range", (lambda: li.in_range(_in(3), 0, 5), "takes integers, got f32"))
bad_of("scan", (lambda: li.scan(lambda h, x: (h, h), _in(3)), "length is required"))
bad_of("scan", (lambda: li.scan(lambda h: (h, h), _in(3), length=-5), "length: a size is -5; sizes are 0 to"))
bad_of("scan", (lambda: li.scan(lambda h, x: (li.sum(h), h), _in(3), _in(5, 3)), "carry 0 goes in as"))


def _custom(backward: Any, forward: Any = lambda a, b: (a * 2.0, b)) -> Any:
    return lambda: li.custom_vjp(forward, backward)(_in(3, 5), {"w": li.input("i", (2,), "i32")})


bad_of(
    "custom_vjp",
    (lambda: li.custom_vjp(3, _product_back), "forward is 3; expected a function"),  # type: ignore[arg-type]
    (_custom(lambda r, ct: (ct, None), lambda a, b: a), "forward must return \\(outputs, residuals\\)"),
    (_custom(lambda r, ct: (ct, None), lambda a, b: ((), ())), "forward returns no outputs"),
    (_custom(lambda r, ct: ct), "a tuple with a gradient, or None, for each of 2, got Value"),
    (_custom(lambda r, ct: (ct,)), "for each of 2, got 1 of them"),
    (_custom(lambda r, ct: (ct[:2], None)), r"gives f32\[2,5\] as the gradient of argument 0, which is f32\[3,5\]"),
    (_custom(lambda r, ct: (li.convert(ct, "f64"), None)), r"gives f64\[3,5\] as the gradient of argument 0"),
    (_custom(lambda r, ct: (ct, {"w": ct})), "gives a gradient of argument 1\\['w'\\], which is i32"),
    (_custom(lambda r, ct: (ct, {"v": None})), "argument 1 is not a dict with 'w'"),
    (_custom(lambda r, ct: ((ct, ct), None)), "argument 0 is a tuple; the argument is one value"),
    (_custom(lambda r, ct: (ct * OUTSIDE, None)), "backward reads the value 'beta' from around it; give it as an arg"),
    (_custom(lambda r, ct: (ct, None), lambda a, b: (a * OUTSIDE, ())), "forward reads the value 'beta' from around"),
    (_custom(lambda r, ct: (ct * li.weight("k", 2.0), None)), "backward reads the weight 'k'"),
)
