"""JSON that comes from somewhere else: UTF-8 alone, every name once, no half of a surrogate pair, no -0 in files."""

from __future__ import annotations

import json
import re
from typing import Any

from lstm_ir.ir.errors import PackageError

_HALF = r"\\u[dD][89a-fA-F]"  # of a surrogate pair, as JSON escapes it


class MinusZero(float):
    """The token -0: a whole number, and as a float one with its sign."""


def read(data: bytes, where: str, *, minus_zero: bool = False) -> dict[str, Any]:
    """The object in `data`; PackageError, which begins with `where`, for anything else.

    minus_zero: -0 is a `MinusZero`; else it is refused.
    """
    whole = _whole_or_minus_zero if minus_zero else _whole
    try:
        text = data.decode()  # of bytes, Python's JSON takes UTF-16 and UTF-32 too
        found = json.loads(text, object_pairs_hook=_once, parse_int=whole if "-0" in text else None)
        if "\\u" in text and re.search(_HALF, text):
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as e:
        raise PackageError(f"{where}: {str(e)[:200]}") from e
    if not isinstance(found, dict):
        raise PackageError(f"{where}: not an object")
    return found


def _whole(digits: str) -> int:
    """No -0, which is a number of no kind that a file has."""
    if digits == "-0":
        raise ValueError("-0 is no whole number")
    return int(digits)


def _whole_or_minus_zero(digits: str) -> int | MinusZero:
    return MinusZero(digits) if digits == "-0" else int(digits)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a name appears twice")
    return out
