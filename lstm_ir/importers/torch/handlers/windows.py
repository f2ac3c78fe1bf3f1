"""Ops that slide a window over one or two axes: convolutions, their transposes, pools; and what stands around."""

from __future__ import annotations

from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.adaptive import adapted
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.torch.call import Call
from lstm_ir.importers.torch.table import taken
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value

Ints = list[int]
_MORE = "three and more spatial axes"
_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _rank(x: Value, unbatched: int = 0) -> int:
    """Axes that the window slides over."""
    rank = x.rank - 2 + unbatched
    if rank not in (1, 2):
        raise NodeRefusedError(f"windows over {max(rank, 0)} spatial axes are not taken, over one and two they are")
    return rank


def each(numbers: Ints) -> Any:
    """As a builder of so many axes takes them."""
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def _pads(pads: list[tuple[int, int]]) -> Any:
    return pads[0] if len(pads) == 1 else tuple(pads)


def _batched(x: Value, rank: int) -> tuple[Value, bool]:
    """x with an axis of rows, and whether it had none."""
    alone = x.rank == rank - 1
    return (li.expand_dims(x, 0) if alone else x), alone


@taken("aten.conv1d.default", "aten.conv1d.padding", "aten.conv2d.default", "aten.conv2d.padding", refused=_MORE)
def conv(c: Call) -> Value:
    """A convolution, and a bias for each output channel."""
    w = c.tensor("weight")
    if not all(isinstance(k, int) for k in w.shape[2:]):
        raise NodeRefusedError(f"the kernel {w.type} has an open size")
    x, alone = _batched(c.tensor("input"), w.rank)
    rank = _rank(x)
    strides, dilations = c.integers("stride", rank), c.integers("dilation", rank)
    word = c.any("padding")
    padding = word if isinstance(word, str) else _pads([(p, p) for p in c.integers("padding", rank)])
    build: Any = (li.conv1d, li.conv2d)[rank - 1]
    y: Value = build(x, w, each(strides), padding, each(dilations), c.integer("groups", 1), bias=c.optional("bias"))
    return li.squeeze(y, 0) if alone else y


@taken("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", refused=_MORE)
def conv_transpose(c: Call) -> Value:
    """The transpose of a convolution, and a bias for each output channel."""
    w = c.tensor("weight")
    x, alone = _batched(c.tensor("input"), w.rank)
    rank = _rank(x)
    pads = [(p, p) for p in c.integers("padding", rank)]
    build: Any = (li.conv_transpose1d, li.conv_transpose2d)[rank - 1]
    y: Value = build(
        x, w, each(c.integers("stride", rank)), _pads(pads), each(c.integers("output_padding", rank)),
        groups=c.integer("groups", 1), dilation=each(c.integers("dilation", rank)), bias=c.optional("bias"),
    )  # fmt: skip
    return li.squeeze(y, 0) if alone else y


@taken("aten.max_pool1d.default", "aten.max_pool2d.default", "aten.max_pool2d_with_indices.default",
       "aten.max_pool1d_with_indices.default", refused="the places of the largest")  # fmt: skip
def max_pool(c: Call) -> Any:
    """The largest of each window."""
    dilations = c.integers("dilation", _pool_rank(c))
    y = _pooled(c, (li.max_pool1d, li.max_pool2d), each(dilations), c.flag("ceil_mode"))
    return [y, None] if "indices" in c.name else y


@taken("aten.avg_pool1d.default", "aten.avg_pool2d.default", refused="divisor_override")
def avg_pool(c: Call) -> Value:
    """The mean of each window."""
    return _pooled(c, (li.avg_pool1d, li.avg_pool2d), c.flag("ceil_mode"), c.flag("count_include_pad", True))


def _pool_rank(c: Call) -> int:
    return 1 if "pool1d" in c.name else 2


def _pooled(c: Call, builders: Any, *further: Any) -> Value:
    """A pool over one or two axes; `further`: what its builder takes after the padding."""
    rank = _pool_rank(c)
    x, alone = _batched(c.tensor("self"), rank + 2)
    taps = c.integers("kernel_size", rank)
    strides = c.integers("stride", rank) if c.any("stride") else taps
    pads = [(p, p) for p in c.integers("padding", rank)]
    y: Value = builders[rank - 1](x, each(taps), each(strides), _pads(pads), *further)
    return li.squeeze(y, 0) if alone else y


