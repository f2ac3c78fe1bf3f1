"""Pad: what stands around a tensor."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value


@taken("Pad", 2, 11, 13, 18, 19, 21, 23, 24, 25, moves=(), refused="pads that only a call knows, apart from sizes")
def pad(c: Call) -> Value:
    """Before and after each axis: a number, the mirrored inside, the edge, or the other end."""
    x, mode = c.value(0), c.word("mode", "constant")
    given = c.dims(1, "pads") if c.opset >= 11 else list(c.integers("pads"))
    axes = list(range(x.rank))
    if c.has(3):
        axes = [c.axis_of(a, x.rank) for a in c.numbers(3, "axes")]
    if len(given) != 2 * len(axes):
        raise NodeRefusedError(f"{len(given)} pads for {len(axes)} axes")
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
    return li.pad(x, low, high, mode=mode)
