"""Windows over time: padding, slices, convolutions and pools, and the rows that they keep.

A window that ends at its row, so that all padding stands before the first frame, needs the last rows
of the call before instead of the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ops.core.pool import lowest
from lstm_ir.ops.core.windows import WindowAxis, axes_of
from lstm_ir.streaming.facts import Fact, Fixed, Latest, Timed, Unknown
from lstm_ir.streaming.findings import WindowContext
from lstm_ir.streaming.rule import CutError, RuleNode, rule
from lstm_ir.streaming.start import advice, start_of


@dataclass(frozen=True)
class Sliding:
    """A window of so many places, every `stride`th, over rows with padding before and after."""

    window: int
    stride: int
    low: int
    high: int

    def over(self, f: Timed) -> Timed:
        """The fact of what such windows give."""
        return replace(
            f,
            rate=f.rate * self.stride,
            more=(f.more + self.low + self.high - self.window) // self.stride + 1,
            look=(f.ahead + self.window - 1 - self.low) // self.stride,
        )

    def __str__(self) -> str:
        room = self.window - 1
        wanted = f"{room}" if self.stride == 1 else f"{max(0, room + 1 - self.stride)} to {room}"
        return f"a window of {self.window} with padding {self.low} before and {self.high} after, not {wanted} before"


def _slid(s: RuleNode, f: Timed, w: Sliding, value: Any, how: str) -> Timed:
    """What windows give of a plain axis, and the rows that they keep; `how` are words for them."""
    if not f.plain:
        raise CutError("its window runs over the steps and another axis at once")
    return _kept(s, f, w.over(f), w.low, value, how)


def _kept(s: RuleNode, f: Timed, made: Timed, rows: int, value: Any, how: str) -> Timed:
    """What is made of f, which needs so many rows of the call before."""
    s.every(made.rate)
    if made.look > 0:
        return s.causal(replace(made, more=max(made.more, 0)), how)
    if made.more < 0:
        s.refuse(f"gives less rows than it takes: {how}")
        made = replace(made, more=0)
    if rows > 0:
        _keep(s, f, rows, value)
    return made


def _keep(s: RuleNode, f: Timed, rows: int, value: Any) -> None:
    if f.more < 0:
        raise CutError("the rows that the next call needs are cut off before")
    s.keep(WindowContext(f.axis, rows, f.more, value))


def _along_time(s: RuleNode, taps: Sequence[Any]) -> tuple[Timed, WindowAxis | None]:
    """What is known of the operand of windows over the axes after the first two, and the window along time.

    None where time is the axis of rows, which no window joins.
    """
    f = s.facts[0]
    if not isinstance(f, Timed):
        raise CutError("its kernel changes over time")
    if f.axis == 1:
        raise CutError("sums over all steps: time is the axis of channels")
    assert s.node.inputs[0].rank == len(taps) + 2
    return f, None if f.axis == 0 else axes_of(tuple(taps), s.node.attrs)[f.axis - 2]


def _spatial(s: RuleNode, taps: Sequence[Any], value: Any) -> Sequence[Fact]:
    """Windows over the axes after the first two, one of which may be time."""
    f, a = _along_time(s, taps)
    if a is None:
        return [f]
    w = Sliding(a.window, a.stride, a.low, a.high)
    return [_slid(s, f, w, value, str(w))]


@rule("convolution")
def convolution(s: RuleNode) -> Sequence[Fact]:
    """Zeros stand before the first frame."""
    s.needs_fixed(["w"])
    return _spatial(s, s.node.inputs[1].shape[2:], 0)


@rule("convolution_transpose")
def convolution_transpose(s: RuleNode) -> Sequence[Fact]:
    """Each step is spread over the rows after it; what it spreads into the next call is made again there."""
    s.needs_fixed(["w"])
    f, a = _along_time(s, s.node.inputs[1].shape[2:])
    if a is None:
        return [f]
    if not f.plain:
        raise CutError("spreads the steps and another axis at once")
    made = replace(
        f,
        rate=Fraction(f.rate) / a.stride,
        more=(f.more - 1) * a.stride + a.window - a.low - a.high,
        look=f.ahead * a.stride + a.low,
    )
    how = f"spreads a step over {a.window} rows, every {a.stride}, and cuts {a.low} off before and {a.high} after"
    return [_kept(s, f, made, spread_before(a), 0, how)]


def spread_before(a: WindowAxis) -> int:
    """Of a transposed convolution: how many steps before the first reach into its rows."""
    return max(0, (a.window - 1 - a.low) // a.stride)


@rule("concatenate")
def concatenate(s: RuleNode) -> Sequence[Fact]:
    """Along another axis; or rows that are known before the first frame, as of a pad, and any after the last."""
    along, operands = s.node.attrs["dimension"], list(zip(s.facts, s.node.inputs, strict=True))
    over = [i for i, f in enumerate(s.facts) if isinstance(f, Timed) and f.axis == along]
    if not over:
        made = s.merged(s.timed)
        s.even([(f, made.axis) for f in s.facts])
        return [made]
    f, at = s.facts[over[0]], over[0]
    if not isinstance(f, Timed) or len(s.timed) > 1:
        raise CutError("joins values one after another in time")
    if any(isinstance(other, Latest) for other in s.facts):
        raise CutError("joins steps and what only the last step gives")
    before, after = operands[:at], operands[at + 1 :]
    low, high = (dims.total(v.shape[along] for _, v in some) for some in (before, after))
    if not isinstance(low, int) or not isinstance(high, int):
        raise CutError(f"joins {low} rows before and {high} after")
    rows = [start_of(v, of) for of, v in before if not isinstance(of, Unknown)]
    for found in rows:
        if isinstance(found, str):
            raise CutError(f"what it joins before the first step {found}{advice(found)}")
    value = np.concatenate(rows, along) if rows else None
    return [_slid(s, f, Sliding(1, 1, low, high), value, f"joins {low} rows before and {high} after")]


@rule("max_pool", "avg_pool")
def pool(s: RuleNode) -> Sequence[Fact]:
    """Padding counts as what is below all elements, or as zeros."""
    a, f = s.node.attrs, s.only()
    largest = s.node.op.name == "max_pool"
    if f.axis >= 2:
        if a["ceil_mode"] and a["strides"][f.axis - 2] > 1:
            raise CutError("ceil_mode over time: its last window is not whole")
        padded = a["padding_low"][f.axis - 2] or a["padding_high"][f.axis - 2]
        if not largest and padded and not a["count_include_pad"]:
            raise CutError("its first mean is of less frames than the others")
    return _spatial(s, a["window"], lowest(s.node.types[0].dtype) if largest else 0)


@rule("pad")
def pad(s: RuleNode) -> Sequence[Fact]:
    """Rows before the first frame come from the call before; rows after the last stand for no frame."""
    f, a = s.facts[0], s.node.attrs
    if not isinstance(f, Timed) or not isinstance(s.facts[1], Fixed):
        raise CutError("its padding changes over time")
    low, high = a["edge_padding_low"][f.axis], a["edge_padding_high"][f.axis]
    if a["interior_padding"][f.axis]:
        raise CutError("puts rows between the steps")
    if not isinstance(low, int) or not isinstance(high, int):
        raise CutError(f"pads by {low} and {high} rows")
    if low == high == 0:
        return [f]
    value = start_of(s.node.inputs[1], s.facts[1])
    if isinstance(value, str):
        raise CutError(f"the value of its padding {value}")
    return [_slid(s, f, Sliding(1, 1, low, high), value, f"pads by {low} before and {high} after")]


@rule("slice")
def slice_(s: RuleNode) -> Sequence[Fact]:
    """All rows but some before or after; every so many of them; or the last one alone."""
    f, a, x = s.only(), s.node.attrs, s.node.inputs[0]
    low, high, stride = (a[n][f.axis] for n in ("start_indices", "limit_indices", "strides"))
    size = x.shape[f.axis]
    if (low, high, stride) == (0, size, 1):
        return [f]
    if not f.plain:
        raise CutError("picks of an axis that is the steps and another axis at once")
    if dims.add(high, dims.mul(low, -1)) == 1 and dims.add(low, f.more + 1) == size:
        return [Latest()]
    cut = dims.add(size, dims.mul(high, -1))
    if not isinstance(low, int) or not isinstance(cut, int):
        raise CutError(f"picks steps by their places in the call: [{low}, {high})")
    how = f"cuts rows off, {low} before and {cut} after"
    return [_slid(s, f, Sliding(1, stride, -low, -cut), None, how)]
