"""Single integers as a number beside one value that a call knows: what `t + 1` and `T - 1 - t` are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from lstm_ir.importers.sizes import minus
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value


@dataclass(frozen=True)
class Counted:
    """`times` times the value `of`, plus `more`; `of` is None where the integer is a size."""

    of: Value | None
    times: int
    more: Dim


def counted(v: Value) -> Counted:
    """The single integer v; it is its own `of` where nothing is known of it."""
    found = _walk(v, 0, {})
    return Counted(v, 1, 0) if found is None else found


_DEPTH = 64  # nodes that are looked through
_SAME = ("convert", "reshape", "broadcast_in_dim", "in_range")


def _walk(v: Value, depth: int, seen: dict[Value, Counted | None]) -> Counted | None:
    """`seen` holds what was looked at: of a sum of a value with itself, sixty deep, there are 2^60 ways down."""
    if v not in seen:
        seen[v] = _looked_at(v, depth, seen)
    return seen[v]


def _looked_at(v: Value, depth: int, seen: dict[Value, Counted | None]) -> Counted | None:
    if depth > _DEPTH or not v.dtype.is_int or not _single(v):
        return None
    node = v.node
    if v.op == "constant":
        return Counted(None, 0, int(node.attrs["value"].array.reshape(-1)[0]))
    if v.op == "dim":
        return Counted(None, 0, node.attrs["size"])
    below = [_walk(u, depth + 1, seen) or Counted(u, 1, 0) for u in node.inputs if u.dtype.is_int]
    if v.op in _SAME or (v.op == "concatenate" and len(below) == 1):
        if not below:  # of a float, which is not followed
            return Counted(v, 1, 0)
        return below[0] if _single(node.inputs[0]) else None
    if v.op == "negate":
        return Counted(below[0].of, -below[0].times, dims.mul(below[0].more, -1))
    if v.op in ("add", "subtract"):
        a, b = below
        if v.op == "subtract":
            b = Counted(b.of, -b.times, dims.mul(b.more, -1))
        return _sum(a, b)
    return Counted(v, 1, 0)


def _sum(a: Counted, b: Counted) -> Counted | None:
    more = dims.add(a.more, b.more)
    if a.of is None or b.of is None:
        return replace(b if a.of is None else a, more=more)
    return Counted(a.of, a.times + b.times, more) if a.of is b.of else None


def index(v: Value, size: Dim) -> Value:
    """What counts in the index v into an axis of `size`: p, where v is p + size below 0, and else p.

    It is the index itself where it lies inside the axis. Other numbers may be chosen by other conditions.
    """
    while True:
        while v.op in _SAME and _single(v) and v.node.inputs[0].dtype.is_int and _single(v.node.inputs[0]):
            v = v.node.inputs[0]
        plain = _from_start(v, size)
        if plain is None:
            return v
        v = plain


def _from_start(v: Value, size: Dim) -> Value | None:
    if v.op != "select":
        return None
    pred, moved, plain = v.node.inputs
    if pred.op != "compare" or pred.node.attrs["direction"] != "LT" or moved.op != "add":
        return None
    (left, zero), (first, more) = pred.node.inputs, moved.node.inputs
    if left is not plain or first is not plain:
        return None
    return plain if _is(zero, 0) and _is(more, size) else None


def _is(v: Value, size: Dim) -> bool:
    found = counted(v)
    return found.of is None and found.more == size


def _single(v: Value) -> bool:
    return all(isinstance(d, int) for d in v.shape) and prod(d for d in v.shape if isinstance(d, int)) == 1


def pieces(v: Value) -> list[Value] | None:
    """The single elements that a list of integers [n] was put together of; None where it was not."""
    if v.rank != 1:
        return None
    if _single(v):
        return [v]
    if v.op != "concatenate":
        return None
    found: list[Value] = []
    for u in v.node.inputs:
        inner = pieces(u)
        if inner is None:
            return None
        found += inner
    return found


def distance(a: Counted, b: Counted) -> Dim | None:
    """b - a where it is a size; None where it depends on what a call knows."""
    if (a.of, a.times) == (b.of, b.times) or (a.of is None and b.of is None):
        return minus(b.more, a.more)
    return None
