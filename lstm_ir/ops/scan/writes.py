"""What a step adds to a matrix state, where that depends on what the step reads of it: a delta rule.

    read     r = q . (a S + sum over j of k_j u_j^T)                     S: the state before the step
    write    k u^T with u = w + S^T e                                    linear in reads, so in S

A read is linear in S too: S^T (a q + sum over j of (q.k_j) e_j) and what is added; so is each sum of reads times
numbers that are the same along the state's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial

from lstm_ir.ir.congruence import node_key
from lstm_ir.ir.graph import Graph, Node, Value, topological
from lstm_ir.ir.spread import Spread, product_axes
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.reduce import sum as sum_over
from lstm_ir.ops.scan.partial import (
    Axes,
    NoFormError,
    Outer,
    Partial,
    applied,
    chosen,
    narrowed,
    need_few,
    through_reshape,
)  # fmt: skip


@dataclass(frozen=True)
class Affine:
    """decay * S + the outer products; decay None: 0."""

    decay: Partial | None
    added: tuple[Outer, ...] = ()

    def __post_init__(self) -> None:
        need_few(self.added)


@dataclass(frozen=True)
class Read:
    """query . w, where w is the state before or after the step, or another such sum (`of`).

    axes: of the result, those of the state; -1: of size 1.
    """

    value: Value
    of: Affine
    query: Partial
    axes: Axes


@dataclass(frozen=True)
class Write:
    """An outer product of the body, key * (value + S^T erased), where neither part depends on the state; None: 0."""

    outer: Outer
    value: Partial | None
    erased: Partial | None


Sides = tuple[Partial | None, Partial | None]
"""value and erased of value + S^T erased."""


class Linear:
    """Values of a body that are linear in what it reads of a matrix state."""

    def __init__(self, body: Graph, state: Value, k: int, v: int, spread: Spread, depends: Container[Value]) -> None:
        self.state, self.k, self.v, self.spread = state, k, v, spread
        self._late = {w: w in depends for n in body.nodes for w in n.values}
        self._reads: dict[Value, Read] = {}
        self._known: dict[tuple[Value, Axes], Sides] = {}
        self._numbers: dict[Value, int] = {}
        self._keys: dict[object, int] = {}

    def read(self, r: Read) -> None:
        """One more read of the state."""
        self._reads[r.value] = r

    def write(self, o: Outer) -> Write:
        """The sides of what an outer product writes; NoFormError where they are none."""
        if self._is_late(o.key.value):
            raise NoFormError("a delta rule whose keys depend on the state")
        return Write(o, *self._of_partial(o.value))

    def merged(self, added: Sequence[Outer]) -> tuple[Outer, ...]:
        """Outer products of one key are one; numbers for each matrix that multiply a key multiply its value."""
        if len(added) < 2:
            return tuple(added)
        need_few(added)
        found: dict[object, Outer] = {}
        for o in map(self._bare, added):
            key = self._number(o.key.value), o.key.axes
            known = found.get(key)
            found[key] = o if known is None else Outer(known.key, applied(e.add, known.value, o.value))
        return tuple(found.values())

    # -- keys

    def _bare(self, o: Outer) -> Outer:
        """The same product whose key is no product with a number for each matrix."""
        key, value = _unmoved(o.key), o.value
        while (found := self._without_factor(key)) is not None:
            key, by, factor = found
            key, value = _unmoved(key), applied(by, value, factor)
        return Outer(key, value)

    def _without_factor(self, key: Partial) -> tuple[Partial, Callable[..., Value], Partial] | None:
        n = key.value.node
        if n.op.name == "negate":
            return Partial(n.inputs[0], key.axes), e.multiply, Partial.number(-1, key.value.dtype)
        if n.op.name not in ("multiply", "divide") or self.k not in key.axes:
            return None
        a, b = n.inputs
        pairs = [(a, b)] if n.op.name == "divide" else [(a, b), (b, a)]
        for x, factor in pairs:
            number = narrowed(factor, key.axes, self.spread)
            if self.k not in number.axes:
                return narrowed(x, key.axes, self.spread), e.multiply if n.op.name == "multiply" else e.divide, number
        return None

    def _number(self, v: Value) -> int:
        """Equal for values that are computed alike."""
        if v in self._numbers:
            return self._numbers[v]
        for n in topological([v.node]):
            for i, w in enumerate(n.values):
                if w not in self._numbers:
                    key = (
                        (w,)
                        if not n.inputs and n.op.name in ("parameter", "weight")
                        else (node_key(n, self._numbers), i)
                    )
                    self._numbers[w] = self._keys.setdefault(key, len(self._keys))
        return self._numbers[v]

    # -- values

    def _is_late(self, v: Value) -> bool:
        """Whether it depends on the state; values that were made of the body's are asked too."""
        if v in self._late:
            return self._late[v]
        for n in topological([v.node]):
            for w in n.values:
                if w not in self._late:
                    self._late[w] = any(self._late[x] for x in n.inputs)
        return self._late[v]

    def _of_partial(self, p: Partial) -> Sides:
        return self._of(p.value, p.axes)

    def _of(self, v: Value, axes: Axes) -> Sides:
        if (v, axes) not in self._known:
            self._known[v, axes] = self._sides(v, axes)
        return self._known[v, axes]

    def _sides(self, v: Value, axes: Axes) -> Sides:
        n = v.node
        if not self._is_late(v):
            return narrowed(v, axes, self.spread), None
        if v in self._reads:
            return self._of_read(self._reads[v], v, axes)
        name = n.op.name
        if name in ("add", "subtract"):
            a, b = (self._of(x, axes) for x in n.inputs)
            return _sum(a, b if name == "add" else _both(b, _negated))
        if name == "negate":
            return _both(self._of(n.inputs[0], axes), _negated)
        if name in ("multiply", "divide"):
            x, factor = n.inputs if name == "divide" or self._is_late(n.inputs[0]) else reversed(n.inputs)
            by = self._same_for_columns(factor, axes)
            return _both(self._of(x, axes), lambda p: applied(e.multiply if name == "multiply" else e.divide, p, by))
        if name == "dot_general" and all(n.inputs[0].shape[a] == 1 for a in n.attrs["lhs_contracting_dimensions"]):
            return self._product(n, axes)
        if name == "select" and not self._is_late(n.inputs[0]):
            return self._chosen(n.inputs, axes)
        if name == "broadcast_in_dim":
            return self._of(n.inputs[0], tuple(axes[p] for p in n.attrs["broadcast_dimensions"]))
        if name == "transpose":
            permutation = n.attrs["permutation"]
            return self._of(n.inputs[0], tuple(axes[permutation.index(a)] for a in range(v.rank)))
        if name == "reshape" and (before := through_reshape(v, axes)) is not None:
            return self._of(n.inputs[0], before)
        raise NoFormError("a delta rule that is not linear in what it reads")

    def _product(self, n: Node, axes: Axes) -> Sides:
        """Of a product without a sum."""
        (a, b), maps = n.inputs, product_axes(n)
        x, y = (
            (v, tuple(axes[at[i]] if i in at else -1 for i in range(v.rank)))
            for v, at in zip((a, b), maps, strict=True)
        )
        late, other = (x, y) if self._is_late(a) else (y, x)
        by = self._same_for_columns(*other)
        return _both(self._of(*late), lambda p: applied(e.multiply, p, by))

    def _same_for_columns(self, v: Value, axes: Axes) -> Partial:
        if self._is_late(v):
            raise NoFormError("a delta rule that is not linear in what it reads")
        found = narrowed(v, axes, self.spread)
        if {self.k, self.v} & set(found.axes):
            raise NoFormError("a delta rule with numbers for each column")
        return found

    def _chosen(self, operands: Sequence[Value], axes: Axes) -> Sides:
        cond = self._same_for_columns(operands[0], axes)
        other = applied(e.logical_not, cond)
        yes, no = (self._of(x, axes) for x in operands[1:])
        return _sum(_both(yes, lambda p: _masked(p, cond)), _both(no, lambda p: _masked(p, other)))

    def _of_read(self, r: Read, v: Value, axes: Axes) -> Sides:
        if any(a != b for a, b, d in zip(axes, r.axes, v.shape, strict=True) if d != 1):
            raise NoFormError("a delta rule that writes what another place of the state holds")
        found: Sides = None, None
        if r.of.decay is not None:
            found = None, applied(e.multiply, r.query, r.of.decay)
        for o in r.of.added:
            pair = over_keys(r.query, o.key, self.k, self.state)
            found = _sum(found, _both(self._of_partial(o.value), partial(applied, e.multiply, pair)))
        if found[1] is not None and self.v in found[1].axes:
            raise NoFormError("a delta rule with a decay for each row or column")
        return found


