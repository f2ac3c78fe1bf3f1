"""Softmax and normalisations."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.tensorflow.call import Call
from lstm_ir.importers.tensorflow.table import taken
from lstm_ir.ir.graph import Value


@taken("Softmax")
def softmax(c: Call) -> Value:
    """Along the last axis."""
    return li.softmax(c.value(0))


@taken("LogSoftmax")
def log_softmax(c: Call) -> Value:
    """Its logarithm along the last axis."""
    return li.log_softmax(c.value(0))


@taken("L2Loss")
def l2_loss(c: Call) -> Value:
    """Half the sum of squares."""
    x = c.value(0)
    return li.sum(x * x) * 0.5


@taken(
    "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", refused="training",
    results="y batch_mean batch_variance reserve_space_1 reserve_space_2 reserve_space_3",
)  # fmt: skip
def batch_norm(c: Call) -> list[Value | None]:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, with given mean and variance."""
    x, scale, offset, mean, variance = (c.value(i) for i in range(5))
    if c.flag("is_training", True):
        raise NodeRefusedError("training mode is not taken")
    c.real("exponential_avg_factor", 1.0)
    order = c.word("data_format", "NHWC")
    if order not in ("NHWC", "NCHW") or x.rank != 4:
        raise NodeRefusedError(f"data_format is {order!r}, the operand {x.type}")
    inside = li.transpose(x, (0, 3, 1, 2)) if order == "NHWC" else x
    found = [li.convert(v, x.dtype) for v in (mean, variance, scale, offset)]
    y = li.batch_norm(inside, *found, epsilon=c.real("epsilon", 1e-4)).y
    y = li.transpose(y, (0, 2, 3, 1)) if order == "NHWC" else y
    return [y, mean, variance, mean, variance, None]


@taken("Print")
def printed(c: Call) -> Value:
    """The first operand; nothing is printed."""
    for name in ("message",):
        c.word(name, "")
    for name in ("first_n", "summarize"):
        c.integer(name, 0)
    things = c.things
    found: Value = things[0]
    return found
