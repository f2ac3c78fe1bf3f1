"""`softmax` and `log_softmax` along one axis, shifted by the maximum so that nothing overflows.

softmax(x) = e / sum(e)      e = exp(x - max(x))
log_softmax(x) = x - max(x) - log(sum(e))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.opdef import Attr, Level, Op, define, need
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.numpy_math import wide
from lstm_ir.ops.primitive.precision import in_compute_dtype
from lstm_ir.ops.primitive.reduce import max, sum
from lstm_ir.ops.primitive.shape import axis_of, need_axes

Array = np.ndarray[Any, Any]


def _types(operand: TensorType, *, axis: int) -> TensorType:
    need(operand.dtype.is_float, f'takes float elements, got {operand.dtype}; li.convert(x, "f32") converts')
    need_axes(operand, (axis,))
    return operand


def _shifted(x: Array, axis: int) -> tuple[Array, Array, Array]:
    """x - max, its exponential, and the sum of that."""
    v = wide(x)
    d = v - np.max(v, axis=axis, keepdims=True, initial=-np.inf)
    e = np.exp(d)
    return d, e, np.sum(e, axis=axis, keepdims=True)


def _softmax_numpy(x: Array, *, axis: int) -> Array:
    _, e, total = _shifted(x, axis)
    return (e / total).astype(x.dtype)


def _log_softmax_numpy(x: Array, *, axis: int) -> Array:
    d, _, total = _shifted(x, axis)
    return (d - np.log(total)).astype(x.dtype)


def _softmax_vjp(node: Node, cts: Cts) -> Cts:
    """y (ct - sum(ct y))."""
    ct, y, axis = only(cts), node.values[0], node.attrs["axis"]
    return (y * (ct - sum(ct * y, axis, keepdims=True)),)


def _log_softmax_vjp(node: Node, cts: Cts) -> Cts:
    """ct - exp(y) sum(ct)."""
    ct, y, axis = only(cts), node.values[0], node.attrs["axis"]
    return (ct - e.exp(y) * sum(ct, axis, keepdims=True),)


def _expand_softmax(x: Value, *, axis: int) -> Value:
    v = in_compute_dtype(x)
    up = e.exp(v - max(v, axis, keepdims=True))
    return e.convert(up / sum(up, axis, keepdims=True), x.dtype)


def _expand_log_softmax(x: Value, *, axis: int) -> Value:
    v = in_compute_dtype(x)
    d = v - max(v, axis, keepdims=True)
    return e.convert(d - e.log(sum(e.exp(d), axis, keepdims=True)), x.dtype)


def _define(name: str, numpy: Callable[..., Any], vjp: Callable[..., Any], expand: Callable[..., Any]) -> Op:
    return define(
        name, "operand", attrs={"axis": Attr("int")}, types=_types, numpy=numpy, vjp=vjp,
        expand=expand, level=Level.composite,
    )  # fmt: skip


SOFTMAX = _define("softmax", _softmax_numpy, _softmax_vjp, _expand_softmax)
LOG_SOFTMAX = _define("log_softmax", _log_softmax_numpy, _log_softmax_vjp, _expand_log_softmax)


def softmax(x: Any, axis: int = -1) -> Value:
    """exp(x) / sum(exp(x)) along `axis`."""
    (v,) = as_values("softmax", x)
    return make(SOFTMAX, v, axis=axis_of("softmax", v, axis)).values[0]


def log_softmax(x: Any, axis: int = -1) -> Value:
    """log(softmax(x)) along `axis`, exact where softmax underflows."""
    (v,) = as_values("log_softmax", x)
    return make(LOG_SOFTMAX, v, axis=axis_of("log_softmax", v, axis)).values[0]
