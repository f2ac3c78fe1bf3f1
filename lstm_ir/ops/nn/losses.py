"""Losses: softmax cross-entropy and mean squared error, with masks."""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import here
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.nn.softmax import log_softmax
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values, broadcast_to
from lstm_ir.ops.primitive.fill import arange
from lstm_ir.ops.primitive.reduce import mean, sum
from lstm_ir.ops.primitive.shape import expand_dims
from lstm_ir.ops.primitive.size import in_range


def cross_entropy(
    logits: Any, labels: Any, mask: Any = None, *, label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Value:  # fmt: skip
    """-log softmax(logits) [..., C] at the integers `labels` [...], each in 0 ... C - 1.

    mask (i1, or weights; [...], or a shape that NumPy repeats to it, such as [B,1]) leaves positions out where it is
    0, whose logits and labels may be anything, NaN too; the mean then divides by the sum of the repeated mask, or by
    1 where that is 0. label_smoothing s: (1 - s) of it, and s of the
    mean over all classes.
    reduction: mean, sum or none ([...]).
    """
    (v,) = as_values("cross_entropy", logits)
    at = labels if isinstance(labels, Value) else constant(labels)
    one_hot = ". One-hot? Give li.argmax(labels, -1)" if at.shape == v.shape else ""
    _need("cross_entropy", at.dtype.is_int, f"labels are {at.type}, not integers{one_hot}", v, at)
    fits = v.rank >= 1 and at.shape == v.shape[:-1]
    _need("cross_entropy", fits, "labels have the axes of logits without the last", v, at)
    number = isinstance(label_smoothing, (int, float, np.number))
    if not (number and 0.0 <= label_smoothing <= 1.0):
        problem = f"label_smoothing is {label_smoothing!r}, not in [0, 1]"
        _need("cross_entropy", False, problem, v, at)
    weights = None if mask is None else _weights("cross_entropy", mask, v, at.type)
    if weights is not None:
        kept = e.not_equal(weights, 0.0)
        at = e.select(kept, at, constant(0, at.dtype))
        v = e.select(broadcast_to(expand_dims(kept, -1), v.shape), v, constant(0, v.dtype))
    at = in_range(at, 0, v.shape[-1] - 1, "labels")
    chosen = _one_hot(e.convert(at, DType.i32) if at.dtype.bits == 8 else at, v)  # 8 bits do not number all classes
    logp = log_softmax(v)
    loss = -sum(e.select(chosen, logp, constant(0, v.dtype)), -1)
    if label_smoothing:
        loss = loss * (1.0 - label_smoothing) - mean(logp, -1) * label_smoothing
    return _reduced("cross_entropy", loss, weights, reduction)


def mse(x: Any, target: Any, mask: Any = None, *, reduction: str = "mean") -> Value:
    """(x - target)^2, both [...]; `mask` and `reduction` as in `cross_entropy`."""
    v, want = as_values("mse", x, target)
    _need("mse", v.type == want.type, "x and target differ in type", v, want)
    difference = v - want
    weights = None if mask is None else _weights("mse", mask, v, v.type)
    if weights is not None:  # what is left out may be infinite: it is never squared
        difference = e.select(e.not_equal(weights, 0.0), difference, constant(0, v.dtype))
    return _reduced("mse", difference * difference, weights, reduction)


def _one_hot(labels: Value, logits: Value) -> Value:
    shape = logits.shape
    classes = broadcast_to(arange(shape[-1], labels.dtype), shape)
    return e.equal(broadcast_to(expand_dims(labels, -1), shape), classes)


def _weights(name: str, mask: Any, v: Value, like: TensorType) -> Value:
    m = mask if isinstance(mask, Value) else constant(mask)
    kind = m.dtype.is_float or m.dtype is DType.i1
    _need(name, kind, f"mask is {m.type}, expected i1 or floats", v, m)
    pairs = zip(reversed(m.shape), reversed(like.shape), strict=False)
    fits = m.rank <= like.rank and all(a in (1, b) for a, b in pairs)
    shape = f"[{','.join(map(str, like.shape))}]"
    problem = f"mask is {m.type}, whose shape NumPy does not repeat to {shape}; an axis that repeats has the size 1"
    _need(name, fits, problem, v, m)
    return broadcast_to(e.convert(m, v.dtype.compute_dtype), like.shape)


def _reduced(name: str, loss: Value, weights: Value | None, reduction: str) -> Value:
    if not isinstance(reduction, str) or reduction not in ("mean", "sum", "none"):
        _need(name, False, f"reduction is {reduction!r}; there are mean, sum and none", loss, loss)
    kind, loss = loss.dtype, e.convert(loss, loss.dtype.compute_dtype)  # sums of more than a 16-bit float holds
    if weights is not None:
        loss = loss * weights
    if reduction == "mean" and weights is not None:
        total = sum(weights)
        loss = sum(loss) / e.select(e.equal(total, 0.0), constant(1, total.dtype), total)
    elif reduction != "none":
        loss = mean(loss) if reduction == "mean" else sum(loss)
    return e.convert(loss, kind)


def _need(name: str, holds: bool, problem: str, a: Value, b: Value) -> None:
    if not holds:
        raise IRError(message(name, problem, [("first", a.type), ("second", b.type)], here()))
