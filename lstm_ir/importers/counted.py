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
    found = _walk(v, 0)
    return Counted(v, 1, 0) if found is None else found


_DEPTH = 64  # nodes that are looked through
_SAME = ("convert", "reshape", "broadcast_in_dim", "in_range")


def _walk(v: Value, depth: int) -> Counted | None:
    if depth > _DEPTH or not v.dtype.is_int or not _single(v):
        return None
    node = v.node
    if v.op == "constant":
        return Counted(None, 0, int(node.attrs["value"].array.reshape(-1)[0]))
    if v.op == "dim":
        return Counted(None, 0, node.attrs["size"])
    below = [_walk(u, depth + 1) or Counted(u, 1, 0) for u in node.inputs if u.dtype.is_int]
    if v.op in _SAME or (v.op == "concatenate" and len(below) == 1):
        return below[0] if _single(node.inputs[0]) else None
    if v.op == "negate":
        return Counted(below[0].of, -below[0].times, dims.mul(below[0].more, -1))
    if v.op in ("add", "subtract"):
        a, b = below
        if v.op == "subtract":
            b = Counted(b.of, -b.times, dims.mul(b.more, -1))
        return _sum(a, b)
    if v.op == "select":
        return _from_start(node.inputs, depth)
    return Counted(v, 1, 0)


def _sum(a: Counted, b: Counted) -> Counted | None:
    more = dims.add(a.more, b.more)
    if a.of is None or b.of is None:
        return replace(b if a.of is None else a, more=more)
    return Counted(a.of, a.times + b.times, more) if a.of is b.of else None


def _from_start(operands: tuple[Value, ...], depth: int) -> Counted | None:
    """What an index counts that is moved by a size where it is below 0: the index, where it is not."""
    pred, moved, plain = operands
    same = pred.op == "compare" and pred.node.attrs["direction"] == "LT" and pred.node.inputs[0] is plain
    if not same or moved.op != "add" or moved.node.inputs[0] is not plain:
        return None
    return _walk(plain, depth + 1) or Counted(plain, 1, 0)


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
