"""Stacked results of one loop that are read as one tensor alone: both directions of a layer, side by side.

The kernel writes each of them where it belongs, and nothing copies them behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lstm_ir.backends.kernels.text.text import stored_dtype
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.types import TensorType


@dataclass(frozen=True)
class JoinedRows:
    """A concatenation of stacked results."""

    node: Node
    starts: Mapping[int, int]  # stacked result -> where it begins along the axis

    @property
    def axis(self) -> int:
        """The axis along which they lie, counted from the last one."""
        return int(self.node.attrs["dimension"]) - self.node.types[0].rank

    @property
    def type(self) -> TensorType:
        """Of all of them, as the kernel keeps it."""
        t = self.node.types[0]
        return t.with_dtype(stored_dtype(t.dtype))

    @property
    def first(self) -> int:
        """The stacked result in whose place the tensor stands among the kernel's results."""
        return min(self.starts)


def joined_rows(n: Node, within: Graph | None) -> list[JoinedRows]:
    """Of the loop `n`, whatever its plan is: variants of one loop give the same results."""
    loop = Loop(n)
    stacked = {v: k for k, v in enumerate(n.values[len(loop.init) :])}
    if within is None:
        return []
    found = dict.fromkeys(u for v in stacked for u in within.users.get(v, ()) if u.op.name == "concatenate")
    return [j for u in found if (j := _joined(u, stacked, within)) is not None]


def _joined(u: Node, stacked: Mapping[Value, int], within: Graph) -> JoinedRows | None:
    """None where something else is read of a part, or is a part; where steps follow each other along the axis."""
    alone = all(v in stacked and within.users[v] == (u,) and v not in within.outputs for v in u.inputs)
    axis = int(u.attrs["dimension"])
    widths = [v.shape[axis] for v in u.inputs]
    if not alone or not axis or len(set(u.inputs)) < len(u.inputs) or 0 in u.types[0].shape:
        return None
    if not all(isinstance(w, int) for w in widths):
        return None
    starts, begin = {}, 0
    for v, w in zip(u.inputs, widths, strict=True):
        starts[stacked[v]], begin = begin, begin + int(w)
    return JoinedRows(u, starts)


def result_types(n: Node, joined: Sequence[JoinedRows]) -> list[TensorType]:
    """What the loop's kernel gives: last carries, stacked rows, those of a tensor in the place of the first one."""
    first = len(Loop(n).init)
    whole = {first + j.first: j.type for j in joined}
    parts = {first + k for j in joined for k in j.starts}
    kept = [(i, t.with_dtype(stored_dtype(t.dtype))) for i, t in enumerate(n.types)]
    return [whole.get(i, t) for i, t in kept if i not in parts or i in whole]
