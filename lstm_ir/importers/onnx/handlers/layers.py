"""Softmax, normalisations, pooling over everything."""

from __future__ import annotations

from collections.abc import Callable

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.handlers.shapes import flattened
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.graph import Value
from lstm_ir.ops.nn.normalisation import affine, normalised


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


@taken("BatchNormalization", 7, 9, 14, 15, refused="training mode before operator set 14")
def batch_normalization(c: Call) -> tuple[Value, ...]:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, with given mean and variance; in training those of the
    batch, and the running ones follow them by 1 - momentum.
    """
    x, scale, bias, mean, variance = (c.value(i) for i in range(5))
    if c.opset < 14 and any(c.wants(i) for i in range(1, 5)):  # so said the specification: there is no attribute
        raise NodeRefusedError("results beside the first ask for training mode, which is taken from operator set 14 on")
    training = c.opset >= 14 and c.flag("training_mode")
    if c.opset < 9 and not c.flag("spatial", True):
        raise NodeRefusedError("spatial is 0")
    momentum = c.real("momentum", 0.9)
    scale, bias = (li.convert(v, x.dtype) for v in (scale, bias))
    epsilon = c.real("epsilon", 1e-5)
    if not training:
        return (li.batch_norm(x, mean, variance, scale, bias, epsilon=epsilon).y,)
    wide = li.convert(x, x.dtype.compute_dtype)
    over = (0, *range(2, x.rank))
    now = li.mean(wide, over), li.var(wide, over)
    of_batch = [li.convert(v, m.dtype) for v, m in zip(now, (mean, variance), strict=True)]
    y = li.batch_norm(x, of_batch[0], of_batch[1], scale, bias, epsilon=epsilon).y
    follow = [
        m * momentum + li.convert(v, m.dtype) * (1.0 - momentum) for m, v in zip((mean, variance), now, strict=True)
    ]
    return y, *follow


@taken("LayerNormalization", 17, refused="stash_type other than f32")
def layer_normalization(c: Call) -> tuple[Value, Value, Value]:
    """Normalised over the axes from `axis` on, in f32 where stash_type says so."""
    x, scale, bias = c.value(0), c.value(1), c.maybe(2)
    if c.integer("stash_type", 1) != 1:
        raise NodeRefusedError("stash_type is not 1, f32")
    axes = tuple(range(c.axis(x.rank, -1), x.rank))
    y, mean, inverse = normalised(li.convert(x, x.dtype.compute_dtype), axes, c.real("epsilon", 1e-5))
    return affine(li.convert(y, x.dtype), scale, bias), mean, inverse


@taken("RMSNormalization", 23, refused="stash_type other than f32")
def rms_normalization(c: Call) -> Value:
    """By the root of the mean of squares over the axes from `axis` on, in f32 where stash_type says so."""
    x, scale = c.value(0), c.value(1)
    if c.integer("stash_type", 1) != 1:
        raise NodeRefusedError("stash_type is not 1, f32")
    axes = tuple(range(c.axis(x.rank, -1), x.rank))
    return li.rms_norm(x, scale, axis=axes, epsilon=c.real("epsilon", 1e-5))


@taken("GroupNormalization", 18, 21, refused="stash_type other than f32")
def group_normalization(c: Call) -> Value:
    """Normalised over the channels of a group and the axes after them; scales of groups, of channels since 21."""
    x, scale, bias = c.value(0), c.value(1), c.value(2)
    groups, epsilon = c.integer("num_groups"), c.real("epsilon", 1e-5)
    channels = x.shape[1] if x.rank > 2 else None
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        raise NodeRefusedError(f"the operand is {x.type}, num_groups {groups}")
    if c.opset >= 21 and c.integer("stash_type", 1) != 1:
        raise NodeRefusedError("stash_type is not 1, f32")
    for v in (scale, bias):
        wanted = channels if c.opset >= 21 else groups
        c.agree("scale or bias, and groups or channels", wanted, v.shape[0] if v.rank == 1 else -1)
    if c.opset < 21:  # one for each group
        each = (groups, channels // groups)
        scale, bias = (li.reshape(li.broadcast_in_dim(v, each, (0,)), (channels,)) for v in (scale, bias))
    return li.group_norm(x, groups, scale, bias, epsilon=epsilon)


@taken("LpNormalization", 1, 22)
def lp_normalization(c: Call) -> Value:
    """By the norm along `axis`, the sum of sizes or the root of the sum of squares; 0 where the norm is 0."""
    x = c.value(0)
    axis, p = c.axis(x.rank, -1), c.integer("p", 2)
    if p not in (1, 2):
        raise NodeRefusedError(f"p is {p}, not 1 or 2")
    return li.lp_normalization(x, p, axis)


@taken("InstanceNormalization", 6, 22)
def instance_normalization(c: Call) -> Value:
    """Normalised over the axes after the channels, for each row and channel."""
    x = c.value(0)
    if x.rank < 3:
        raise NodeRefusedError(f"the operand is {x.type}, without axes after the channels")
    return li.instance_norm(x, c.value(1), c.value(2), epsilon=c.real("epsilon", 1e-5))


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