def _unmoved(p: Partial) -> Partial:
    """The same value before reshapes that add axes of size 1 and leave them out again."""
    v, axes, found = p.value, p.axes, p
    while v.node.op.name == "reshape" and (before := through_reshape(v, axes)) is not None:
        v, axes = v.node.inputs[0], before
        if v.shape == p.value.shape:
            found = Partial(v, axes)
    return found


def over_keys(query: Partial, key: Partial, k: int, state: Value) -> Partial:
    """query . key, summed over the axis k of the state."""
    pair = applied(e.multiply, query, key)
    if k in pair.axes:
        return Partial(sum_over(pair.value, pair.axes.index(k)), tuple(a for a in pair.axes if a != k))
    return applied(e.multiply, pair, Partial.number(int(state.shape[k]), pair.value.dtype))


def _both(sides: Sides, f: Callable[[Partial], Partial]) -> Sides:
    value, erased = sides
    return None if value is None else f(value), None if erased is None else f(erased)


def _sum(a: Sides, b: Sides) -> Sides:
    value, erased = (x if y is None else y if x is None else applied(e.add, x, y) for x, y in zip(a, b, strict=True))
    return value, erased


def _negated(p: Partial) -> Partial:
    return applied(e.negate, p)


def _masked(p: Partial, cond: Partial) -> Partial:
    return chosen(cond, p, Partial.number(0, p.value.dtype))
