"""What the graph says of a value's elements: the literal that they stand in, the one number that
all of them are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

_MOVES = ("broadcast_in_dim", "reshape", "transpose", "reverse")


def constant_of(v: Value) -> Value | None:
    """The constant that holds all elements of `v`, if `v` is one that was only moved or repeated."""
    while v.op in _MOVES:
        v = v.node.inputs[0]
    return v if v.op == "constant" else None


def splat(v: Value) -> Any:
    """The number (i1: bool) that every element of `v` is; None where they differ or are not known.

    Of a literal with one number, a scalar too, behind broadcasts, reshapes, transposes, reversals,
    and conversions that the number survives. Numbers are the same if their bits are: NaN is NaN,
    and -0.0 is not 0.0 (`==` does not tell them apart: `math.copysign` does).
    """
    dtypes: list[DType] = []
    while v.op == "convert" or v.op in _MOVES:
        if v.op == "convert":
            dtypes.append(v.dtype)
        v = v.node.inputs[0]
    number = v.node.attrs["value"].splat if v.op == "constant" else None
    for dtype in reversed(dtypes):
        number = None if number is None else _converted(number, dtype)
    return None if number is None else number.item()


def symmetric(v: Value, outside: Mapping[Value, Value]) -> bool:
    """Whether the graph says that no element of an i8 value is -128, which has no negative.

    Of arrays, and of what was clamped to -127 ... 127 before it became i8. `outside` has what a body's parameters are.
    """
    todo = [v]
    while todo:
        v = todo.pop()
        n = v.node
        if v in outside:
            todo.append(outside[v])
        elif v.op in (*_MOVES, "slice", "concatenate"):
            todo += n.inputs
        elif v.op in ("constant", "weight"):
            data = n.attrs["value"]
            if not data.known or (data.array == -128).any():
                return False
        else:
            clamped = n.inputs[0] if v.op == "convert" else v
            if clamped.op != "clamp":
                return False
            low, _, high = clamped.node.inputs
            if not all(end is not None and abs(end) <= 127 for end in (splat(low), splat(high))):
                return False
    return True


def _converted(number: Any, dtype: DType) -> Any:
    """A NumPy number in another type; None where it does not come back as it was."""
    with np.errstate(all="ignore"):
        made = number.astype(dtype.numpy)
        back = made.astype(number.dtype)
    return made if back.tobytes() == number.tobytes() else None
