"""Values of a body without the axes along which they are the same: factors of what is added to a matrix state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lstm_ir.ir.graph import Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.literals import splat
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.spread import MOST_TERMS, Spread, product_axes, regrouped
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.shape import reshape, transpose
from lstm_ir.ops.primitive.window import slice_axis

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Partial:
    """A value with some axes of the state, in their order; it is the same along the others."""

    value: Value
    axes: Axes

    @classmethod
    def of(cls, v: Value, axes: Sequence[int]) -> Partial:
        """A value whose axes are these of the state, in any order; those of size 1 are left out."""
        kept = [i for i, d in enumerate(v.shape) if d != 1]
        v = v if len(kept) == v.rank else reshape(v, tuple(v.shape[i] for i in kept))
        left = [axes[i] for i in kept]
        order = sorted(range(len(left)), key=lambda i: left[i])
        turned = v if order == list(range(len(order))) else transpose(v, tuple(order))
        return cls(turned, tuple(left[i] for i in order))

    @classmethod
    def number(cls, x: float, dtype: DType) -> Partial:
        """One number."""
        return cls(constant(x, dtype), ())


def applied(f: Callable[..., Value], *parts: Partial) -> Partial:
    """An elementwise function of values with different axes."""
    axes = tuple(sorted({a for p in parts for a in p.axes}))
    sizes = {a: d for p in parts for a, d in zip(p.axes, p.value.shape, strict=True)}
    shape = tuple(sizes[a] for a in axes)
    wide = [broadcast_in_dim(p.value, shape, tuple(axes.index(a) for a in p.axes)) if p.axes != axes else p.value
            for p in parts]  # fmt: skip
    return Partial(f(*wide), axes)


def narrowed(v: Value, axes: Axes, spread: Spread, known: dict[tuple[Value, Axes], Partial] | None = None) -> Partial:
    """A value whose axes are those of the state, without axes along which it is known to be the same.

    known: what was found already, since a value may be read many times.
    """
    known = {} if known is None else known
    if (v, axes) not in known:
        known[v, axes] = _narrowed(v, axes, spread, known)
    return known[v, axes]


def _narrowed(v: Value, axes: Axes, spread: Spread, known: dict[tuple[Value, Axes], Partial]) -> Partial:
    number = splat(v)
    n = v.node
    if number is not None and v.dtype is not DType.i1:
        return Partial.number(number, v.dtype)
    if len(spread.of(v)) == sum(d != 1 for d in v.shape):
        return Partial.of(v, axes)
    if n.op.name == "broadcast_in_dim":
        (x,) = n.inputs
        return narrowed(x, tuple(axes[p] for p in n.attrs["broadcast_dimensions"]), spread, known)
    if n.op.name == "transpose":
        permutation = n.attrs["permutation"]
        return narrowed(n.inputs[0], tuple(axes[permutation.index(a)] for a in range(v.rank)), spread, known)
    if n.op.name == "reshape" and (before := through_reshape(v, axes)) is not None:
        return narrowed(n.inputs[0], before, spread, known)
    if Trait.elementwise in n.op.traits and not n.ranges:
        parts = [narrowed(x, axes, spread, known) for x in n.inputs]
        return applied(lambda *xs: make(n.op, *xs, **n.attrs).values[0], *parts)
    differs = spread.of(v)
    for i, d in enumerate(v.shape):
        if d != 1 and i not in differs:  # known to be the same along it
            v = slice_axis(v, i, 0, 1)
    return Partial.of(v, axes)


def through_reshape(v: Value, axes: Axes) -> Axes | None:
    """The axes of the operand of a reshape that only adds or leaves out axes of size 1; those left out are -1."""
    (x,) = v.node.inputs
    groups = regrouped(x.shape, v.shape)
    if groups is None or any(len(a) > 1 or len(b) > 1 for a, b in groups):
        return None
    at = {a[0]: axes[b[0]] for a, b in groups if a and b}
    return tuple(at.get(i, -1) for i in range(x.rank))


@dataclass(frozen=True)
class Outer:
    """key * value: each differs along one of the two axes of a matrix, and along the axes that stand before it."""

    key: Partial
    value: Partial

    def both(self, f: Callable[[Partial], Partial]) -> Outer:
        """A function of either."""
        return Outer(f(self.key), f(self.value))


class NoFormError(Exception):
    """What is added to a state is no sum of outer products."""


def need_few(added: Sequence[Outer]) -> None:
    """NoFormError for more terms than a step written by hand has: each sum of a value and itself doubles them."""
    if len(added) > MOST_TERMS:
        raise NoFormError(f"a matrix state to which more than {MOST_TERMS} outer products are added")


class Outers:
    """Values that are sums of outer products, taken apart."""

    def __init__(self, k: int, v: int, spread: Spread) -> None:
        self.k, self.v, self.spread = k, v, spread
        self._known: dict[tuple[Value, Axes], list[Outer]] = {}

    def of(self, x: Value, axes: Axes) -> list[Outer]:
        """The terms of a value whose axes are these of the state; NoFormError for another value, and for too many."""
        found = self._known.get((x, axes))
        if found is None:
            found = self._terms(x, axes)
            need_few(found)
            self._known[x, axes] = found
        return found

    def _terms(self, x: Value, axes: Axes) -> list[Outer]:
        n, one = x.node, Partial.number(1, x.dtype)
        if splat(x) == 0:
            return []
        if n.op.name in ("add", "subtract"):
            left, right = (self.of(y, axes) for y in n.inputs)
            return [*left, *(right if n.op.name == "add" else map(_negated, right))]
        if n.op.name == "negate":
            return [_negated(o) for o in self.of(n.inputs[0], axes)]
        along = self._along(x, axes)
        if along != {self.k, self.v}:
            part = narrowed(x, axes, self.spread)
            return [Outer(part, one) if along == {self.k} else Outer(one, part)]
        if n.op.name in ("multiply", "divide"):
            return self._product(x, axes)
        if n.op.name == "select":
            return self._chosen(x, axes)
        if n.op.name == "dot_general":
            return [self._sides(x, axes)]
        if n.op.name == "transpose":
            permutation = n.attrs["permutation"]
            return self.of(n.inputs[0], tuple(axes[permutation.index(a)] for a in range(x.rank)))
        if n.op.name == "reshape" and (before := through_reshape(x, axes)) is not None:
            return self.of(n.inputs[0], before)
        raise NoFormError

    def lead(self, x: Value, axes: Axes) -> Partial:
        """A value that is the same along both axes of the matrix."""
        if self._along(x, axes):
            raise NoFormError
        return narrowed(x, axes, self.spread)

    def _along(self, x: Value, axes: Axes) -> set[int]:
        return {axes[i] for i in self.spread.of(x)} & {self.k, self.v}

    def _product(self, x: Value, axes: Axes) -> list[Outer]:
        a, b = x.node.inputs
        by = e.multiply
        if x.op == "divide":
            by = e.divide
        elif len(self._along(b, axes)) == 2:
            a, b = b, a
        along = self._along(b, axes)
        if len(along) == 2:
            raise NoFormError
        factor = narrowed(b, axes, self.spread)
        if along == {self.k}:
            return [Outer(applied(by, o.key, factor), o.value) for o in self.of(a, axes)]
        return [Outer(o.key, applied(by, o.value, factor)) for o in self.of(a, axes)]

    def _chosen(self, x: Value, axes: Axes) -> list[Outer]:
        which, yes, no = x.node.inputs
        cond = self.lead(which, axes)
        other = applied(e.logical_not, cond)
        return [*(masked(o, cond) for o in self.of(yes, axes)), *(masked(o, other) for o in self.of(no, axes))]

    def _sides(self, x: Value, axes: Axes) -> Outer:
        n = x.node
        if any(n.inputs[0].shape[a] != 1 for a in n.attrs["lhs_contracting_dimensions"]):
            raise NoFormError
        found = []
        for v, at in zip(n.inputs, product_axes(n), strict=True):
            found.append(Partial.of(v, tuple(axes[at[a]] if a in at else -1 for a in range(v.rank))))
        key, value = found if self.k in found[0].axes else reversed(found)
        if self.k in value.axes or self.v in key.axes:
            raise NoFormError
        return Outer(key, value)


def masked(o: Outer, cond: Partial) -> Outer:
    """Zero where the condition is false; both sides are, since either may be NaN there."""
    return o.both(lambda p: chosen(cond, p, Partial.number(0, p.value.dtype)))


def chosen(cond: Partial, yes: Partial, no: Partial) -> Partial:
    """A select."""
    return applied(e.select, cond, yes, no)


def _negated(o: Outer) -> Outer:
    return Outer(o.key, applied(e.negate, o.value))
