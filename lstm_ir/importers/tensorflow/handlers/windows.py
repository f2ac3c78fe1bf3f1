"""Ops that slide a window over two axes: convolutions and pools. A convolution over one axis is written with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from lstm_ir import ops as li
from lstm_ir.importers import pools
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.tensorflow.call import Call
from lstm_ir.importers.tensorflow.table import taken
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Value
from lstm_ir.ops.core.same_padding import Edge, padded, same_edges

Pair = tuple[int, int]


class _Order(NamedTuple):
    """Whether channels stand last, and of the axes of the file the two that a window slides over."""

    last: bool

    @property
    def axes(self) -> Pair:
        """Height and width."""
        return (1, 2) if self.last else (2, 3)

    def inward(self, x: Value) -> Value:
        """x with the channels second."""
        return li.transpose(x, (0, 3, 1, 2)) if self.last else x

    def outward(self, x: Value) -> Value:
        """x as the file orders its axes."""
        return li.transpose(x, (0, 2, 3, 1)) if self.last else x


def _order(c: Call, x: Value) -> _Order:
    found = c.word("data_format", "NHWC")
    if found not in ("NHWC", "NCHW"):
        raise NodeRefusedError(f"data_format is {found!r}")
    if x.rank != 4:
        raise NodeRefusedError(f"takes an operand of four axes, got {x.type}")
    return _Order(found == "NHWC")


def _pair(c: Call, name: str, order: _Order, default: list[int] | None = None) -> Pair:
    """Of an attribute with a number for each axis those of the window; the others are 1."""
    found = c.integers(name, default)
    if len(found) != 4 or any(found[a] != 1 for a in range(4) if a not in order.axes):
        raise NodeRefusedError(f"{name} is {found}: 1 for rows and channels is taken")
    if min(found) < 1:
        raise NodeRefusedError(f"{name} is {found}")
    return found[order.axes[0]], found[order.axes[1]]


def _pads(c: Call, x: Value, order: _Order, taps: Pair, strides: Pair, dilations: Pair = (1, 1)) -> list[Edge]:
    """Places before and after, as `padding` says."""
    how = c.word("padding")
    explicit = c.integers("explicit_paddings", ())
    if how == "VALID":
        return [(0, 0), (0, 0)]
    if how == "EXPLICIT":
        if len(explicit) != 8 or any(explicit[2 * a] or explicit[2 * a + 1] for a in range(4) if a not in order.axes):
            raise NodeRefusedError(f"explicit_paddings is {explicit}")
        h, w = order.axes
        return [(explicit[2 * h], explicit[2 * h + 1]), (explicit[2 * w], explicit[2 * w + 1])]
    if how != "SAME":
        raise NodeRefusedError(f"padding is {how!r}")
    pools.need_steps(taps, strides, dilations)
    return [
        same_edges(x.shape[axis], (taps[k] - 1) * dilations[k] + 1, strides[k]) for k, axis in enumerate(order.axes)
    ]


def _taps(w: Value) -> Pair:
    h, k = w.shape[:2]
    if w.rank != 4 or not isinstance(h, int) or not isinstance(k, int):
        raise NodeRefusedError(f"the kernel is {w.type}")
    return h, k


@taken("Conv2D")
def conv(c: Call) -> Value:
    """A convolution over height and width; the kernel is [height, width, channels, out]."""
    x, w = c.value(0), c.value(1)
    order, taps = _order(c, x), _taps(w)
    strides, dilations = _pair(c, "strides", order), _pair(c, "dilations", order, [1, 1, 1, 1])
    pads = _pads(c, x, order, taps, strides, dilations)
    channels, of = x.shape[3 if order.last else 1], w.shape[2]
    groups = channels // of if isinstance(channels, int) and isinstance(of, int) and of else 1
    c.agree("channels", channels, dims.mul(of, groups))
    kernel = li.transpose(w, (3, 2, 0, 1))
    x, edges = padded(order.inward(x), pads, 0)
    return order.outward(li.conv2d(x, kernel, strides, tuple(edges), dilations, groups))


@taken("DepthwiseConv2dNative")
def depthwise(c: Call) -> Value:
    """A convolution of each channel by itself; the kernel is [height, width, channels, times]."""
    x, w = c.value(0), c.value(1)
    order, taps = _order(c, x), _taps(w)
    strides, dilations = _pair(c, "strides", order), _pair(c, "dilations", order, [1, 1, 1, 1])
    pads = _pads(c, x, order, taps, strides, dilations)
    channels, times = w.shape[2:]
    if not isinstance(channels, int):
        raise NodeRefusedError(f"the kernel is {w.type}")
    c.agree("channels", x.shape[3 if order.last else 1], channels)
    kernel = li.reshape(li.transpose(w, (2, 3, 0, 1)), (dims.mul(channels, times), 1, *taps))
    x, edges = padded(order.inward(x), pads, 0)
    return order.outward(li.conv2d(x, kernel, strides, tuple(edges), dilations, channels))


@taken("MaxPool")
def max_pool(c: Call) -> Value:
    """The largest of each window."""
    return _pooled(c, pools.max_pool)


@taken("AvgPool")
def average_pool(c: Call) -> Value:
    """The mean of each window; padding does not count."""
    return _pooled(c, partial(pools.mean_pool, ceil=False, counted=False))


def _pooled(c: Call, pool: Callable[..., Value]) -> Value:
    x = c.value(0)
    order = _order(c, x)
    taps, strides = _pair(c, "ksize", order), _pair(c, "strides", order)
    pads = _pads(c, x, order, taps, strides)
    return order.outward(pool(order.inward(x), taps, strides, pads, (1, 1)))
