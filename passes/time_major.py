"""`time-major`: recurrent ops run over [T,B,...]; the transposes move to the edges.

Moved after elementwise ops, joins, reductions and dots, transposes between layers meet their
inverses and cancel. They stay where they are if moving them does not leave fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lstm_ir import ops
from lstm_ir.ir.graph import Graph, Node, Value, make, transform
from lstm_ir.ir.location import at
from lstm_ir.ir.opdef import Level, Trait
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.linear import free_axes
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.canonical import shape as canonical_shape
from lstm_ir.passes.rewrite import Rules, fixed_point, rule, with_bodies

_SAVED = ("x", "y", "gates", "cells", "activated", "inner", "pre")
ROWS = frozenset((*_SAVED, *(f"d_{n}" for n in _SAVED)))
"""Operands and results with a row per step, whose axes `layout` orders."""


@register
@dataclass(frozen=True)
class TimeMajor(Pass):
    """No op with layout "batch" is left; inverse transposes cancel; loop bodies too."""

    name: ClassVar[str] = "time-major"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with time as the first axis."""
        graph = with_bodies(graph, lambda g: self.run(g, notes, target))

        def one(n: Node) -> Sequence[Value] | None:
            if n.op.level is not Level.core or n.attrs.get("layout") != "batch":
                return None
            notes.fire(f"{n.op.name} over [T,B]", n.loc)
            with at(n.loc.through(self.name)):
                return _time_major(n)

        plain = fixed_point(transform(graph, one), CANCEL, self.name, Notes())
        pushed_notes = Notes()
        pushed = fixed_point(plain, PUSH, self.name, pushed_notes)
        if _transposes(pushed) >= _transposes(plain):
            return plain
        notes.fired.extend(pushed_notes.fired)
        return pushed


def _time_major(n: Node) -> list[Value]:
    args = [
        ops.swapaxes(a, 0, 1) if spec.name in ROWS and isinstance(a, Value) else a
        for spec, a in zip(n.op.operands, n.args, strict=True)
    ]
    new = make(n.op, *args, **{**n.attrs, "layout": "time"})
    names = [name for name, _ in n.results]
    return [ops.swapaxes(v, 0, 1) if k in ROWS else v for k, v in zip(names, new.values, strict=True)]


def _transposes(graph: Graph) -> int:
    """Those that cost something: kernels write a batched product in the order that alone is read of it."""
    return sum(n.op.name == "transpose" and not _of_product(n, graph) for n in graph.nodes)


def _of_product(n: Node, graph: Graph) -> bool:
    v = n.inputs[0]
    return _batched(v) and graph.users[v] == (n,) and v not in graph.outputs and _keeps_columns(n.attrs["permutation"])


def _batched(v: Value) -> bool:
    """Whether it is a product with batches."""
    return v.op == "dot_general" and bool(v.node.attrs["lhs_batching_dimensions"])


def _keeps_columns(order: tuple[int, ...]) -> bool:
    return order[-1:] == (len(order) - 1,)


CANCEL: Rules = {"transpose": list(canonical_shape.RULES["transpose"])}
PUSH: Rules = {"transpose": list(canonical_shape.RULES["transpose"])}


def _order(v: Value) -> tuple[int, ...] | None:
    return v.node.attrs["permutation"] if v.op == "transpose" else None


def _before(v: Value, order: tuple[int, ...]) -> Value | None:
    """u with v = transpose(u, order), if it costs nothing."""
    if v.op == "transpose":
        return v.node.inputs[0] if _order(v) == order else None
    if v.op != "broadcast_in_dim":
        return None
    places = [order[d] for d in v.node.attrs["broadcast_dimensions"]]
    if places != sorted(places):
        return None
    shape = [v.shape[order.index(i)] for i in range(v.rank)]
    return broadcast_in_dim(v.node.inputs[0], tuple(shape), tuple(places))


@rule(PUSH, "*")
def _transpose_after_elementwise(n: Node) -> Value | None:
    orders = {o for v in n.inputs if (o := _order(v)) is not None}
    if Trait.elementwise not in n.op.traits or len(orders) != 1:
        return None
    order = orders.pop()
    before = [_before(v, order) for v in n.inputs]
    if any(v is None for v in before):
        return None
    return ops.transpose(make(n.op, *before, **n.attrs).values[0], order)


@rule(PUSH, "concatenate")
def _transpose_after_concatenate(n: Node) -> Value | None:
    """Parts that are no transposes may be batched products, which are written in any order of their rows."""
    found = {None if v.op != "transpose" or _batched(v.node.inputs[0]) else _order(v) for v in n.inputs}
    orders = [o for o in found if o is not None]
    if len(orders) != 1:
        return None
    (order,) = orders
    before = [_unturned(v, order) for v in n.inputs]
    if any(v is None for v in before):
        return None
    return ops.transpose(ops.concat(before, order[n.attrs["dimension"]]), order)


def _unturned(v: Value, order: tuple[int, ...]) -> Value | None:
    """u with v = transpose(u, order)."""
    if _order(v) == order:
        return v.node.inputs[0]
    return ops.transpose(v, [order.index(i) for i in range(v.rank)]) if _batched(v) and _keeps_columns(order) else None


@rule(PUSH, "reduce_sum", "reduce_max", "reduce_min")
def _transpose_after_reduce(n: Node) -> Value | None:
    order = _order(n.inputs[0])
    if order is None:
        return None
    gone = sorted(order[d] for d in n.attrs["dimensions"])
    out = make(n.op, n.inputs[0].node.inputs[0], dimensions=tuple(gone)).values[0]
    left = [o for o in order if o not in gone]
    return ops.transpose(out, [sorted(left).index(o) for o in left])


@rule(PUSH, "broadcast_in_dim")
def _transpose_after_broadcast(n: Node) -> Value | None:
    order, places = _order(n.inputs[0]), n.attrs["broadcast_dimensions"]
    if order is None:
        return None
    back = list(range(n.types[0].rank))
    for i, p in enumerate(order):
        back[places[i]] = places[p]
    shape = [n.types[0].shape[back.index(i)] for i in range(len(back))]
    return ops.transpose(broadcast_in_dim(n.inputs[0].node.inputs[0], tuple(shape), places), back)


@rule(PUSH, "dot_general")
def _transpose_after_dot(n: Node) -> Value | None:
    """Rows in another order give the products in that order."""
    lhs, rhs = n.inputs
    order = _order(lhs)
    if order is None or n.attrs["lhs_batching_dimensions"]:
        return None
    contracting = tuple(order[a] for a in n.attrs["lhs_contracting_dimensions"])
    free = [order[a] for a in free_axes(lhs.rank, (), n.attrs["lhs_contracting_dimensions"])]
    out = ops.dot_general(lhs.node.inputs[0], rhs, (contracting, n.attrs["rhs_contracting_dimensions"]))
    rank = {axis: i for i, axis in enumerate(sorted(free))}
    return ops.transpose(out, [*(rank[f] for f in free), *range(len(free), out.rank)])
