"""Terms of a constant's gradient that are summed over all steps at once, after the loop."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from lstm_ir.ir import dims
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.opdef import Trait
from lstm_ir.ops.primitive.broadcast import BROADCAST
from lstm_ir.ops.primitive.gather import GATHER
from lstm_ir.ops.primitive.linear import DOT_GENERAL, free_axes
from lstm_ir.ops.primitive.shape import reshape, stack, transpose
from lstm_ir.ops.scan.tuned import JOINED_TERMS


@dataclass(frozen=True)
class SumTerm:
    """`ct` arrived at `node`, which reads the parameter `source` as operand `at`.

    `other` is the other operand of a product or a convolution, what rows are picked by, or None for a broadcast.
    Several terms that are alike are one: then `ct` and `other` have an axis of their `places` in front.
    """

    node: Node
    at: int
    source: Value
    ct: Value
    other: Value | None
    places: int = 1


def joined(terms: Sequence[SumTerm], consts: Collection[Value]) -> list[SumTerm]:
    """Products of one constant with many rows of a step are one product: the steps of a solver, written out."""
    alike: dict[object, list[SumTerm]] = {}
    for t in terms:
        key: object = t
        if t.node.op is DOT_GENERAL and t.other is not None and t.source in consts:
            key = (t.at, t.source, t.ct.type, t.other.type, *sorted(t.node.attrs.items()))
        alike.setdefault(key, []).append(t)
    out: list[SumTerm] = []
    for group in alike.values():
        if len(group) < JOINED_TERMS:
            out += group
            continue
        first, others = group[0], [t.other for t in group if t.other is not None]
        out.append(replace(first, ct=stack([t.ct for t in group]), other=stack(others), places=len(group)))
    return out


def of_slices(term: SumTerm, rows: Value, const: Value, ct: Value) -> Value:
    """The gradient of all slices [T, ...] that were multiplied by `const`, from ct [T, ...]."""
    if Trait.batched in term.node.op.traits:
        return reshape(_of_batch(term, rows, const, ct), rows.shape)
    attrs = term.node.attrs
    own, side = ("lhs", "rhs") if term.at == 0 else ("rhs", "lhs")
    batch, contract = (attrs[f"{own}_{k}_dimensions"] for k in ("batching", "contracting"))
    if not batch and rows.rank == 3 and ct.rank == 3 and term.at == 0 and contract == (1,):
        flat = dims.mul(rows.shape[0], rows.shape[1])
        wide = reshape(rows, (flat, rows.shape[2]))
        node = make(DOT_GENERAL, wide, const, **attrs)
        return reshape(_gradient(node, reshape(ct, (flat, ct.shape[2])), 0), rows.shape)
    node, order = _shifted(term, rows, const, own, side, ct.rank)
    return _gradient(node, transpose(ct, order), term.at)


def summed(term: SumTerm, const: Value, ct: Value, other: Value | None) -> Value:
    """The constant's gradient from ct and other stacked over the steps, [T, ...] each."""
    if other is None:
        at = (d + 1 for d in term.node.attrs["broadcast_dimensions"])
        wide = make(BROADCAST, const, shape=ct.shape, broadcast_dimensions=tuple(at))
        return _gradient(wide, ct, 0)
    if term.node.op is GATHER:
        axis = term.node.attrs["axis"]
        wide = make(GATHER, const, other, axis=axis)
        return _gradient(wide, transpose(ct, (*range(1, axis + 1), 0, *range(axis + 1, ct.rank))), 0)
    if Trait.batched in term.node.op.traits:
        return _of_batch(term, other, const, ct)
    if term.places > 1:
        ct, other = (reshape(v, (dims.mul(v.shape[0], v.shape[1]), *v.shape[2:])) for v in (ct, other))
    attrs = term.node.attrs
    side, own = ("rhs", "lhs") if term.at == 1 else ("lhs", "rhs")  # const's side, other's side
    batch, contract = (attrs[f"{own}_{k}_dimensions"] for k in ("batching", "contracting"))
    if not batch and other.rank == 3 and ct.rank == 3 and term.at == 1 and contract == (1,):
        flat = dims.mul(other.shape[0], other.shape[1])
        node = make(DOT_GENERAL, reshape(other, (flat, other.shape[2])), const, **attrs)
        return _gradient(node, reshape(ct, (flat, ct.shape[2])), 1)
    node, order = _shifted(term, other, const, own, side, ct.rank)
    return _gradient(node, transpose(ct, order), term.at)


def _of_batch(term: SumTerm, rows: Value, const: Value, ct: Value) -> Value:
    """The gradient where the rows of all steps are one batch."""
    rows, ct = (reshape(v, (dims.mul(v.shape[0], v.shape[1]), *v.shape[2:])) for v in (rows, ct))
    return _gradient(make(term.node.op, rows, const, **term.node.attrs), ct, term.at)


def _shifted(term: SumTerm, rows: Value, const: Value, own: str, side: str, rank: int) -> tuple[Node, tuple[int, ...]]:
    """The product over rows [T, ...], T a free axis; and how [T, ...] of its cotangent is
    ordered."""
    attrs = dict(term.node.attrs)
    k = len(attrs[f"{own}_batching_dimensions"])
    if own == "rhs":  # const's free axes come before those of the rows
        its = (attrs[f"{side}_{kind}_dimensions"] for kind in ("batching", "contracting"))
        k += len(free_axes(const.rank, *its))
    for kind in ("batching", "contracting"):
        name = f"{own}_{kind}_dimensions"
        attrs[name] = tuple(d + 1 for d in attrs[name])
    pair = (rows, const) if own == "lhs" else (const, rows)
    return make(DOT_GENERAL, *pair, **attrs), (*range(1, k + 1), 0, *range(k + 1, rank))


def _gradient(node: Node, ct: Value, at: int) -> Value:
    assert node.op.vjp is not None
    found = node.op.vjp(node, (ct,))[at]
    assert isinstance(found, Value)
    return found
