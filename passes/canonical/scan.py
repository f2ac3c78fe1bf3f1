"""Canonical form of `scan`: what nothing reads is not computed, what is the same comes in once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lstm_ir.ir.clone import clone
from lstm_ir.ir.graph import Graph, Value, substitute
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.literals import splat
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.reach import parameters_of
from lstm_ir.ir.types import Shape
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.passes.base import Notes
from lstm_ir.passes.loops import rebuilt


def simplify_loops(graph: Graph, name: str, notes: Notes) -> Graph:
    """Every scan without what nothing reads, repeated operands, and carries that never change."""
    outputs = set(graph.outputs)
    new: dict[Value, Value] = {}
    for n in graph.nodes:
        loop = Loop.of(n)
        if loop is None:
            continue
        with at(n.loc.through(name)):
            found = _Slim(loop, lambda v: v in outputs or v in graph.users).simplified()
        if found is not None:
            notes.fire("scan without what nothing reads", n.loc)
            new |= {v: w for v, w in found.items() if v in outputs or v in graph.users}
    return substitute(graph, new)


class _Slim:
    """One loop, and what of it is read."""

    def __init__(self, loop: Loop, used: Callable[[Value], bool]) -> None:
        self.loop, self.reach = loop, parameters_of(loop.body)
        self.fixed = [p is v for p, v in zip(loop.carry_params, loop.next, strict=True)]
        self.last = self._last()
        given = [k for k, y in enumerate(loop.ys) if used(y)]
        # With `count`, rows that do not exist are zero.
        outside = dict(zip(loop.const_params, loop.consts, strict=True))
        rows = {k: v if _number(v) else outside[v] for k, v in enumerate(loop.rows) if _number(v) or v in outside}
        self.alike = {k: rows[k] for k in given if loop.count is None and k in rows}
        self.ys = [k for k in given if k not in self.alike]
        self.carries = self._live([k for k, v in enumerate(loop.finals) if used(v) and k not in self.last])
        live = [*(loop.next[k] for k in self.carries), *(loop.rows[k] for k in self.ys)]
        self.read = frozenset[Value]().union(*(self.reach[v] for v in live))

    def _last(self) -> dict[int, Value]:
        """Carries that end as a value made of constants, where a step runs: it is known before the loop."""
        loop = self.loop
        if loop.count is not None or not isinstance(loop.length, int) or loop.length == 0:
            return {}
        outside = dict(zip(loop.const_params, loop.consts, strict=True))
        made = {k: v for k, v in enumerate(loop.next) if self.reach[v] <= set(outside)}
        return dict(zip(made, clone(list(made.values()), outside), strict=True))

    def _live(self, used: Iterable[int]) -> list[int]:
        """Carries that are read after the loop, or that what is read depends on."""
        loop = self.loop
        live = {k for k in used if not self.fixed[k]}
        todo = [*(loop.next[k] for k in live), *(loop.rows[k] for k in self.ys)]
        index = {p: k for k, p in enumerate(loop.carry_params)}
        while todo:
            for p in self.reach[todo.pop()]:
                k = index.get(p)
                if k is not None and k not in live and not self.fixed[k]:
                    live.add(k)
                    todo.append(loop.next[k])
        return sorted(live)

    def simplified(self) -> dict[Value, Value] | None:
        """Old results -> new ones; None if there is nothing to gain."""
        loop, env = self.loop, dict[Value, Value]()
        consts = self._consts(env)
        xs = self._xs(env)
        carries = [(loop.init[k], loop.carry_params[k], loop.next[k]) for k in self.carries]
        ys, place = self._distinct()
        kept = (len(consts), len(carries), len(xs), len(ys))
        if kept == (len(loop.consts), len(loop.init), len(loop.xs), len(loop.ys)):
            return None  # a carry that is read inside stays, with its last value
        out = {v: i for v, i, same in zip(loop.finals, loop.init, self.fixed, strict=True) if same}
        out |= {loop.finals[k]: v for k, v in self.last.items()}
        out |= {loop.ys[k]: _stacked(v, loop.ys[k].shape) for k, v in self.alike.items()}
        if carries or ys:
            node = rebuilt(loop.body.name, loop, consts, carries, xs, ys, env)
            out |= {loop.finals[k]: node.values[i] for i, k in enumerate(self.carries) if k not in self.last}
            out |= {loop.ys[k]: node.values[len(carries) + i] for k, i in place.items()}
        return out

    def _consts(self, env: dict[Value, Value]) -> list[tuple[Value, Value]]:
        loop = self.loop
        pairs = list(zip(loop.consts, loop.const_params, strict=True))
        triples = zip(loop.init, loop.carry_params, self.fixed, strict=True)
        pairs += [(v, p) for v, p, same in triples if same]
        first: dict[Value, Value] = {}
        for outside, p in pairs:
            if p not in self.read:
                continue
            if _number(outside):
                env[p] = _repeated(outside, p.shape)
            elif first.setdefault(outside, p) is not p:
                env[p] = first[outside]
        return list(first.items())

    def _xs(self, env: dict[Value, Value]) -> list[tuple[Value, Value, bool]]:
        loop = self.loop
        first: dict[tuple[Value, bool], Value] = {}
        for outside, p, reverse in zip(loop.xs, loop.x_params, loop.x_reverse, strict=True):
            if p not in self.read:
                continue
            if _number(outside):
                env[p] = _repeated(outside, p.shape)
            elif first.setdefault((outside, reverse), p) is not p:
                env[p] = first[outside, reverse]
        return [(v, p, r) for (v, r), p in first.items()]

    def _distinct(self) -> tuple[list[tuple[Value, bool]], dict[int, int]]:
        """Distinct stacked results, and where each old one is among them."""
        loop = self.loop
        order: dict[tuple[Value, bool], int] = {}
        place = {k: order.setdefault((loop.rows[k], loop.y_reverse[k]), len(order)) for k in self.ys}
        return list(order), place


def _repeated(number: Value, shape: Shape) -> Value:
    """A number (see `_number`) in another shape."""
    scalar = constant(splat(number), number.dtype)
    return broadcast_in_dim(scalar, shape, ()) if shape else scalar


def _stacked(row: Value, shape: Shape) -> Value:
    """The same row for every step."""
    return _repeated(row, shape) if _number(row) else broadcast_in_dim(row, shape, tuple(range(1, len(shape))))


def _number(v: Value) -> bool:
    """Whether `v` is one number, repeated or not: better inside than carried in."""
    return splat(v) is not None
