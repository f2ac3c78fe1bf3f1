"""Pad: what stands around a tensor."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.onnx import sizes as s
from lstm_ir.importers.onnx.call import Call, RefusedError
from lstm_ir.importers.onnx.table import taken
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ops.primitive.window import slice_axis


@taken("Pad", 2, 11, 13, 18, 19, 21, 23, 24, 25, moves=(), refused="pads that only a call knows, apart from sizes")
def pad(c: Call) -> Value:
    """Before and after each axis: a number, the mirrored inside, the edge, or the other end."""
    x, mode = c.value(0), c.word("mode", "constant")
    given = c.dims(1, "pads") if c.opset >= 11 else list(c.integers("pads"))
    axes = list(range(x.rank))
    if c.has(3):
        axes = [c.axis_of(a, x.rank) for a in c.numbers(3, "axes")]
    if len(given) != 2 * len(axes):
        raise RefusedError(f"{len(given)} pads for {len(axes)} axes")
    low: list[Dim] = [0] * x.rank
    high: list[Dim] = [0] * x.rank
    for k, a in enumerate(axes):
        low[a], high[a] = given[k], given[k + len(axes)]
    if mode == "constant":
        fill = li.reshape(c.value(2), ()) if c.has(2) else None
        value = c.real("value", 0.0) if c.opset < 11 else 0
        return li.pad(x, low, high, value=value if fill is None else fill)
    if c.has(2):
        c.value(2)  # is there for the mode "constant"
    if mode not in _EDGES:
        raise RefusedError(f"mode is {mode!r}, not one of constant, {', '.join(_EDGES)}")
    for axis in range(x.rank):
        x = _padded(x, axis, low[axis], high[axis], mode)
    return x


_EDGES = ("reflect", "edge", "wrap")


def _padded(x: Value, axis: int, low: Dim, high: Dim, mode: str) -> Value:
    cut = [min(d, 0) if isinstance(d, int) else 0 for d in (low, high)]
    if any(cut):
        x = slice_axis(x, axis, -cut[0], dims.add(x.shape[axis], cut[1]))
    n = x.shape[axis]
    parts = [x]
    if not isinstance(low, int) or low > 0:
        bounds = {"reflect": (1, dims.add(low, 1)), "edge": (0, 1), "wrap": (s.minus(n, low), n)}
        parts.insert(0, _edge(x, axis, *bounds[mode], low, mode))
    if not isinstance(high, int) or high > 0:
        last = dims.add(n, -1)
        bounds = {"reflect": (s.minus(last, high), last), "edge": (last, n), "wrap": (0, high)}
        parts.append(_edge(x, axis, *bounds[mode], high, mode))
    return li.concat(parts, axis)


def _edge(x: Value, axis: int, start: Dim, end: Dim, count: Dim, mode: str) -> Value:
    part = slice_axis(x, axis, start, end)
    if mode == "reflect":
        return li.reverse(part, axis)
    if mode == "edge":
        return li.broadcast_to(part, part.type.resized(axis, count).shape)
    return part
