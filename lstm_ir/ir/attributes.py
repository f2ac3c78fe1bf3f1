"""Attribute values: checked and brought to one form when a node is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.data import Data
from lstm_ir.ir.opdef import REQUIRED, Op, RuleError
from lstm_ir.ir.printable import is_text
from lstm_ir.ir.types import DType, shape_of


def _int(v: Any) -> int:
    if isinstance(v, (bool, np.bool_)) or not isinstance(v, (int, np.integer)):
        raise TypeError
    if not -(2**63) <= int(v) < 2**63:
        raise OverflowError("does not fit 64 bits")
    return int(v)


def _float(v: Any) -> float:
    if isinstance(v, (bool, np.bool_)) or not isinstance(v, (int, float, np.integer, np.floating)):
        raise TypeError
    return float(v)


def _bool(v: Any) -> bool:
    if not isinstance(v, (bool, np.bool_)):
        raise TypeError
    return bool(v)


def _str(v: Any) -> str:
    if not isinstance(v, str):
        raise TypeError
    if not is_text(v):
        raise TypeError("it has half of a surrogate pair")
    return v


def _dim(v: Any) -> dims.Dim:
    if isinstance(v, (bool, float)):
        raise TypeError
    return shape_of((v,))[0]


def _offset(v: Any) -> dims.Dim:
    return v if isinstance(v, dims.Expr) else _int(v)


def _instance(v: Any, cls: type) -> Any:
    if not isinstance(v, cls):
        raise TypeError
    return v


def _data(v: Any) -> Any:
    return v if isinstance(v, Data) else Data.of(v)


def _many(one: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def read(v: Any) -> tuple[Any, ...]:
        if isinstance(v, (str, bytes)) or not hasattr(v, "__iter__"):
            raise TypeError
        return tuple(one(x) for x in v)

    return read


_EXPECTED = {
    "int": "a whole number", "float": "a number", "bool": "True or False", "str": "a text", "ints": "whole numbers",
    "floats": "numbers", "bools": "a list of True and False", "strs": "a list of texts", "dim": "a size",
    "dims": "sizes",
}  # fmt: skip
KINDS: dict[str, Callable[[Any], Any]] = {
    "int": _int, "float": _float, "bool": _bool, "str": _str, "dim": _dim, "dtype": DType.of,
    "data": _data, "ints": _many(_int), "floats": _many(_float),
    "bools": _many(_bool), "strs": _many(_str), "dims": _many(_dim),
    "offsets": _many(_offset),
}  # fmt: skip


def check_attrs(op: Op, attrs_by_name: Mapping[str, Any], graph: type) -> dict[str, Any]:
    """All attributes in defined order, defaults filled in; those of kind graph are instances of `graph`.

    RuleError for a wrong, unknown or missing one.
    """
    unknown = sorted(set(attrs_by_name) - set(op.attrs))
    if unknown:
        known = ", ".join(op.attrs) if op.attrs else "none"
        raise RuleError(f"has no attribute {unknown[0]}; its attributes: {known}")
    out: dict[str, Any] = {}
    for name, spec in op.attrs.items():
        if name not in attrs_by_name:
            if spec.default is REQUIRED:
                raise RuleError(f"attribute {name} is required")
            out[name] = spec.default
            continue
        value = attrs_by_name[name]
        if value is None and spec.default is None:
            out[name] = None
            continue
        try:
            out[name] = _instance(value, graph) if spec.kind == "graph" else KINDS[spec.kind](value)
        except (TypeError, OverflowError) as e:
            why = f" ({e})" if str(e) else ""
            expected = _EXPECTED.get(spec.kind, spec.kind)
            raise RuleError(f"attribute {name} is {value!r}; expected {expected}{why}") from None
    return out


def same(a: Any, b: Any) -> bool:
    """Whether two attribute values are the same; NaN equals NaN, graphs by identity."""
    if isinstance(a, float) and isinstance(b, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b)
