"""Ops that slide a window over one or two axes: convolutions, their transposes, pools."""

from __future__ import annotations

from typing import Any, NamedTuple

from lstm_ir import ops as li
from lstm_ir.importers import pools
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import minus
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.core.same_padding import Edge, padded, same_edges

Ints = list[int]
Pads = list[tuple[int, int]]  # before and after, of each axis
_MORE = "three and more spatial axes"


class Window(NamedTuple):
    """Of each axis the taps, the step and the distance of two taps."""

    taps: Ints
    strides: Ints
    dilations: Ints

    @property
    def widths(self) -> Ints:
        """Places from the first tap to the last."""
        return [(k - 1) * d + 1 for k, d in zip(self.taps, self.dilations, strict=True)]


@taken("Conv", 1, 11, 22, refused=_MORE)
def conv(c: Call) -> Value:
    """A convolution, and a bias for each output channel."""
    x, w = c.value(0), c.value(1)
    window = _window(c, _axes(x, w), _taps(c, w))
    groups = c.integer("group", 1)
    if isinstance(w.shape[1], int):
        c.agree("channels", x.shape[1], w.shape[1] * groups)
    build: Any = (li.conv1d, li.conv2d)[x.rank - 3]
    x, edges = padded(x, _pads(c, window, x.shape[2:]), 0)
    strides, dilations = _each(window.strides), _each(window.dilations)
    return build(x, w, strides, _of_axes(edges), dilations, groups, bias=c.maybe(2))  # type: ignore[no-any-return]


@taken("ConvTranspose", 1, 11, 22, refused=f"{_MORE}; output_shape over an open size")
def conv_transpose(c: Call) -> Value:
    """The transpose of a convolution, and a bias for each output channel."""
    x, w = c.value(0), c.value(1)
    rank = _axes(x, w)
    window = _window(c, rank, _taps(c, w))
    c.agree("channels", x.shape[1], w.shape[0])
    more = _numbers(c, "output_padding", rank, 0)
    pads = _transposed_pads(c, window, x.shape[2:], more)
    build: Any = (li.conv_transpose1d, li.conv_transpose2d)[rank - 1]
    given = {"groups": c.integer("group", 1), "dilation": _each(window.dilations), "bias": c.maybe(2)}
    return build(x, w, _each(window.strides), _of_axes(pads), _each(more), **given)  # type: ignore[no-any-return]


@taken("MaxPool", 1, 8, 10, 11, 12, 22, refused=f"{_MORE}; Indices over an open size with ceil_mode")
def max_pool(c: Call) -> tuple[Value, Value | None]:
    """The largest of each window, and where it stands among all elements of the operand."""
    x = c.value(0)
    columns_first = c.flag("storage_order")
    window = _window(c, _axes(x, None), c.integers("kernel_shape"))
    ceil, edges = c.flag("ceil_mode"), _pads(c, window, x.shape[2:])
    y = pools.max_pool(x, *window[:2], edges, window.dilations, ceil)
    if not c.wants(1):
        return y, None
    at = pools.largest(x, *window[:2], edges, window.dilations, ceil, columns_first)
    planes = li.reshape(li.iota((dims.mul(*x.shape[:2]),), 0, DType.i64), (*x.shape[:2], *[1] * (x.rank - 2)))
    return y, planes * pools.size_value(dims.product(x.shape[2:])) + at


@taken("AveragePool", 1, 7, 10, 11, 19, 22, refused=_MORE)
def average_pool(c: Call) -> Value:
    """The mean of each window; padding counts where count_include_pad says so."""
    x = c.value(0)
    window = _window(c, _axes(x, None), c.integers("kernel_shape"))
    ceil, counted = c.flag("ceil_mode"), c.flag("count_include_pad")
    return pools.mean_pool(x, *window[:2], _pads(c, window, x.shape[2:]), window.dilations, ceil, counted)


# -- attributes


