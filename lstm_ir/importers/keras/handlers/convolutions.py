"""Convolutions over one and two axes: Keras' layouts as those of `li.conv1d` and `li.conv2d`."""

from __future__ import annotations

from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.keras.call import LayerCall
from lstm_ir.importers.keras.handlers.activations import function_of
from lstm_ir.importers.keras.table import taken
from lstm_ir.importers.pools import need_steps
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ops.core.same_padding import Edge, padded, same_edges

Pads = list[Edge]
_KNOWN = "filters kernel_size strides padding data_format dilation_rate groups activation use_bias"


def channels_first(c: LayerCall, x: Value, axes: int) -> Value:
    """x as [N,C,...]."""
    if x.rank != axes + 2:
        raise NodeRefusedError(f"the operand is {x.type}, expected {axes + 2} axes")
    return li.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1))) if c.channels_last else x


def back(c: LayerCall, y: Value) -> Value:
    """[N,C,...] in the layer's layout."""
    return li.transpose(y, (0, *range(2, y.rank), 1)) if c.channels_last else y


def pads(c: LayerCall, sizes: tuple[Dim, ...], widths: list[int], strides: list[int], causal: bool = False) -> Pads:
    """What is padded, as the layer's `padding` says."""
    how = c.word("padding", "valid", ("valid", "same", "causal") if causal else ("valid", "same"))
    if how == "valid":
        return [(0, 0)] * len(sizes)
    if how == "causal":
        return [(w - 1, 0) for w in widths]
    need_steps(widths, strides, [1] * len(widths))
    return [same_edges(n, w, s) for n, w, s in zip(sizes, widths, strides, strict=True)]


def each(numbers: list[int]) -> Any:
    """As a builder of so many axes takes them."""
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def of_axes(paddings: list[tuple[int, int]]) -> Any:
    """Pads as a builder takes them."""
    return paddings[0] if len(paddings) == 1 else tuple(paddings)


def convolved(c: LayerCall, x: Value, kernel: Value, axes: int, groups: int, strides: list[int]) -> Value:
    """x [N,C,...] with kernel [...,C/groups,O]."""
    dilations = c.integers("dilation_rate", axes, 1)
    widths = [(int(k) - 1) * d + 1 for k, d in zip(_taps(kernel, axes), dilations, strict=True)]
    w = li.transpose(kernel, (axes + 1, axes, *range(axes)))
    x, edges = padded(x, pads(c, x.shape[2:], widths, strides, causal=axes == 1), 0)
    padding = of_axes(edges)
    build: Any = (li.conv1d, li.conv2d)[axes - 1]
    found: Value = build(x, w, each(strides), padding, each(dilations), groups)
    return found


def _taps(kernel: Value, axes: int) -> list[int]:
    return [k for k in kernel.shape[:axes] if isinstance(k, int)]


def _finished(c: LayerCall, y: Value, w: dict[str, Value]) -> Value:
    y = back(c, y)
    if "bias" in w:
        axis = y.rank - 1 if c.channels_last else 1
        y = y + li.reshape(w["bias"], tuple(y.shape[axis] if k == axis else 1 for k in range(y.rank)))
    return function_of(c.get("activation"))(y)


def convolution(name: str, axes: int) -> None:
    """Register Conv1D or Conv2D."""

    @taken(name, _KNOWN)
    def build(c: LayerCall) -> Value:
        x, w = channels_first(c, c.x, axes), c.weights()
        y = convolved(c, x, w["kernel"], axes, c.integer("groups", 1), c.integers("strides", axes, 1))
        return _finished(c, y, w)


def depthwise(name: str, axes: int) -> None:
    """Register DepthwiseConv1D or 2D: each channel has depth_multiplier results."""

    @taken(name, f"{_KNOWN} depth_multiplier depthwise_initializer depthwise_regularizer depthwise_constraint")
    def build(c: LayerCall) -> Value:
        x, w = channels_first(c, c.x, axes), c.weights()
        return _finished(c, _by_depth(c, x, w["kernel"], axes), w)


def separable(name: str, axes: int) -> None:
    """Register SeparableConv1D or 2D: by depth, then over the channels."""
    inits = " ".join(
        f"{a}_{b}" for a in ("depthwise", "pointwise") for b in ("initializer", "regularizer", "constraint")
    )

    @taken(name, f"{_KNOWN} depth_multiplier {inits}")
    def build(c: LayerCall) -> Value:
        x, w = channels_first(c, c.x, axes), c.weights()
        y = _by_depth(c, x, w["depthwise_kernel"], axes)
        point = li.transpose(w["pointwise_kernel"], (axes + 1, axes, *range(axes)))
        over: Any = (li.conv1d, li.conv2d)[axes - 1]
        return _finished(c, over(y, point), w)


def _by_depth(c: LayerCall, x: Value, kernel: Value, axes: int) -> Value:
    """kernel [...,C,M]: channel c gives the results c*M ... c*M + M - 1."""
    channels, many = kernel.shape[axes], kernel.shape[axes + 1]
    assert isinstance(channels, int)
    assert isinstance(many, int)
    flat = li.reshape(kernel, (*kernel.shape[:axes], 1, channels * many))
    return convolved(c, x, flat, axes, channels, c.integers("strides", axes, 1))


for _name, _axes in (("Conv1D", 1), ("Conv2D", 2)):
    convolution(_name, _axes)
    depthwise(f"Depthwise{_name}", _axes)
    separable(f"Separable{_name}", _axes)
