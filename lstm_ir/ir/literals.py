"""What the graph says of a value's elements: the literal that they stand in, the one number that
all of them are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    for leaf in _leaves(v, outside):
        array = _array(leaf)
        if array is not None and not (array == -128).any():
            continue
        clamped = leaf.node.inputs[0] if leaf.op == "convert" else leaf
        if clamped.op != "clamp":
            return False
        low, _, high = clamped.node.inputs
        if not all(end is not None and abs(end) <= 127 for end in (splat(low), splat(high))):
            return False
    return True


def finite(v: Value, outside: Mapping[Value, Value], types: Sequence[DType] = ()) -> bool:
    """Whether the graph's arrays say that no element of a value is infinite or NaN, nor becomes so in one of `types`,
    to which it is converted one after the other, the last of them first here."""
    for leaf in _leaves(v, outside):
        array = _array(leaf)
        if array is not None:
            if not all(np.isfinite(x).all() for x in _conversions(array, types)):
                return False
        elif leaf.op == "convert":
            if not finite(leaf.node.inputs[0], outside, (*types, leaf.dtype)):
                return False
        elif types or leaf.dtype.is_float:
            return False
    return True


def _leaves(v: Value, outside: Mapping[Value, Value]) -> Iterator[Value]:
    """The values whose elements `v` has, each once, below what only moves elements."""
    todo, seen = [v], {v}
    while todo:
        v = todo.pop()
        if v not in outside and v.op not in (*_MOVES, "slice", "concatenate"):
            yield v
            continue
        below = [outside[v]] if v in outside else v.node.inputs
        todo += [x for x in below if x not in seen]
        seen.update(below)


def _array(v: Value) -> Any:
    """The elements of a literal or a weight, where they are known."""
    data = v.node.attrs["value"] if v.op in ("constant", "weight") else None
    return None if data is None or not data.known else data.array


def _conversions(array: Any, types: Sequence[DType]) -> Iterator[Any]:
    """An array, and it in each of the types, the last of them first."""
    yield array
    with np.errstate(all="ignore"):
        for dtype in reversed(types):
            array = array.astype(dtype.numpy)
            yield array


def _converted(number: Any, dtype: DType) -> Any:
    """A NumPy number in another type; None where it does not come back as it was."""
    with np.errstate(all="ignore"):
        made = number.astype(dtype.numpy)
        back = made.astype(number.dtype)
    return made if back.tobytes() == number.tobytes() else None
