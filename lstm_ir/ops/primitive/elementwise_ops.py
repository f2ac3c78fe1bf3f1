"""Elementwise ops under StableHLO's names; `elementwise.py` has their builders.

One dtype for all operands (`select` and `compare` apart). Where StableHLO leaves a value open, it
is fixed here: integer x / 0 = -1 (all bits set), x % 0 = x, MIN / -1 = MIN, a shift by the width or
more gives 0 (or the sign).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.opdef import Attr, Op, Trait, define, need
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive import elementwise_grad as g
from lstm_ir.ops.primitive import numpy_math as nm

Array = np.ndarray[Any, Any]
Vjp = Callable[[Node, tuple[Value | None, ...]], tuple[Value | None, ...]]


def _accepts(kinds: str, t: TensorType) -> None:
    kind = "f" if t.dtype.is_float else "i" if t.dtype.is_int else "b"
    if kind not in kinds:
        words = {"f": "float", "i": "integer", "b": "boolean (i1)"}
        instead = "; & | ^ ~ take booleans" if kind == "b" and kinds == "fi" else ""
        dtype = "f32" if "f" in kinds else "i32"
        makes = "x != 0 gives booleans" if kind == "f" and "b" in kinds else f'li.convert(x, "{dtype}") converts'
        need(False, f"takes {' or '.join(words[k] for k in kinds)} elements, got {t.dtype}; {makes}{instead}")


def _unary(name: str, kinds: str, meaning: Callable[[Array], Any], vjp: Vjp) -> Op:
    def types(operand: TensorType) -> TensorType:
        _accepts(kinds, operand)
        return operand

    return define(name, "operand", types=types, numpy=nm.widened(meaning), vjp=vjp, traits=(Trait.elementwise,))


def _by_convert(lhs: DType, rhs: DType) -> str:
    """Which is to be converted: booleans to numbers, integers to floats, of two of a kind the narrower one.

    Nothing where neither has all values of the other, as f16 and bf16.
    """

    def fits(a: DType, b: DType) -> bool:
        kinds = [2 if t.is_float else 1 if t.is_int else 0 for t in (a, b)]
        return kinds[0] < kinds[1] or (kinds[0] == kinds[1] and a.bits < b.bits and (b.is_signed or not a.is_signed))

    return f': li.convert(lhs, "{rhs}")' if fits(lhs, rhs) else f': li.convert(rhs, "{lhs}")' if fits(rhs, lhs) else ""


def _same_types(lhs: TensorType, rhs: TensorType, kinds: str = "fi") -> None:
    if lhs.dtype is not rhs.dtype:
        how = _by_convert(lhs.dtype, rhs.dtype) if "f" in kinds else ""
        need(False, f"lhs is {lhs.dtype}, rhs {rhs.dtype}; convert one of them{how}")
    need(lhs.shape == rhs.shape, f"shapes differ: {lhs} and {rhs}")


def _binary(name: str, kinds: str, meaning: Callable[[Array, Array], Any], vjp: Vjp, *traits: Trait) -> Op:
    def types(lhs: TensorType, rhs: TensorType) -> TensorType:
        _same_types(lhs, rhs, kinds)
        _accepts(kinds, lhs)
        return lhs

    return define(name, "lhs rhs", types=types, numpy=nm.widened(meaning), vjp=vjp, traits=(Trait.elementwise, *traits))


_C = Trait.commutative
_binary("add", "fi", np.add, g.add, _C)
_binary("subtract", "fi", np.subtract, g.subtract)
_binary("multiply", "fi", np.multiply, g.multiply, _C)
_binary("divide", "fi", nm.divide, g.divide)
_binary("remainder", "fi", nm.remainder, g.remainder)
_binary("maximum", "fi", np.maximum, g.maximum, _C)
_binary("minimum", "fi", np.minimum, g.minimum, _C)
_binary("power", "f", np.power, g.power)
_binary("atan2", "f", np.arctan2, g.atan2)
_binary("and", "ib", np.bitwise_and, g.none, _C)
_binary("or", "ib", np.bitwise_or, g.none, _C)
_binary("xor", "ib", np.bitwise_xor, g.none, _C)
_binary("shift_left", "i", nm.shift_left, g.none)
_binary("shift_right_logical", "i", nm.shift_right_logical, g.none)
_binary("shift_right_arithmetic", "i", nm.shift_right_arithmetic, g.none)

_unary("negate", "fi", np.negative, g.negate)
_unary("abs", "fi", np.abs, g.abs_)
_unary("sign", "fi", nm.sign, g.none)
_unary("floor", "f", np.floor, g.none)
_unary("ceil", "f", np.ceil, g.none)
_unary("round_nearest_even", "f", np.rint, g.none)
_unary("exponential", "f", np.exp, g.exp)
_unary("exponential_minus_one", "f", np.expm1, g.expm1)
_unary("log", "f", np.log, g.log)
_unary("log_plus_one", "f", np.log1p, g.log1p)
_unary("erf", "f", nm.erf, g.erf)
_unary("logistic", "f", nm.logistic, g.logistic)
_unary("tanh", "f", np.tanh, g.tanh)
_unary("sine", "f", np.sin, g.sin)
_unary("cosine", "f", np.cos, g.cos)
_unary("sqrt", "f", np.sqrt, g.sqrt)
_unary("rsqrt", "f", nm.rsqrt, g.rsqrt)
_unary("not", "ib", np.invert, g.none)


def _is_finite_types(operand: TensorType) -> TensorType:
    _accepts("f", operand)
    return operand.with_dtype(DType.i1)


define("is_finite", "operand", types=_is_finite_types, numpy=np.isfinite, vjp=g.none, traits=(Trait.elementwise,))

_COMPARE = {
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less,
    "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
}  # fmt: skip


def _compare_types(lhs: TensorType, rhs: TensorType, *, direction: str) -> TensorType:
    _same_types(lhs, rhs)
    need(direction in _COMPARE, f"direction {direction!r} is not one of {', '.join(_COMPARE)}")
    return lhs.with_dtype(DType.i1)


define(
    "compare", "lhs rhs", attrs={"direction": Attr("str")}, types=_compare_types,
    numpy=lambda a, b, *, direction: _COMPARE[direction](a, b), vjp=g.none, traits=(Trait.elementwise,),
)  # fmt: skip


def _select_types(pred: TensorType, on_true: TensorType, on_false: TensorType) -> TensorType:
    need(pred.dtype is DType.i1, f"pred is {pred.dtype}, not i1")
    need(on_true == on_false, f"on_true is {on_true}, on_false {on_false}")
    need(pred.shape == on_true.shape, f"pred has shape {pred}, the choices {on_true}")
    return on_true


define(
    "select", "pred on_true on_false", types=_select_types, numpy=np.where, vjp=g.select, traits=(Trait.elementwise,)
)


def _clamp_types(min: TensorType, operand: TensorType, max: TensorType) -> TensorType:
    need(min == operand == max, f"min is {min}, operand {operand}, max {max}")
    _accepts("fi", operand)
    return operand


define(
    "clamp", "min operand max", types=_clamp_types, numpy=lambda a, x, b: np.minimum(np.maximum(x, a), b),
    vjp=g.clamp, traits=(Trait.elementwise,),
)  # fmt: skip

define(
    "convert", "operand", attrs={"dtype": Attr("dtype")}, types=lambda x, *, dtype: x.with_dtype(dtype),
    numpy=nm.convert, vjp=g.convert, traits=(Trait.elementwise,),
)  # fmt: skip


def _bitcast_types(operand: TensorType, *, dtype: DType) -> TensorType:
    need(
        operand.dtype.bits == dtype.bits and DType.i1 not in (operand.dtype, dtype),
        f"{operand.dtype} and {dtype} have different widths, or are i1",
    )
    return operand.with_dtype(dtype)


define(
    "bitcast_convert", "operand", attrs={"dtype": Attr("dtype")}, types=_bitcast_types,
    numpy=lambda x, *, dtype: np.asarray(x, order="C").view(dtype.numpy), vjp=g.bitcast, traits=(Trait.elementwise,),
)  # fmt: skip
