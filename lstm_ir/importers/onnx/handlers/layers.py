"""Softmax, normalisations, pooling over everything."""

from __future__ import annotations

from collections.abc import Callable

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call, RefusedError
from lstm_ir.importers.onnx.handlers.shapes import flattened
from lstm_ir.importers.onnx.table import taken
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType


def _soft(name: str, function: Callable[[Value, int], Value]) -> None:
    @taken(name, 1, 11, 13)
    def build(c: Call) -> Value:
        x = c.value(0)
        if c.opset >= 13:
            return function(x, c.axis(x.rank, -1))
        # Until operator set 12 all axes from `axis` on are one.
        rows = flattened(x, c.axis(x.rank, 1))
        return li.reshape(function(rows, 1), x.shape)


_soft("Softmax", lambda x, axis: li.softmax(x, axis))
_soft("LogSoftmax", lambda x, axis: li.log_softmax(x, axis))


def _per_channel(v: Value, x: Value) -> Value:
    """One number for each channel, axis 1 of x."""
    return li.reshape(v, (v.shape[0], *(1,) * (x.rank - 2)))


@taken("BatchNormalization", 7, 9, 14, 15, refused="training mode")
def batch_normalization(c: Call) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, with given mean and variance."""
    x, scale, bias, mean, variance = (c.value(i) for i in range(5))
    if c.opset >= 14 and c.flag("training_mode"):
        raise RefusedError("training mode is not taken")
    if c.opset < 9 and not c.flag("spatial", True):
        raise RefusedError("spatial is 0")
    if c.has_attribute("momentum"):
        c.real("momentum")
    if x.rank < 2:
        raise RefusedError(f"the operand is {x.type}, without channels")
    factor = scale / li.sqrt(variance + c.real("epsilon", 1e-5))
    return (x - _cast(_per_channel(mean, x), x)) * _cast(_per_channel(factor, x), x) + _cast(_per_channel(bias, x), x)


def _cast(v: Value, like: Value) -> Value:
    return li.convert(v, like.dtype)


def _normalised(x: Value, axes: tuple[int, ...], epsilon: float) -> tuple[Value, Value, Value]:
    """(x - mean) / deviation, with mean and 1 / deviation over axes, which stay as size 1."""
    mean = li.mean(x, axes, keepdims=True)
    centred = x - mean
    inverse = 1.0 / li.sqrt(li.mean(centred * centred, axes, keepdims=True) + epsilon)
    return centred * inverse, mean, inverse


@taken("LayerNormalization", 17)
def layer_normalization(c: Call) -> tuple[Value, Value, Value]:
    """Normalised over the axes from `axis` on, in f32 where stash_type says so."""
    x, scale, bias = c.value(0), c.value(1), c.maybe(2)
    if c.integer("stash_type", 1) != 1:
        raise RefusedError("stash_type is not 1, f32")
    axis = c.axis(x.rank, -1)
    inside = DType.f32 if x.dtype.bits == 16 else x.dtype
    y, mean, inverse = _normalised(li.convert(x, inside), tuple(range(axis, x.rank)), c.real("epsilon", 1e-5))
    y = li.convert(y, x.dtype) * scale
    return y if bias is None else y + bias, mean, inverse


@taken("RMSNormalization", 23)
def rms_normalization(c: Call) -> Value:
    """By the root of the mean of squares over the axes from `axis` on, in f32 where stash_type says so."""
    x, scale = c.value(0), c.value(1)
    if c.integer("stash_type", 1) != 1:
        raise RefusedError("stash_type is not 1, f32")
    inside = DType.f32 if x.dtype.bits == 16 else x.dtype
    wide = li.convert(x, inside)
    axes = tuple(range(c.axis(x.rank, -1), x.rank))
    y = wide / li.sqrt(li.mean(wide * wide, axes, keepdims=True) + c.real("epsilon", 1e-5))
    return li.convert(y, x.dtype) * scale


@taken("GroupNormalization", 18, 21)
def group_normalization(c: Call) -> Value:
    """Normalised over the channels of a group and the axes after them; scales of groups, of channels since 21."""
    x, scale, bias = c.value(0), c.value(1), c.value(2)
    groups = c.integer("num_groups")
    channels = x.shape[1] if x.rank > 2 else None
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        raise RefusedError(f"the operand is {x.type}, num_groups {groups}")
    if c.opset >= 21 and c.integer("stash_type", 1) != 1:
        raise RefusedError("stash_type is not 1, f32")
    inside = DType.f32 if x.dtype.bits == 16 else x.dtype
    parts = li.reshape(li.convert(x, inside), (x.shape[0], groups, channels // groups, *x.shape[2:]))
    y, _, _ = _normalised(parts, tuple(range(2, parts.rank)), c.real("epsilon", 1e-5))
    like = parts if c.opset < 21 else x
    y = li.convert(li.reshape(y, like.shape), x.dtype)
    for v in (scale, bias):
        c.agree("scale or bias, and groups or channels", like.shape[1], v.shape[0] if v.rank == 1 else -1)
    return li.reshape(y * _per_channel(scale, like) + _per_channel(bias, like), x.shape)


@taken("LpNormalization", 1, 22)
def lp_normalization(c: Call) -> Value:
    """By the norm along `axis`, the sum of sizes or the root of the sum of squares; 0 where the norm is 0."""
    x = c.value(0)
    axis, p = c.axis(x.rank, -1), c.integer("p", 2)
    if p not in (1, 2):
        raise RefusedError(f"p is {p}, not 1 or 2")
    norm = li.sum(li.abs(x), axis, keepdims=True) if p == 1 else li.sqrt(li.sum(x * x, axis, keepdims=True))
    none = li.equal(norm, 0)
    return x / li.select(none, li.ones(norm.shape, x.dtype), norm)


@taken("InstanceNormalization", 6, 22)
def instance_normalization(c: Call) -> Value:
    """Normalised over the axes after the channels, for each row and channel."""
    x = c.value(0)
    if x.rank < 3:
        raise RefusedError(f"the operand is {x.type}, without axes after the channels")
    y, _, _ = _normalised(x, tuple(range(2, x.rank)), c.real("epsilon", 1e-5))
    return y * _per_channel(c.value(1), x) + _per_channel(c.value(2), x)


@taken("GlobalAveragePool", 1, 22)
def global_average_pool(c: Call) -> Value:
    """The mean over the axes after the channels, which stay as size 1."""
    x = c.value(0)
    return li.mean(x, tuple(range(2, x.rank)), keepdims=True) if x.rank > 2 else x


@taken("GlobalMaxPool", 1, 22)
def global_max_pool(c: Call) -> Value:
    """The largest over the axes after the channels, which stay as size 1."""
    x = c.value(0)
    return li.max(x, tuple(range(2, x.rank)), keepdims=True) if x.rank > 2 else x