@taken("aten.adaptive_avg_pool1d.default", "aten.adaptive_avg_pool2d.default", "aten._adaptive_avg_pool2d.default",
       "aten.adaptive_max_pool1d.default", "aten.adaptive_max_pool2d.default",
       refused="results other than 1 over an open size; the places of the largest")  # fmt: skip
def adaptive_pool(c: Call) -> Any:
    """The mean, or the largest, of as many windows as are asked for: from floor(i * n / m) to ceil((i + 1) * n / m)."""
    x, rank = c.tensor("self"), _pool_rank(c)
    largest = "max" in c.name
    sizes = c.sizes("output_size")
    sizes = sizes * rank if len(sizes) == 1 else sizes
    for k in reversed(range(rank)):  # of equal ones the first row, and in it the first column
        x = adapted(x, x.rank - rank + k, sizes[k], largest)
    return [x, None] if largest else x


@taken("aten.pad.default", "aten.constant_pad_nd.default", "aten.reflection_pad1d.default",
       "aten.reflection_pad2d.default", "aten.replication_pad1d.default", "aten.replication_pad2d.default")  # fmt: skip
def pad(c: Call) -> Value:
    """Before and after the last axes, the last one first: a number, the mirrored inside, the edge, the other end."""
    x = c.tensor("self")
    given = c.sizes("pad" if c.given("pad") else "padding")
    named = {"reflection": "reflect", "replication": "replicate"}.get(c.name.split(".")[1].split("_")[0])
    mode = named or (c.word("mode", "constant") if c.name == "aten.pad.default" else "constant")
    low: list[Dim] = [0] * x.rank
    high: list[Dim] = [0] * x.rank
    for k, (before, after) in enumerate(zip(given[::2], given[1::2], strict=True)):
        low[x.rank - 1 - k], high[x.rank - 1 - k] = before, after
    if mode == "constant":
        return li.pad(x, low, high, value=c.operand("value", x.dtype) if c.given("value") else 0)
    if mode not in _MODES:
        raise NodeRefusedError(f"the mode {mode!r} is not taken")
    c.any("value")
    return li.pad(x, low, high, mode=_MODES[mode])


@taken("aten.upsample_nearest1d.vec", "aten.upsample_nearest2d.vec", "aten.upsample_nearest1d.default",
       "aten.upsample_nearest2d.default", refused="sizes and factors that are no whole multiple")  # fmt: skip
def upsample_nearest(c: Call) -> Value:
    """Each element so many times along the axes after the channels."""
    x = c.tensor("input" if c.given("input") else "self")
    c.any("output_size")
    factors = _factors(c, x.rank - 2)
    for k, factor in enumerate(factors):
        x = _wider(x, k + 2, c.shape[k + 2], factor)
    return x


def _factors(c: Call, rank: int) -> list[Any]:
    """How many times as long each axis becomes, where numbers say it."""
    names = ("scale_factors",) if c.given("scale_factors") else ("scales",) if rank == 1 else ("scales_h", "scales_w")
    for name in ("scale_factors", "scales", "scales_h", "scales_w"):
        c.any(name)
    found = [c.any(name) for name in names]
    found = list(found[0]) if len(found) == 1 and isinstance(found[0], (list, tuple)) else found
    return found if len(found) == rank else [None] * rank


def _wider(x: Value, axis: int, size: Dim, factor: Any) -> Value:
    n = x.shape[axis]
    times = next((k for k in range(1, 65) if dims.mul(n, k) == size), None)
    if times is None:
        raise NodeRefusedError(f"{size} elements from {n} are no whole multiple")
    if factor is not None and not _as_often(n, times, factor):
        # PyTorch reads element floor(i / 2.4) of two that become four.
        raise NodeRefusedError(f"{size} elements from {n} by the factor {factor}, which is no whole number")
    wide = li.broadcast_to(li.expand_dims(x, axis + 1), (*x.shape[: axis + 1], times, *x.shape[axis + 1 :]))
    return li.reshape(wide, (*x.shape[:axis], size, *x.shape[axis + 1 :]))


def _as_often(n: Dim, times: int, factor: Any) -> bool:
    """Whether a factor repeats each of n elements equally often."""
    if not isinstance(factor, (int, float)):
        return False
    return factor == times or (isinstance(n, int) and all(int(i / factor) == i // times for i in range(n * times)))
