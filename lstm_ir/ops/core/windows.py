"""Windows over the last axes of a tensor, one or two: what convolutions and pools have in common.

Tap k of step t sees place t stride + k dilation of the axis with its padding. Split by phases, places
that are a stride apart are neighbours: place p is in phase p mod stride, and there at p // stride.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from lstm_ir.ir import dims, options
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.opdef import Attr, need, need_at_least
from lstm_ir.ir.types import Shape
from lstm_ir.ops.primitive.stencil import Taps

Ints = tuple[int, ...]
ATTRS = {"strides": Attr("ints"), "padding_low": Attr("ints"), "padding_high": Attr("ints")}
DILATIONS = {"dilations": Attr("ints")}


@dataclass(frozen=True)
class WindowAxis:
    """One axis: a negative padding cuts off."""

    taps: int
    stride: int = 1
    low: int = 0
    high: int = 0
    dilation: int = 1

    @property
    def window(self) -> int:
        """Places from the first tap to the last."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def reach(self) -> int:
        """Places of a phase after the first that a step sees."""
        return (self.window - 1) // self.stride

    def steps(self, size: Dim) -> Dim:
        """Windows that fit."""
        room = dims.add(size, self.low + self.high - self.window)
        return dims.add(dims.floordiv(room, self.stride), 1)

    def seen(self, k: int) -> tuple[int, int]:
        """(shift, phase) of tap k."""
        return divmod(k * self.dilation, self.stride)


Axes = tuple[WindowAxis, ...]


def axes_of(taps: Shape, attrs: Mapping[str, Any]) -> Axes:
    """One per axis."""
    given = (attrs["strides"], attrs["padding_low"], attrs["padding_high"], attrs.get("dilations", (1,) * len(taps)))
    return tuple(WindowAxis(*numbers) for numbers in zip(taps, *given, strict=True))  # type: ignore[arg-type]


def need_axes(what: str, taps: Shape, attrs: Mapping[str, Any]) -> Axes:
    """Inside a type rule: the axes, if the numbers make sense; `what` has the taps."""
    rank = len(taps)
    need(rank in (1, 2), f"takes windows over 1 or 2 axes, got {rank}")
    need(all(isinstance(k, int) and k >= 1 for k in taps), f"{what} is {_listed(taps)}, not an int of 1 or more each")
    for name in ("strides", "padding_low", "padding_high", "dilations"):
        given = attrs.get(name, taps)
        need(len(given) == rank, f"{len(given)} {name.replace('_', ' ')} for {rank} axes")
    least = (*attrs["strides"], *attrs.get("dilations", ()))
    need(min(least) >= 1, "strides and dilations are 1 or more")
    return axes_of(taps, attrs)


def _listed(taps: Shape) -> str:
    return " x ".join(map(str, taps))


def need_steps(axes: Axes, sizes: Shape) -> Shape:
    """Inside a type rule: how many windows fit each axis, at least one."""
    for a, size in zip(axes, sizes, strict=True):
        room = dims.add(size, a.low + a.high - a.window)
        need_at_least(room, 0, f"a window of {a.window} does not fit {size} with paddings {a.low} and {a.high}")
    return steps_of(axes, sizes)


def steps_of(axes: Axes, sizes: Shape) -> Shape:
    """Windows along each axis."""
    return tuple(a.steps(n) for a, n in zip(axes, sizes, strict=True))


# -- as planes: two axes always, phase by phase


def as_planes(axes: Axes) -> Axes:
    """Two axes: a row before a single one."""
    return axes if len(axes) == 2 else (WindowAxis(1), *axes)


def plane_sizes(sizes: Shape) -> Shape:
    """Likewise of sizes."""
    return sizes if len(sizes) == 2 else (1, *sizes)


def taps_of(axes: Axes) -> Taps:
    """Where each tap reads, the last axis fastest."""
    both = as_planes(axes)
    places = list(product(*([k * a.dilation for k in range(a.taps)] for a in both)))
    rows, columns = zip(*places, strict=True)
    strides, low, high = ((getattr(both[0], n), getattr(both[1], n)) for n in ("stride", "low", "high"))
    return Taps(rows, columns, strides, low=low, high=high)


# -- arguments of builders


Pair = int | Sequence[int]
Padding = int | Sequence[int | Sequence[int]]


def each(op: str, option: str, value: Pair, rank: int) -> Ints:
    """One number per axis: an int is that of all."""
    if options.is_int(value):
        return (options.integer(op, option, value),) * rank
    if not isinstance(value, (list, tuple)) or len(value) != rank:
        raise options.refuse(op, option, value, "a whole number" if rank == 1 else f"a whole number or {rank} of them")
    numbers = tuple(options.integer(op, option, n) for n in value)
    return numbers


def paddings(op: str, padding: Padding, rank: int) -> tuple[Ints, Ints]:
    """(low, high) per axis: ints are both ends of an axis; on one axis a pair is its two ends."""
    if options.is_int(padding):
        return (options.integer(op, "padding", padding),) * rank, (options.integer(op, "padding", padding),) * rank
    expected = "a number or a pair" if rank == 1 else f"a number, or one or a pair for each of {rank} axes"
    if not isinstance(padding, (list, tuple)):
        words = "; conv1d and conv2d take words" if isinstance(padding, str) else ""
        raise options.refuse(op, "padding", padding, expected + words)
    items: tuple[Any, ...] = options.several(op, "padding", padding)
    if rank == 1 and len(items) == 2 and all(map(options.is_int, items)):
        items = (items,)
    if len(items) != rank:
        raise options.refuse(op, "padding", padding, expected)
    pairs = [(p, p) if options.is_int(p) else options.pair(op, "padding", p) for p in items]
    low, high = (tuple(options.integer(op, "padding", p[end]) for p in pairs) for end in (0, 1))
    return low, high
