"""Pairs of ops that move elements, one behind the other, in elements of every width.

IREE folds such pairs into one; two pads of one value were one of them, without what is between the elements.
"""

from __future__ import annotations

from collections.abc import Callable

import tolerances
from sweep import FORMS, OPEN, Case, Inputs, case, numbers

import lstm_ir as li
from lstm_ir.ir import dims

WIDTHS = {"bits": ("i1",), "1": ("u8", "i8"), "2": ("f16", "bf16"), "4": ("f32", "u32", "i32"), "8": ("f64", "i64")}
DTYPES = tuple(d for width in WIDTHS.values() for d in width)
Move = Callable[[Inputs, li.Value], li.Value]


def _size(i: Inputs, d: dims.Dim) -> int:
    return dims.evaluate(d, i.sizes)


def _start(i: Inputs) -> li.Value:
    """A place that may be outside: the window is then moved."""
    return i.new(li.DType.i32, (), lambda r, s: r.integers(-2, 9, s).astype("i4"))


def _less(d: dims.Dim, k: int) -> dims.Dim:
    return dims.add(d, -k)


def _zeros(v: li.Value, at: int = 0) -> list[int]:
    """A number for each axis: 0, but `at` for the last."""
    return [0] * (v.rank - 1) + [at]


def _picked(i: Inputs, v: li.Value, axis: int) -> li.Value:
    return li.take(v, i.rows(4, _size(i, v.shape[axis])), axis)


def _added(i: Inputs, v: li.Value) -> li.Value:
    updates = i.new(v.dtype, (4, *v.shape[1:]))
    return li.scatter_add(v, i.rows(4, _size(i, v.shape[0])), updates)


def _updates(i: Inputs, v: li.Value) -> li.Value:
    return li.scatter_add(i.new(v.dtype, (6, *v.shape[1:])), i.rows(v.shape[0], 6), v)


def _window(i: Inputs, v: li.Value) -> li.Value:
    return li.dynamic_slice(v, [_start(i), *[0] * (v.rank - 1)], (_less(v.shape[0], 1), *v.shape[1:]))


def _replaced(i: Inputs, v: li.Value) -> li.Value:
    return li.dynamic_update_slice(v, i.new(v.dtype, (1, *v.shape[1:])), [_start(i), *[0] * (v.rank - 1)])


def _put(i: Inputs, v: li.Value) -> li.Value:
    table = li.concat([i.new(v.dtype, v.shape), i.new(v.dtype, (2, *v.shape[1:]))])
    return li.dynamic_update_slice(table, v, [_start(i), *[0] * (v.rank - 1)])


def _between(i: Inputs, v: li.Value) -> li.Value:
    gaps = [2, *[0] * (v.rank - 2), 1]
    return li.pad(v, [0] * v.rank, [0] * v.rank, gaps)


MOVES: dict[str, Move] = {
    "reshape merged": lambda i, v: li.reshape(v, (-1, v.shape[-1])),
    "reshape flat": lambda i, v: li.expand_dims(li.reshape(v, (-1,)), 1),
    "transpose": lambda i, v: li.transpose(v),
    "transpose rows": lambda i, v: li.swapaxes(v, 0, 1),
    "broadcast_in_dim": lambda i, v: li.broadcast_in_dim(v, (v.shape[0], 2, *v.shape[1:]), (0, *range(2, v.rank + 1))),
    "slice": lambda i, v: v[1:, ..., 1:],
    "slice with steps": lambda i, v: v[::2, ..., 1::3],
    "dynamic_slice": _window,
    "dynamic_update_slice operand": _replaced,
    "dynamic_update_slice update": _put,
    "pad": lambda i, v: li.pad(v, [1] * v.rank, _zeros(v, 2)),
    "pad between": _between,
    "pad negative": lambda i, v: li.pad(v, _zeros(v, -1), [-1, *[0] * (v.rank - 2), 2]),
    "concatenate": lambda i, v: li.concat([v, i.new(v.dtype, v.shape)]),
    "concatenate last": lambda i, v: li.concat([i.new(v.dtype, (*v.shape[:-1], 2)), v, v], -1),
    "reverse": lambda i, v: li.reverse(v, (0, v.rank - 1)),
    "gather": lambda i, v: _picked(i, v, 0),
    "gather last": lambda i, v: _picked(i, v, v.rank - 1),
    "scatter_add operand": _added,
    "scatter_add updates": _updates,
}  # fmt: skip
PAIRS = [(a, b) for a in MOVES for b in MOVES]


def pair(first: str, second: str, dtype: str, form: str) -> Case | None:
    """One move of another's result; None where the dtype is not taken."""
    i, kind = Inputs(form, 7, 9), li.DType(dtype)
    x = i.new(kind, (i.n, 2, i.m), lambda r, s: numbers(r, kind, s))
    try:
        y = MOVES[second](i, MOVES[first](i, x))
    except li.IRError:
        if kind is not li.DType.i1 or "scatter_add" not in first + second:
            raise
        return None
    exact = "scatter_add" not in first + second
    return case(f"{first}, {second} of {dtype} ({form})", i, y, tolerance=None if exact else tolerances.ONE_OP)


def every(width: str, fixed: bool) -> list[Case]:
    """All pairs; dtypes of the width and open forms in turn."""
    kinds = WIDTHS[width]
    first = list(WIDTHS).index(width)
    forms = ("fixed",) if fixed else OPEN
    found = (
        pair(a, b, kinds[(k // len(MOVES) + k) % len(kinds)], forms[(first + k) % len(forms)])
        for k, (a, b) in enumerate(PAIRS)
    )
    return [c for c in found if c is not None]


def sample(seed: int) -> list[Case]:
    """Each move twice at either place, all dtypes and forms in turn."""
    names, found = list(MOVES), list[Case]()
    for k in range(2 * len(names)):
        by = 1 + (seed + k // len(names)) % (len(names) - 1)
        form = tuple(FORMS)[(seed + k) % len(FORMS)]
        a, b = names[k % len(names)], names[(k + by) % len(names)]
        kinds = [d for d in DTYPES if d != "i1" or "scatter_add" not in a + b]
        c = pair(a, b, kinds[k % len(kinds)], form)
        assert c is not None
        found.append(c)
    return found
