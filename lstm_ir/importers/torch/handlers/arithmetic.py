"""Elementwise arithmetic, comparison, choice and conversion; operands are converted as PyTorch promotes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.limits import larger, smaller
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.torch.call import Call, as_value
from lstm_ir.importers.torch.table import taken
from lstm_ir.importers.truths import truth_of
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.custom_gradient import unknown_gradient

_ORDER = [DType.i1, DType.u8, DType.i8, DType.i32, DType.u32, DType.i64, DType.f16, DType.bf16, DType.f32, DType.f64]


def overloads(name: str, *kinds: str) -> list[str]:
    """Full names of overloads."""
    return [f"aten.{name}.{k}" for k in kinds]


def promoted(a: Any, b: Any) -> DType:
    """The element type in which PyTorch compares two operands; a number alone does not widen a tensor of its kind."""
    if isinstance(a, Value) and isinstance(b, Value):
        if (a.rank == 0) != (b.rank == 0) and a.dtype is not b.dtype:
            wide, alone = (b, a) if a.rank == 0 else (a, b)
            return wide.dtype if _kind(wide.dtype) >= _kind(alone.dtype) else _joined(wide.dtype, alone.dtype)
        return _joined(a.dtype, b.dtype)
    tensor, number = (a, b) if isinstance(a, Value) else (b, a)
    if not isinstance(tensor, Value):
        raise NodeRefusedError("neither operand is a tensor")
    if isinstance(number, bool) or _kind(tensor.dtype) >= (2 if isinstance(number, float) else 1):
        return tensor.dtype
    return DType.f32 if isinstance(number, float) else DType.i64


def _kind(dtype: DType) -> int:
    return 2 if dtype.is_float else 0 if dtype is DType.i1 else 1


def _joined(a: DType, b: DType) -> DType:
    if a is b:
        return a
    if {a, b} == {DType.u8, DType.i8}:
        raise NodeRefusedError("u8 beside i8 is not taken; convert one of them")
    if {a, b} == {DType.f16, DType.bf16}:
        return DType.f32
    return max(a, b, key=_ORDER.index)


def _binary(name: str, function: Callable[[Value, Value], Value], *kinds: str) -> None:
    @taken(*overloads(name, *(kinds or ("Tensor", "Scalar"))), rows=True)
    def build(c: Call) -> Value:
        return function(c.operand("self", c.dtype), c.operand("other", c.dtype))


def _scaled(name: str, function: Callable[[Value, Value], Value], left: str = "self", right: str = "other") -> None:
    """left and alpha * right."""

    @taken(*overloads(name, "Tensor", "Scalar"), rows=True)
    def build(c: Call) -> Value:
        b, alpha = c.operand(right, c.dtype), c.any("alpha", 1)
        if alpha != 1:
            b = b * as_value(alpha, c.dtype, "alpha")
        return function(c.operand(left, c.dtype), b)


_scaled("add", lambda a, b: li.logical_or(a, b) if a.dtype is DType.i1 else a + b)
_scaled("sub", li.subtract)
_scaled("rsub", li.subtract, "other", "self")
_binary("mul", lambda a, b: li.logical_and(a, b) if a.dtype is DType.i1 else a * b)
_binary("maximum", li.maximum, "default")
_binary("minimum", li.minimum, "default")
_binary("fmod", li.remainder)
_binary("atan2", li.atan2, "default")
_binary("logaddexp", lambda a, b: _log_of_sum(a, b), "default")


def _log_of_sum(a: Value, b: Value) -> Value:
    """log(e^a + e^b); equal operands may be infinite."""
    apart = li.select(li.equal(a, b), li.zeros_like(a), -li.abs(a - b))
    return li.maximum(a, b) + li.log1p(li.exp(apart))


@taken(*overloads("div", "Tensor", "Scalar"), *overloads("true_divide", "Tensor"), rows=True)
def divide(c: Call) -> Value:
    """a / b, as floats."""
    return li.divide(c.operand("self", c.dtype), c.operand("other", c.dtype))


@taken(*overloads("div", "Tensor_mode", "Scalar_mode"), rows=True)
def divide_rounded(c: Call) -> Value:
    """a / b, rounded down or toward zero."""
    a, b, mode = c.operand("self", c.dtype), c.operand("other", c.dtype), c.any("rounding_mode")
    return li.divide(a, b) if mode is None else li.floor_divide(a, b) if mode == "floor" else _cut(a, b)


@taken("aten.floor_divide.default", *overloads("floor_divide", "Scalar"), rows=True)
def floor_divide(c: Call) -> Value:
    """a / b, rounded down."""
    return li.floor_divide(c.operand("self", c.dtype), c.operand("other", c.dtype))


def _cut(a: Value, b: Value) -> Value:
    return truncated(a / b) if a.dtype.is_float else li.divide(a, b)


def truncated(x: Value) -> Value:
    """Rounded toward zero."""
    return li.select(li.less(x, 0.0), li.ceil(x), li.floor(x))


@taken(*overloads("remainder", "Tensor", "Scalar"), rows=True)
def remainder(c: Call) -> Value:
    """What a division leaves, with the sign of the divisor."""
    return li.mod(c.operand("self", c.dtype), c.operand("other", c.dtype))


@taken(*overloads("pow", "Tensor_Scalar", "Tensor_Tensor", "Scalar"), rows=True,
       refused="integers with an exponent that is not a number 0 to 16")  # fmt: skip
def power(c: Call) -> Value:
    """a to the power b; a small whole exponent is a product."""
    b = c.any("exponent")
    a = c.operand("self", c.dtype)
    if (isinstance(b, (int, float)) and b in (2, 3)) or (isinstance(b, int) and not c.dtype.is_float and 0 < b <= 16):
        return reduce(li.multiply, [a] * int(b))
    if isinstance(b, (int, float)) and b == 0:
        return li.ones(a.shape, a.dtype)
    if not c.dtype.is_float:
        raise NodeRefusedError("a power of integers needs an exponent from 0 to 16")
    if isinstance(b, float) and b == 0.5:
        return li.sqrt(a)
    return li.power(a, as_value(b, c.dtype, "exponent"))


def _comparison(name: str, function: Callable[[Value, Value], Value]) -> None:
    @taken(*overloads(name, "Tensor", "Scalar"), rows=True)
    def build(c: Call) -> Value:
        a, b = c.any("self"), c.any("other")
        kind = promoted(a, b)
        return function(as_value(a, kind), as_value(b, kind))


for _name, _function in {
    "eq": li.equal, "ne": li.not_equal, "lt": li.less, "le": li.less_equal, "gt": li.greater, "ge": li.greater_equal,
}.items():  # fmt: skip
    _comparison(_name, _function)


def _logical(name: str, function: Callable[[Value, Value], Value]) -> None:
    @taken(f"aten.logical_{name}.default", rows=True)
    def build(c: Call) -> Value:
        return function(truth_of(c.tensor("self")), truth_of(c.tensor("other")))

    @taken(*overloads(f"bitwise_{name}", "Tensor", "Scalar"), *overloads(f"__{name}__", "Tensor", "Scalar"), rows=True)
    def bits(c: Call) -> Value:
        return function(c.operand("self", c.dtype), c.operand("other", c.dtype))


for _name, _function in {"and": li.logical_and, "or": li.logical_or, "xor": li.logical_xor}.items():
    _logical(_name, _function)


@taken("aten.logical_not.default", rows=True)
def logical_not(c: Call) -> Value:
    """Where an element is zero."""
    return li.logical_not(truth_of(c.tensor("self")))


@taken("aten.bitwise_not.default", rows=True)
def bitwise_not(c: Call) -> Value:
    """Every bit the other way."""
    return li.logical_not(c.tensor("self"))


@taken(*overloads("where", "self", "ScalarSelf", "ScalarOther", "Scalar"), rows=True)
def where(c: Call) -> Value:
    """The first where true, else the second."""
    return li.where(truth_of(c.tensor("condition")), c.operand("self", c.dtype), c.operand("other", c.dtype))


@taken(*overloads("masked_fill", "Scalar", "Tensor"), rows=True)
def masked_fill(c: Call) -> Value:
    """`value` where the mask is true."""
    return li.where(c.tensor("mask"), c.operand("value", c.dtype), c.tensor("self"))


@taken("aten.clamp.default", *overloads("clamp", "Tensor"), rows=True)
def clamp(c: Call) -> Value:
    """Held between min and max."""
    return _clamped(c, c.operand("self", c.dtype), "min", "max")


@taken("aten.clamp_min.default", *overloads("clamp_min", "Tensor"), rows=True)
def clamp_min(c: Call) -> Value:
    """Not below min."""
    return _clamped(c, c.operand("self", c.dtype), "min")


@taken("aten.clamp_max.default", *overloads("clamp_max", "Tensor"), rows=True)
def clamp_max(c: Call) -> Value:
    """Not above max."""
    return _clamped(c, c.operand("self", c.dtype), "max")


def _clamped(c: Call, x: Value, *bounds: str) -> Value:
    """x inside its bounds; where it is one of them the whole gradient is that of x."""
    for name in bounds:
        if c.given(name):
            x = (larger if name == "min" else smaller)(x, c.operand(name, c.dtype))
    return x


@taken(*overloads("to", "dtype", "dtype_layout", "device", "other"), "aten._to_copy.default", "aten.type_as.default",
       rows=True)  # fmt: skip
def to(c: Call) -> Value:
    """Of another element type, wherever the tensor lies."""
    c.any("dtype")
    c.any("other")
    return li.convert(c.tensor("self"), c.dtype)


@taken("aten.lerp.Scalar", "aten.lerp.Tensor", rows=True)
def lerp(c: Call) -> Value:
    """a + weight * (b - a)."""
    a, b = c.tensor("self"), c.tensor("end")
    return a + c.operand("weight", c.dtype) * (b - a)


@taken("aten.addcmul.default", rows=True)
def addcmul(c: Call) -> Value:
    """a + value * b * c."""
    return c.tensor("self") + c.operand("value", c.dtype) * c.tensor("tensor1") * c.tensor("tensor2")


@taken("aten.addcdiv.default", rows=True)
def addcdiv(c: Call) -> Value:
    """a + value * b / c."""
    return c.tensor("self") + c.operand("value", c.dtype) * c.tensor("tensor1") / c.tensor("tensor2")


@taken("aten.clone.default", "aten.contiguous.default", "aten.alias.default", "aten.lift_fresh_copy.default",
       "aten.lift_fresh.default", "aten.resolve_conj.default", "aten.resolve_neg.default",
       "aten.positive.default", rows=True)  # fmt: skip
def same(c: Call) -> Value:
    """The tensor itself."""
    return c.tensor("self")


@taken("aten.detach.default", "aten.detach_.default", "aten.detach_copy.default", rows=True)
def detach(c: Call) -> Value:
    """The tensor, through which no gradient goes."""
    x = c.tensor("self")
    return li.stop_gradient(x) if x.dtype.is_float else x


@taken("lstm_ir.own_gradient.default", rows=True, refused="its gradient")
def own_gradient(c: Call) -> Value:
    """A tensor whose gradient torch.export drops: of an autograd.Function, of a module with hooks."""
    return unknown_gradient(c.tensor("x"), c.word("why"))
