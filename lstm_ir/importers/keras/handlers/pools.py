"""Pools over windows, and over everything."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers import pools
from lstm_ir.importers.adaptive import adapted
from lstm_ir.importers.keras.call import LayerCall
from lstm_ir.importers.keras.handlers.convolutions import back, channels_first, pads
from lstm_ir.importers.keras.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.graph import Value


def pool(name: str, axes: int, largest: bool) -> None:
    """Register a pool over windows; padding counts in no mean."""

    @taken(name, "pool_size strides padding data_format")
    def build(c: LayerCall) -> Value:
        x = channels_first(c, c.x, axes)
        taps = c.integers("pool_size", axes, 2)
        strides = taps if c.get("strides") is None else c.integers("strides", axes)
        edges = pads(c, x.shape[2:], taps, strides)
        if largest:
            return back(c, pools.max_pool(x, taps, strides, edges, [1] * axes))
        return back(c, pools.mean_pool(x, taps, strides, edges, [1] * axes, ceil=False, counted=False))


def whole(name: str, axes: int, largest: bool) -> None:
    """Register a pool over all steps; a mean leaves out those that a mask names."""

    @taken(name, "data_format keepdims")
    def build(c: LayerCall) -> Value:
        x, keep = c.x, c.flag("keepdims")
        over = tuple(range(1, axes + 1)) if c.channels_last else tuple(range(2, axes + 2))
        if largest:
            return li.max(x, over, keepdims=keep)
        if c.mask is None or axes != 1:
            return li.mean(x, over, keepdims=keep)
        there = li.expand_dims(c.mask, 2 if c.channels_last else 1)
        kept = li.where(there, x, li.zeros_like(x))
        return li.sum(kept, over, keepdims=keep) / li.sum(li.convert(there, x.dtype), over, keepdims=keep)


def adaptive(name: str, axes: int, largest: bool) -> None:
    """Register a pool of as many windows as are asked for."""

    @taken(name, "output_size data_format", refused="sizes other than 1 over an open size")
    def build(c: LayerCall) -> Value:
        x = c.x
        first = 1 if c.channels_last else 2
        for k, size in enumerate(c.integers("output_size", axes)):
            if size < 1:
                raise NodeRefusedError(f"output_size is {size}")
            x = adapted(x, first + k, size, largest)
        return x


for _axes in (1, 2):
    for _word, _largest in (("Max", True), ("Average", False)):
        pool(f"{_word}Pooling{_axes}D", _axes, _largest)
        whole(f"Global{_word}Pooling{_axes}D", _axes, _largest)
        adaptive(f"Adaptive{_word}Pooling{_axes}D", _axes, _largest)