def _axes(x: Value, w: Value | None) -> int:
    """Axes that the window slides over."""
    rank = x.rank - 2
    if w is not None and w.rank != x.rank:
        raise NodeRefusedError(f"the operand is {x.type}, the kernel {w.type}")
    if rank not in (1, 2):
        raise NodeRefusedError(f"windows over {max(rank, 0)} spatial axes are not taken, over one and two they are")
    return rank


def _taps(c: Call, w: Value) -> Ints:
    taps = [k for k in w.shape[2:] if isinstance(k, int)]
    if len(taps) != w.rank - 2:
        raise NodeRefusedError(f"the kernel {w.type} has an open size")
    if c.integers("kernel_shape", taps) != taps:
        raise NodeRefusedError(f"kernel_shape is {c.integers('kernel_shape')}, the kernel {w.type}")
    return taps


def _window(c: Call, rank: int, taps: Ints) -> Window:
    if len(taps) != rank:
        raise NodeRefusedError(f"kernel_shape has {len(taps)} numbers, not {rank}")
    return Window(taps, _numbers(c, "strides", rank, 1), _numbers(c, "dilations", rank, 1))


def _numbers(c: Call, name: str, rank: int, default: int) -> Ints:
    found = c.integers(name, (default,) * rank)
    if len(found) != rank:
        raise NodeRefusedError(f"{name} has {len(found)} numbers, not {rank}")
    return found


def _given_pads(c: Call, rank: int) -> Pads:
    found = c.integers("pads", (0,) * (2 * rank))
    if len(found) != 2 * rank:
        raise NodeRefusedError(f"pads has {len(found)} numbers, not {2 * rank}")
    return list(zip(found[:rank], found[rank:], strict=True))


def _halves(total: int, upper: bool) -> tuple[int, int]:
    """The larger part stands after where `upper`."""
    less = total // 2
    return (less, total - less) if upper else (total - less, less)


def _how(c: Call) -> str:
    how = c.word("auto_pad", "NOTSET")
    if how not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise NodeRefusedError(f"auto_pad is {how!r}")
    return how


def _pads(c: Call, window: Window, sizes: tuple[Dim, ...]) -> list[Edge]:
    """What stands before and after, as `pads` or `auto_pad` says."""
    how, given = _how(c), _given_pads(c, len(sizes))
    if how == "NOTSET":
        return list(given)
    if how == "VALID":
        return [(0, 0)] * len(sizes)
    pools.need_steps(window.taps, window.strides, window.dilations)
    return [
        same_edges(size, width, stride, how == "SAME_UPPER")
        for size, width, stride in zip(sizes, window.widths, window.strides, strict=True)
    ]


def _transposed_pads(c: Call, window: Window, sizes: tuple[Dim, ...], more: Ints) -> Pads:
    """What is cut off before and after: as given, or so that the result has a size that is given."""
    how, given = _how(c), _given_pads(c, len(sizes))
    wanted = c.integers("output_shape", ())
    if not wanted and how in ("NOTSET", "VALID"):
        return given if how == "NOTSET" else [(0, 0)] * len(sizes)
    if wanted and len(wanted) != len(sizes):
        raise NodeRefusedError(f"output_shape has {len(wanted)} numbers, not {len(sizes)}")
    found = []
    for i, (size, width, stride) in enumerate(zip(sizes, window.widths, window.strides, strict=True)):
        total: Dim = width + more[i] - stride  # the result is `stride` times as long
        if wanted:
            whole = dims.add(dims.mul(dims.add(size, -1), stride), more[i] + width)
            total = minus(whole, wanted[i])
        if not isinstance(total, int):
            raise NodeRefusedError(f"output_shape is {wanted[i]} over the open size {size}")
        found.append(_halves(total, how == "SAME_UPPER"))
    return found


def _each(numbers: Ints) -> int | tuple[int, ...]:
    """As a builder of so many axes takes them."""
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def _of_axes(pads: Pads) -> Any:
    return pads[0] if len(pads) == 1 else tuple(pads)
