"""Functions of `keras.ops` that stand in a model as layers: what `x * 2` and masks make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.keras.call import LayerCall, dtype_named
from lstm_ir.importers.keras.handlers.activations import FUNCTIONS
from lstm_ir.importers.keras.handlers.shapes import resolved
from lstm_ir.importers.keras.promotion import together, truths
from lstm_ir.importers.keras.table import operation
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.truths import truth_of
from lstm_ir.ir.graph import Value


def _two(c: LayerCall) -> list[Any]:
    given = [*c.args, *c.kwargs.values()]
    if len(given) != 2:
        raise NodeRefusedError(f"it is called with {len(given)} operands, not two")
    return given


def binary(name: str, function: Callable[[Value, Value], Value], floats: bool = False) -> None:
    """Register a function of two operands; floats: it makes floats of integers."""

    @operation(name)
    def build(c: LayerCall) -> Value:
        return function(*together(_two(c), floats))


def logical(name: str, function: Callable[[Value, Value], Value]) -> None:
    """Register a function of two truths."""

    @operation(name)
    def build(c: LayerCall) -> Value:
        return function(*truths(_two(c)))


def unary(name: str, function: Callable[[Value], Value]) -> None:
    """Register a function of one operand."""

    @operation(name)
    def build(c: LayerCall) -> Value:
        more = {
            k: v for k, v in c.spec.config.items() if k not in ("name", "dtype", "trainable") and v not in (None, -1)
        }
        if more or len(c.args) + len(c.kwargs) != 1:
            raise NodeRefusedError(f"its arguments {', '.join(more) or 'beside the operand'} are not known")
        return function(c.x)


def _axes(c: LayerCall, x: Value) -> tuple[int, ...]:
    given = c.get("axis")
    if given is None:
        return tuple(range(x.rank))
    found = given if isinstance(given, (list, tuple)) else [given]
    return tuple(c.axis_of(a, x.rank) for a in found)


def reduction(name: str, function: Callable[..., Value]) -> None:
    """Register a function over axes."""

    @operation(name)
    def build(c: LayerCall) -> Value:
        x = c.x
        return function(x, _axes(c, x), keepdims=c.flag("keepdims"))


for _name, _function in {
    "Add": li.add, "Subtract": li.subtract, "Multiply": li.multiply,
    "Maximum": li.maximum, "Minimum": li.minimum, "Power": li.power, "Matmul": li.matmul, "Equal": li.equal,
    "NotEqual": li.not_equal, "Less": li.less, "LessEqual": li.less_equal, "Greater": li.greater,
    "GreaterEqual": li.greater_equal,
}.items():  # fmt: skip
    binary(_name, _function)
for _name in ("Divide", "TrueDivide"):
    binary(_name, li.divide, floats=True)
logical("LogicalAnd", li.logical_and)
logical("LogicalOr", li.logical_or)
for _name, _one in {
    "Negative": li.negate, "Abs": li.abs, "Absolute": li.abs, "Exp": li.exp, "Log": li.log, "Log1p": li.log1p,
    "Sqrt": li.sqrt, "Square": li.square,
    "Tanh": li.tanh, "Sigmoid": li.sigmoid, "Relu": li.relu, "Sin": li.sin, "Cos": li.cos,
    "LogicalNot": lambda x: li.logical_not(truth_of(x)),
    "Softplus": li.softplus, "Silu": li.silu, "Softmax": FUNCTIONS["softmax"],
}.items():  # fmt: skip
    unary(_name, _one)
_REDUCTIONS: dict[str, Any] = {
    "Sum": li.sum, "Mean": li.mean, "Max": li.max, "Min": li.min, "Any": li.any, "Var": lambda x, a, keepdims:
    li.var(x, a, keepdims=keepdims), "Std": lambda x, a, keepdims: li.std(x, a, keepdims=keepdims),
}  # fmt: skip
for _name, _over in _REDUCTIONS.items():
    reduction(_name, _over)


def filled(name: str, number: int) -> None:
    """Register a function that gives one number in the shape of its operand, in the type that is asked for."""

    @operation(name)
    def build(c: LayerCall) -> Value:
        x, given = c.x, c.get("dtype")
        return li.full(x.shape, number, x.dtype if given is None else dtype_named(given))


filled("ZerosLike", 0)
filled("OnesLike", 1)


@operation("ExpandDims")
def expand_dims(c: LayerCall) -> Value:
    """An axis of size 1."""
    x, axis = c.x, c.integer("axis")
    return li.expand_dims(x, c.axis_of(axis, x.rank + 1))


@operation("Squeeze")
def squeeze(c: LayerCall) -> Value:
    """Without axes of size 1."""
    x = c.x
    return li.squeeze(x, None if c.get("axis") is None else _axes(c, x))


@operation("Transpose")
def transpose(c: LayerCall) -> Value:
    """Axes in another order."""
    given = c.get("axes")
    return li.transpose(c.x, None if given is None else tuple(given))


@operation("Concatenate")
def concatenate(c: LayerCall) -> Value:
    """Along an axis."""
    values = c.values()
    return li.concat(values, c.axis_of(c.integer("axis", 0), values[0].rank))


@operation("Stack")
def stack(c: LayerCall) -> Value:
    """Along an axis of its own."""
    values = c.values()
    return li.stack(values, c.axis_of(c.integer("axis", 0), values[0].rank + 1))


@operation("Reshape")
def reshape(c: LayerCall) -> Value:
    """All axes in another shape; one size may be -1."""
    x = c.x
    return li.reshape(x, resolved(x.shape, c.get("newshape"), "newshape"))


@operation("Flip")
def flip(c: LayerCall) -> Value:
    """Backwards along axes."""
    x = c.x
    return li.flip(x, _axes(c, x))


@operation("GetItem")
def get_item(c: LayerCall) -> Value:
    """x[key] by whole numbers and slices."""
    key = c.args[1] if len(c.args) > 1 else c.kwargs.get("key")
    return li.index(c.x, tuple(key) if isinstance(key, list) else key)
