"""Samples of reductions, running sums, argmax and softmax; expected values by loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sample import FLOATS, INTS, Array, Sample, bad_of, bound, case, data, of

import lstm_ir as li

NUMBERS = (*FLOATS, *INTS)


def _fold(x: Array, axes: tuple[int, ...], step: Callable[[Any, Any], Any], start: Any) -> Array:
    """A reduction by plain loops over the elements."""
    kept = [i for i in range(x.ndim) if i not in axes]
    out = np.full([x.shape[i] for i in kept], start, object)
    for at in np.ndindex(*x.shape):
        place = tuple(at[i] for i in kept)
        out[place] = step(out[place], x[at].item())
    return out


def _reduced(x: Array, axes: tuple[int, ...], step: Callable[[Any, Any], Any], start: Any) -> Array:
    kept = [x.shape[i] for i in range(x.ndim) if i not in axes]
    values = [_wrap(v, x.dtype) for v in _fold(x, axes, step, start).ravel()]
    return np.array(values, x.dtype).reshape(kept)


def _wrap(v: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind not in "iu":
        return v
    info = np.iinfo(dtype)
    return (int(v) - int(info.min)) % 2**info.bits + int(info.min)


def _reductions(
    op: str, build: Callable[..., li.Value], step: Callable[[Any, Any], Any], kinds: tuple[str, ...]
) -> Iterator[Sample]:
    def start(x: Array) -> Any:
        if op == "reduce_sum":
            return 0
        if x.dtype == bool:
            return op == "reduce_min"
        if x.dtype.kind == "f":
            return -np.inf if op == "reduce_max" else np.inf
        return int(np.iinfo(x.dtype).min if op == "reduce_max" else np.iinfo(x.dtype).max)

    tol = "summed" if op == "reduce_sum" else "exact"
    for k in kinds:
        yield case(
            f"{op} {k}",
            lambda x: (build(x), build(x, 1), build(x, (0, -1), keepdims=True)),
            [data(op, k, (3, 5, 7))],
            lambda x: (
                _reduced(x, (0, 1, 2), step, start(x)),
                _reduced(x, (1,), step, start(x)),
                _reduced(x, (0, 2), step, start(x))[None, :, None],
            ),
            kind=tol,
        )
        yield case(
            f"{op} of nothing {k}",
            lambda x: (build(x), build(x, 0), build(x, 1)),
            [data(op, k, (0, 3))],
            lambda x: tuple(_reduced(x, a, step, start(x)) for a in ((0, 1), (0,), (1,))),
            kind="exact",
            smooth=False,
        )
    for k, T, B in bound((11, 3), (0, 1), (1, 0)):
        yield case(
            f"{op} dynamic {k} {T} {B}",
            lambda x: (build(x, -1), build(x, 0)),
            [data(op, k, (T, B, 64))],
            lambda x: (_reduced(x, (2,), step, start(x)), _reduced(x, (0,), step, start(x))),
            shapes=[("T", "B", 64)],
            kind=tol,
        )
    nan = np.array([[1, np.nan, 2], [3, 4, np.inf]], np.float32)
    total = [np.nan, np.inf if op != "reduce_min" else 3.0]
    yield case(f"{op} NaN", lambda x: build(x, 1), [nan], lambda x: np.array(total), smooth=False)


@of("reduce_sum")
def _sum() -> Iterator[Sample]:
    yield from _reductions("reduce_sum", li.sum, lambda a, b: a + b, NUMBERS)
    for k in ("f16", "bf16"):  # summed in two bytes, 4096 ones would stop at 2048 or 256
        yield case(f"reduce_sum long {k}", lambda x: li.sum(x), [data("sum", k, (4096,), 1, 1)], np.sum, kind="summed")


@of("reduce_max")
def _max() -> Iterator[Sample]:
    yield from _reductions("reduce_max", li.max, lambda a, b: a if a > b else b, (*NUMBERS, "i1"))


@of("reduce_min")
def _min() -> Iterator[Sample]:
    yield from _reductions("reduce_min", li.min, lambda a, b: a if a < b else b, (*NUMBERS, "i1"))


@of("reduce_mean")
def _mean() -> Iterator[Sample]:
    for k in FLOATS:
        yield case(
            f"reduce_mean {k}",
            lambda x: (li.mean(x), li.mean(x, 1), li.mean(x, (0, -1), keepdims=True)),
            [data("mean", k, (3, 5, 7))],
            lambda x: (
                np.einsum("abc->", x) / 105,
                np.einsum("abc->ac", x) / 5,
                np.einsum("abc->b", x)[None, :, None] / 21,
            ),
            kind="summed",
        )
    for k, T, B in bound((11, 3), (1, 0), (0, 2)):
        yield case(
            f"reduce_mean dynamic {k} {T} {B}",
            lambda x: (li.mean(x, 0), li.mean(x, 2)),
            [data("mean", k, (T, B, 64))],
            lambda x: (np.einsum("abc->bc", x) / len(x), np.einsum("abc->ab", x) / 64),
            shapes=[("T", "B", 64)],
            kind="summed",
        )


def _running(x: Array, reverse: bool, exclusive: bool) -> Array:
    """Sums down axis 0, element by element."""
    out, rows = np.zeros_like(x), range(len(x))
    for t in rows:
        for s in rows:
            before = s > t if reverse else s < t
            if before or (s == t and not exclusive):
                out[t] += x[s]
    return out


@of("cumsum")
def _cumsum() -> Iterator[Sample]:
    for k in NUMBERS:
        yield case(
            f"cumsum {k}",
            lambda x: tuple(li.cumsum(x, 0, r, e) for r in (False, True) for e in (False, True)),
            [data("cumsum", k, (5, 7))],
            lambda x: tuple(_running(x, r, e) for r in (False, True) for e in (False, True)),
            kind="summed",
        )
    for k, T in bound((11,), (0,), (1,)):
        yield case(
            f"cumsum dynamic {k} {T}",
            lambda x: (li.cumsum(x), li.cumsum(x, -1, reverse=True), li.cumsum(x, exclusive=True)),
            [data("cumsum", k, (T, 64), -1, 1)],
            lambda x: (_running(x, False, False), _running(x.T, True, False).T, _running(x, False, True)),
            shapes=[("T", 64)],
            kind="summed",
        )


@of("argmax")
def _argmax() -> Iterator[Sample]:
    def first(row: Array) -> int:
        best = 0
        for i, v in enumerate(row.tolist()):
            if row[best] == row[best] and (v != v or v > row[best]):
                best = i
        return best

    def oracle(x: Array) -> tuple[Array, Array]:
        rows = np.array([first(r) for r in x.reshape(-1, x.shape[-1])], np.int32).reshape(x.shape[:-1])
        columns = np.array([first(x[:, j]) for j in range(x.shape[1])], np.int32)
        return rows, columns

    for k in (*NUMBERS, "i1"):
        yield case(f"argmax {k}", lambda x: (li.argmax(x), li.argmax(x, 0)), [data("argmax", k, (5, 7))], oracle)
    nan = np.array([[1, np.nan, np.nan], [np.inf, 4, np.inf], [-np.inf] * 3, [0.0, -0.0, 0.0]], np.float32)
    yield case("argmax special", lambda x: (li.argmax(x), li.argmax(x, 0)), [nan], oracle)
    x = data("argmax", "f32", (11, 64))
    yield case("argmax dynamic", lambda x: (li.argmax(x), li.argmax(x, 0)), [x], oracle, shapes=[("T", 64)])


@of("softmax", "log_softmax")
def _softmax() -> Iterator[Sample]:
    def oracle(x: Array) -> tuple[Array, ...]:
        p, q = np.exp(x), np.exp(x)
        p, q = p / np.einsum("ab->a", p)[:, None], q / np.einsum("ab->b", q)
        return p, q, np.log(p), np.log(q)

    def build(x: li.Value) -> tuple[li.Value, ...]:
        return li.softmax(x), li.softmax(x, 0), li.log_softmax(x), li.log_softmax(x, 0)

    for k in FLOATS:
        yield case(f"softmax {k}", build, [data("softmax", k, (5, 7))], oracle, kind="summed")
    for k, T in bound((11,), (0,)):
        yield case(
            f"softmax dynamic {k} {T}", build, [data("softmax", k, (T, 64))], oracle, shapes=[("T", 64)], kind="summed"
        )
    far = np.array([[1000.0, 0, -1000], [-2000, -2000, -2000]], np.float32)
    yield case(
        "softmax far",
        lambda x: (li.softmax(x), li.log_softmax(x)),
        [far],
        lambda x: (np.array([[1, 0, 0], [1 / 3] * 3]), np.array([[0, -1000, -2000], [-np.log(3)] * 3])),
    )


def _in(*shape: int | str, k: str = "f32") -> li.Value:
    return li.input("x", shape, k)


bad_of("reduce_sum", (lambda: li.sum(_in(3, k="i1")), "takes numbers, got i1"))
bad_of("reduce_sum", (lambda: li.sum(_in(3), 1), "axis 1 is outside"))
bad_of("reduce_max", (lambda: li.max(_in(3), (0, 0)), "name one axis twice"))
bad_of("reduce_min", (lambda: li.min(_in(3), -2), "axis -2 is outside"))
bad_of("reduce_mean", (lambda: li.mean(_in(3, k="i32")), "takes float elements, got i32"))
bad_of("cumsum", (lambda: li.cumsum(_in(3), 1), "axis 1 is outside"))
bad_of("cumsum", (lambda: li.cumsum(_in(3, k="i1")), "takes numbers, got i1"))
bad_of("argmax", (lambda: li.argmax(_in(3, 0)), "axis 1 has no elements"))
bad_of("softmax", (lambda: li.softmax(_in(3, k="i32")), "takes float elements, got i32"))
bad_of("log_softmax", (lambda: li.log_softmax(_in()), "axis -1 is outside"))
