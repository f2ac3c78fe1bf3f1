"""Rows of another tensor, one row later or earlier: what a step of a gradient reads of the step before.

`concat([first, rows[:-1]])` needs no memory of its own where the kernel reads `rows` a row off.
"""

from __future__ import annotations

from dataclasses import dataclass

from lstm_ir.ir import dims
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.literals import splat


@dataclass(frozen=True)
class Shift:
    """Row t is rows[t-1] where `later`, else rows[t+1]; the one without such a row is `edge` [1,..]."""

    rows: Value
    edge: Value
    later: bool

    @property
    def number(self) -> float | None:
        """The number that all of `edge` is."""
        number: float | None = splat(self.edge)
        return number


def shifted(v: Value) -> Shift | None:
    """What `v` [T,..] is the shift of."""
    if v.op == "concatenate":
        return _of_parts(v.node, v)
    if v.op != "slice" or v.node.inputs[0].op != "concatenate" or not _leading(v.node):
        return None
    joined = v.node.inputs[0].node
    if joined.attrs["dimension"] != 0 or len(joined.inputs) != 2:
        return None
    low = v.node.attrs["start_indices"][0]
    a, b = joined.inputs
    if low == 0 and a.shape[0] == 1 and b.shape == v.shape:
        return Shift(b, a, True)
    if low == 1 and b.shape[0] == 1 and a.shape == v.shape:
        return Shift(a, b, False)
    return None


def _of_parts(n: Node, v: Value) -> Shift | None:
    if n.attrs["dimension"] != 0 or len(n.inputs) != 2:
        return None
    a, b = n.inputs
    for edge, part, later in ((a, b, True), (b, a, False)):
        if edge.shape[0] != 1 or part.op != "slice" or not _leading(part.node):
            continue
        rows = part.node.inputs[0]
        if rows.shape == v.shape and part.node.attrs["start_indices"][0] == (0 if later else 1):
            return Shift(rows, edge, later)
    return None


def _leading(n: Node) -> bool:
    """Whether a slice takes neighbouring rows, whole."""
    x, a = n.inputs[0], n.attrs
    whole = all(a["start_indices"][i] == 0 and a["limit_indices"][i] == x.shape[i] for i in range(1, x.rank))
    return whole and all(s == 1 for s in a["strides"])


def without_edge(v: Value) -> tuple[Shift, dims.Dim] | None:
    """A shift whose edge is zero, below reshapes that keep columns; and rows of `v` per step.

    Sums over all rows may leave the edge out.
    """
    whole = v
    while v.op == "reshape" and v.node.inputs[0].shape[-1] == v.shape[-1]:
        v = v.node.inputs[0]
    found = shifted(v) if v.rank > 1 else None
    if found is None or found.number != 0 or whole.rank < 2:
        return None
    return found, dims.product(v.shape[1:-1])
