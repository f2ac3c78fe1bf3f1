"""NumPy's `x[...]`: integers, slices, None and Ellipsis, as slice, reverse and reshape.

A bound may be negative or an expression. On a named size a bound is exact, not cut to fit:
`x[:32]` on T needs T >= 32 at the call. An index that is a value of the graph is refused; `take`
and `dynamic_slice` are for those.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.location import here
from lstm_ir.ops.primitive.shape import reshape, reverse
from lstm_ir.ops.primitive.window import slice as slice_op


@dataclass(frozen=True, slots=True)
class _Pick:
    """What is taken of one axis, counted from its end if `backward`."""

    start: Dim
    limit: Dim
    stride: int = 1
    backward: bool = False
    drop: bool = False


def index(x: Value, key: Any) -> Value:
    """x[key] by NumPy's basic indexing."""
    keys = _complete(x, key if isinstance(key, tuple) else (key,))
    picks: list[_Pick] = []
    layout: list[int | None] = []  # axes of the result: an axis of x, or None for a new one
    for k in keys:
        if k is None:
            layout.append(None)
            continue
        pick = _pick(x, len(picks), k)
        if not pick.drop:
            layout.append(len(picks))
        picks.append(pick)
    flipped = [i for i, p in enumerate(picks) if p.backward]
    v = reverse(x, flipped) if flipped else x
    v = slice_op(v, [p.start for p in picks], [p.limit for p in picks], [p.stride for p in picks])
    sizes = [1 if a is None else v.shape[a] for a in layout]
    return reshape(v, sizes)


def _refuse(x: Value, problem: str) -> IRError:
    return IRError(message("slice", problem, [("operand", x.type)], here()))


def _complete(x: Value, key: tuple[Any, ...]) -> tuple[Any, ...]:
    """One entry per axis, and None for each new one."""
    dots = [i for i, k in enumerate(key) if k is Ellipsis]
    if len(dots) > 1:
        raise _refuse(x, "an index has more than one '...'")
    used = sum(k is not None and k is not Ellipsis for k in key)
    if used > x.rank:
        raise _refuse(x, f"{used} indices for {x.rank} axes")
    at = dots[0] if dots else len(key)
    return (*key[:at], *[slice(None)] * (x.rank - used), *key[at + 1 :])


def _bound(x: Value, k: Any) -> Dim:
    if isinstance(k, dims.Expr):
        return k
    if isinstance(k, str):
        return dims.parse(k)
    if isinstance(k, Value):
        raise _refuse(x, f"the index {k} is a value of the graph; use li.take or li.dynamic_slice")
    try:
        return operator.index(k) if not isinstance(k, bool) else _no_bool()
    except TypeError:
        problem = f"the index {k!r} is not an integer, a slice, None or '...'"
        raise _refuse(x, problem) from None


def _no_bool() -> int:
    raise TypeError


def _pick(x: Value, axis: int, k: Any) -> _Pick:
    size = x.shape[axis]
    if isinstance(k, slice):
        return _sliced(x, size, k)
    at = _bound(x, k)
    if isinstance(at, int):
        if isinstance(size, int) and not -size <= at < size:
            raise _refuse(x, f"index {at} is outside axis {axis} of size {size}")
        at = dims.add(size, at) if at < 0 else at
    return _Pick(at, dims.add(at, 1), drop=True)


def _sliced(x: Value, size: Dim, k: slice) -> _Pick:
    step = 1 if k.step is None else _bound(x, k.step)
    if not isinstance(step, int) or step == 0:
        raise _refuse(x, f"the step {step} of a slice is not an integer other than 0")
    start, stop = (None if b is None else _bound(x, b) for b in (k.start, k.stop))
    lo: Dim
    hi: Dim
    if isinstance(size, int) and not isinstance(start, dims.Expr) and not isinstance(stop, dims.Expr):
        lo, hi, _ = slice(start, stop, step).indices(size)  # NumPy's cutting to size
    else:
        last = dims.add(size, -1)
        lo = (0 if step > 0 else last) if start is None else _from_end(size, start)
        hi = (size if step > 0 else -1) if stop is None else _from_end(size, stop)
    if step < 0:  # position i of x is position size - 1 - i of x reversed
        lo, hi = (dims.add(dims.add(size, -1), dims.mul(b, -1)) for b in (lo, hi))
    if isinstance(lo, int) and isinstance(hi, int) and hi < lo:
        hi = lo
    return _Pick(lo, hi, abs(step), step < 0)


def _from_end(size: Dim, bound: Dim) -> Dim:
    return dims.add(size, bound) if isinstance(bound, int) and bound < 0 else bound
