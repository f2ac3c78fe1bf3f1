"""Packed sequences: their data stays padded, [T*B, ...], and their lengths go to the layers.

PyTorch's data has the rows of all steps that exist; here those that do not exist stand between them, and nothing may
read rows together. Layers give zeros there, as `pad_packed_sequence` does.
"""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.torch.call import Call
from lstm_ir.importers.torch.handlers.recurrent import KINDS, Kind, layer
from lstm_ir.importers.torch.table import taken
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.size import SAY_HOW_MANY, size_value


class _Sizes:
    """Lengths [B] in the range that PyTorch asks for, and the numbers of steps and rows."""

    def __init__(self, c: Call, steps: Dim) -> None:
        lengths = c.tensor("lengths")
        if lengths.rank != 1:
            raise NodeRefusedError(f"lengths are {lengths.type}, not a list")
        self.T, self.B = steps, lengths.shape[0]
        self.lengths = li.convert(li.in_range(lengths, 1, steps), DType.i32)

    def rows(self, data: Value) -> Value:
        """Data [T*B, ...] as [T, B, ...]."""
        return li.reshape(data, (self.T, self.B, *data.shape[1:]))

    def exists(self) -> Value:
        """Which steps exist, i1[T,B]."""
        at = li.iota((self.T, self.B), 0)
        return li.less(at, li.broadcast_in_dim(self.lengths, (self.T, self.B), (1,)))


@taken("lstm_ir.pack.default")
def pack(c: Call) -> list[Value]:
    """Data [T*B, ...]; the second result is PyTorch's batch_sizes [T]."""
    x = c.tensor("input")
    x = li.swapaxes(x, 0, 1) if c.flag("batch_first") else x
    s = _Sizes(c, x.shape[0])
    if x.shape[1] != s.B:
        raise NodeRefusedError(f"{s.B} lengths for {x.shape[1]} rows{_alike(c.known(1) is not None, s.B, x.shape[1])}")
    data = li.reshape(x, (dims.mul(s.T, s.B), *x.shape[2:]))
    return [data, li.sum(li.convert(s.exists(), DType.i64), 1)]


def _alike(fixed: bool, lengths: Dim, rows: Dim) -> str:
    """What to write where lengths and rows are not equally many. fixed: the module itself holds the lengths."""
    if isinstance(lengths, int) and isinstance(rows, int):
        return ""
    if fixed:
        return f": the module fixes the lengths; make them an input, or leave {rows} out of sizes"
    if isinstance(lengths, int):
        return f": name the axis of the lengths {rows} in sizes, too"
    if isinstance(rows, int):
        return f": name the axis of the rows {lengths} in sizes, too"
    return ": give both axes one name in sizes"


def _register(name: str, kind: Kind) -> None:
    def packed(c: Call) -> list[Value]:
        s = _Sizes(c, c.size("steps"))
        data = c.tensor("data")
        y, *states = layer(c, kind, s.rows(data), s.lengths, "time")
        return [li.reshape(y, (data.shape[0], *y.shape[2:])), *states]

    taken(f"lstm_ir.packed_{name}.default", rows=True)(packed)


for _name, _kind in KINDS.items():
    _register(_name, _kind)


@taken("lstm_ir.pad.default", rows=True)
def pad(c: Call) -> Value:
    """Data as [T,B,...] or [B,T,...]: `padding_value` where a step does not exist.

    Without total_length PyTorch gives as many steps as the longest row has: an example, or a call, whose longest row
    has fewer than T is refused.
    """
    total = c.size("total_length", -1)
    steps = c.size("steps")
    s = _Sizes(c, steps)
    data = s.rows(c.tensor("data"))
    value = c.real("padding_value")
    if total == -1:
        longest = li.max(s.lengths, 0)
        _check_example(c, longest, steps)
        # The minimum changes nothing, but makes the check a part of the graph.
        s.lengths = li.minimum(s.lengths, li.in_range(longest, steps, steps, "longest"))
    exists = s.exists()
    y = li.select(
        li.broadcast_in_dim(exists, data.shape, (0, 1)), data, li.full(data.shape, value, data.dtype)
    )  # fmt: skip
    if total not in (-1, steps):
        y = _resized(y, steps, total, value, s)
    return li.swapaxes(y, 0, 1) if c.flag("batch_first") else y


def _check_example(c: Call, longest: Value, steps: Dim) -> None:
    """Refuse an example in which PyTorch's result has fewer steps than the graph's."""
    found, all_steps = c.context.in_example(longest), c.context.in_example(size_value(steps, DType.i32))
    if found is not None and all_steps is not None and found < all_steps:
        raise NodeRefusedError(
            f"without total_length it gives {found} steps in the example, as the longest of lengths says, where the "
            f"rows have {all_steps}: {SAY_HOW_MANY}"
        )


def _resized(y: Value, steps: Dim, total: Dim, value: float, s: _Sizes) -> Value:
    """So many steps; as many as PyTorch needs, or more."""
    more = dims.add(total, dims.mul(steps, -1))
    if dims.at_least(more, 0) is None:
        raise NodeRefusedError(
            f"whether total_length, {total}, is above the number of steps, {steps}, depends on the call"
        )
    if not dims.at_least(more, 0):
        raise NodeRefusedError(f"total_length is {total}, below the number of steps, {steps}")
    zero = [0] * (y.rank - 1)
    return li.pad(y, [0, *zero], [more, *zero], value=value)
