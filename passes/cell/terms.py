"""What a gate's pre-activation is the sum of: products of rows, biases, and anything else.

The columns of a gate may lie in a wide sum (one dot for all gates) or in a sum of their own; the
rows of a product may be joined ([x, h] times one matrix); matrices may be transposed. Reshapes that
add or drop axes of size 1 say nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.literals import splat


class NoCellError(Exception):
    """The values are not a cell; `near` if they looked like one until here."""

    def __init__(self, reason: str, value: Value | None = None, near: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.value, self.near = reason, value, near


@dataclass(frozen=True)
class Dot:
    """Columns low..high of row @ matrix; `axis` of the matrix is summed over, from `first` on."""

    row: Value
    matrix: Value
    axis: int
    first: int
    low: int
    high: int

    @property
    def width(self) -> int:
        """Columns of the row."""
        width = self.row.shape[-1]
        assert isinstance(width, int)
        return width


@dataclass(frozen=True)
class Bias:
    """Elements low..high of a vector, or a number for all columns."""

    vector: Value
    low: int
    high: int


@dataclass(frozen=True)
class Other:
    """Columns low..high of any other value."""

    value: Value
    low: int
    high: int


Term = Dot | Bias | Other


@dataclass
class Terms:
    """A walk over sums; `inner` gathers the nodes that a recurrent op would replace.

    fixed: whether a value is the same for all rows and steps; matrix: whether one may be a weight
    of the op.
    """

    fixed: Callable[[Value], bool]
    matrix: Callable[[Value], bool]
    inner: set[Node] = field(default_factory=set)

    def fresh(self) -> Terms:
        """The same walk with nothing gathered."""
        return Terms(self.fixed, self.matrix)

    def of(self, v: Value, low: int, high: int) -> list[Term]:
        """The terms that make columns low..high of v."""
        v = self.peel(v)
        n = v.node
        if self.fixed(v):
            return [_constant_term(v, low, high)]
        if n.op.name == "add":
            self.inner.add(n)
            return [*self.of(n.inputs[0], low, high), *self.of(n.inputs[1], low, high)]
        if n.op.name == "slice":
            cut = _cut(n)
            if cut is not None:
                self.inner.add(n)
                return self.of(n.inputs[0], low + cut, high + cut)
        if n.op.name == "dot_general" and self._is_product(n):
            self.inner.add(n)
            return list(self._products(n, low, high))
        return [Other(v, low, high)]

    def peel(self, v: Value) -> Value:
        """v without reshapes that only add or drop axes of size 1."""
        while v.op == "reshape" and unit_axes_only(v.node):
            if not self.fixed(v):
                self.inner.add(v.node)
            v = v.node.inputs[0]
        return v

    def _is_product(self, n: Node) -> bool:
        lhs, rhs = n.inputs
        plain = not n.attrs["lhs_batching_dimensions"] and rhs.rank == 2 and self.matrix(rhs)
        last = n.attrs["lhs_contracting_dimensions"] == (lhs.rank - 1,)
        return plain and last and rhs.type.is_static

    def _products(self, n: Node, low: int, high: int) -> list[Dot]:
        (axis,) = n.attrs["rhs_contracting_dimensions"]
        row = self.peel(n.inputs[0])
        joined = row.op == "concatenate" and row.node.attrs["dimension"] == row.rank - 1
        parts = row.node.inputs if joined else (row,)
        if joined:
            self.inner.add(row.node)
        out: list[Dot] = []
        first = 0
        for p in parts:
            out.append(Dot(self.peel(p), n.inputs[1], axis, first, low, high))
            first += out[-1].width
        return out


def unit_axes_only(n: Node) -> bool:
    """Whether a reshape keeps the last axis, and all others but those of size 1 in order."""
    old, new = n.inputs[0].shape, n.types[0].shape
    same_last = bool(old) and bool(new) and old[-1] == new[-1]
    return same_last and [d for d in old if d != 1] == [d for d in new if d != 1]


def _cut(n: Node) -> int | None:
    """Where a slice of columns alone starts."""
    lows, highs, x = n.attrs["start_indices"], n.attrs["limit_indices"], n.inputs[0]
    rest = all(lo == 0 and hi == d for lo, hi, d in zip(lows[:-1], highs[:-1], x.shape[:-1], strict=True))
    if not rest or any(s != 1 for s in n.attrs["strides"]) or not isinstance(lows[-1], int):
        return None
    return lows[-1]


def _constant_term(v: Value, low: int, high: int) -> Term:
    if splat(v) is not None or v.rank == 1:
        return Bias(v, low, high)
    if v.op == "broadcast_in_dim":
        base, places = v.node.inputs[0], v.node.attrs["broadcast_dimensions"]
        if base.rank == 0:
            return Bias(base, low, high)
        columns = places[-1] == v.rank - 1 and base.shape[-1] == v.shape[-1]
        if columns and all(d == 1 for d in base.shape[:-1]):
            return Bias(base, low, high)
    if v.rank and all(d == 1 for d in v.shape[:-1]):
        return Bias(v, low, high)
    return Other(v, low, high)
