"""Options of builders: of the class that is expected, or an IRError that names the option and the user's line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.location import here


def refuse(op: str, option: str, value: object, expected: str) -> IRError:
    """The error for a value that the option cannot have."""
    return IRError(message(op, f"{option} is {_shown(value)}; expected {expected}", (), here()))


def _shown(value: object) -> str:
    """As it is written, in 80 letters; an array by its type."""
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype}{list(value.shape)}"
    if isinstance(value, (list, tuple)) and any(isinstance(v, np.ndarray) for v in value):
        return f"a {type(value).__name__} of {', '.join(map(_shown, value))}"
    return f"{value!r:.80}"


def is_int(value: object) -> TypeGuard[int]:
    """Whether it is a whole number: Python's or NumPy's, and no truth value."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def integer(op: str, option: str, value: Any) -> int:
    """A whole number."""
    if not is_int(value):
        raise refuse(op, option, value, "a whole number")
    return int(value)


def real(op: str, option: str, value: Any) -> float:
    """A finite number."""
    kind = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not kind or not math.isfinite(value):
        raise refuse(op, option, value, "a finite number")
    return float(value)


def several(op: str, option: str, value: Any) -> tuple[Any, ...]:
    """The items of a list, tuple or range, or of an array with one axis."""
    if not isinstance(value, (list, tuple, range)) and getattr(value, "ndim", 0) != 1:
        raise refuse(op, option, value, "a list")
    return tuple(value)


def pair(op: str, option: str, value: Any) -> tuple[Any, Any]:
    """The two items of a list or tuple."""
    items = several(op, option, value)
    if len(items) != 2:
        raise refuse(op, option, value, "two of them")
    return items[0], items[1]


def flag(op: str, option: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise refuse(op, option, value, "True or False")
    return bool(value)


def text(op: str, option: str, value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise refuse(op, option, value, "a text")
    return value


def choice(op: str, option: str, value: Any, among: Sequence[str]) -> str:
    """One of these words."""
    if not isinstance(value, str) or value not in among:
        raise refuse(op, option, value, ", ".join(among[:-1]) + f" or {among[-1]}")
    return value
