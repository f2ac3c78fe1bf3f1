"""Along which axes a value can differ, and what it is a sum of products of: from structure alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.opdef import Trait

Axes = frozenset[int]
MOST_TERMS = 64  # of what is added to a matrix state: a sum of a value and itself doubles them


def regrouped(old: Sequence[Dim], new: Sequence[Dim]) -> list[tuple[list[int], list[int]]] | None:
    """Smallest runs of axes of a reshape that hold the same elements; None where sizes with names are mixed."""
    out: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and old[i] == new[j]:
            out.append(([i], [j]))
            i, j = i + 1, j + 1
        elif i < len(old) and old[i] == 1:
            out.append(([i], []))
            i += 1
        elif j < len(new) and new[j] == 1:
            out.append(([], [j]))
            j += 1
        else:
            group = _group(old, new, i, j)
            if group is None:
                return None
            out.append(group)
            i, j = group[0][-1] + 1, group[1][-1] + 1
    return out


def _group(old: Sequence[Dim], new: Sequence[Dim], i: int, j: int) -> tuple[list[int], list[int]] | None:
    a, b = [i], [j]
    if i >= len(old) or j >= len(new):
        return None
    left, right = old[i], new[j]
    while True:
        if not isinstance(left, int) or not isinstance(right, int):
            return None
        if left == right:
            return a, b
        longer, sizes, at = (a, old, "left") if left < right else (b, new, "right")
        longer.append(longer[-1] + 1)
        if longer[-1] >= len(sizes):
            return None
        size = sizes[longer[-1]]
        if not isinstance(size, int):
            return None
        if at == "left":
            left *= size
        else:
            right *= size


class Spread:
    """The axes along which values of one graph can differ; axes of size 1 are none."""

    def __init__(self) -> None:
        self._known: dict[Value, Axes] = {}

    def of(self, v: Value) -> Axes:
        """Those of one value."""
        todo = [v]
        while todo:
            w = todo[-1]
            missing = [x for x in w.node.inputs if x not in self._known]
            if w in self._known or not missing:
                todo.pop()
                if w not in self._known:
                    self._known[w] = self._computed(w)
            else:
                todo += missing
        return self._known[v]

    def _computed(self, v: Value) -> Axes:
        n = v.node
        everywhere = frozenset(a for a, d in enumerate(v.shape) if d != 1)
        if splat(v) is not None:
            return frozenset()
        inputs = [self._known[x] for x in n.inputs]
        if Trait.elementwise in n.op.traits:
            return frozenset[int]().union(*inputs)
        if n.op.name == "broadcast_in_dim":
            (x,) = n.inputs
            places = n.attrs["broadcast_dimensions"]
            return frozenset(places[a] for a in inputs[0] if x.shape[a] == v.shape[places[a]])
        if n.op.name == "transpose":
            return frozenset(i for i, a in enumerate(n.attrs["permutation"]) if a in inputs[0])
        if n.op.name == "slice":
            return inputs[0] & everywhere
        if n.op.name == "reshape":
            groups = regrouped(n.inputs[0].shape, v.shape)
            if groups is None:
                return everywhere
            return frozenset(j for a, b in groups if any(i in inputs[0] for i in a) for j in b) & everywhere
        if n.op.name == "dot_general":
            (left, right), maps = n.inputs, product_axes(n)
            found = {to for side, x in zip(maps, (left, right), strict=True) for a, to in side.items()
                     if a in self._known[x]}  # fmt: skip
            return frozenset(found)
        return everywhere


def product_axes(n: Node) -> tuple[dict[int, int], dict[int, int]]:
    """Of each operand of a product: its axes, but for those that are summed, and where they are in the result."""
    a = n.attrs
    batching = a["lhs_batching_dimensions"], a["rhs_batching_dimensions"]
    contracting = a["lhs_contracting_dimensions"], a["rhs_contracting_dimensions"]
    maps: list[dict[int, int]] = [{x: i for i, x in enumerate(b)} for b in batching]
    at = len(batching[0])
    for side, x in enumerate(n.inputs):
        for axis in range(x.rank):
            if axis not in batching[side] and axis not in contracting[side]:
                maps[side][axis] = at
                at += 1
    return maps[0], maps[1]


@dataclass(frozen=True)
class Term:
    """A product: values that do not depend on the carries, and at most one (`core`) that does."""

    factors: tuple[Value, ...]
    core: Value | None


def terms(v: Value, depends: Callable[[Value], bool]) -> Iterator[Term]:
    """The terms that are added up to `v`; their signs are left out, and terms of the same factors are one."""
    todo: list[tuple[Value, tuple[Value, ...]]] = [(v, ())]
    seen: set[tuple[Value, frozenset[Value]]] = set()
    while todo:
        w, factors = todo.pop()
        if (w, frozenset(factors)) in seen:
            continue
        seen.add((w, frozenset(factors)))
        op, inputs = w.op, w.node.inputs
        if not depends(w):
            yield from (Term((*factors, *found), None) for found in _products(w))
        elif op in ("add", "subtract"):
            todo += [(x, factors) for x in inputs]
        elif op == "negate" or (op == "convert" and w.dtype.is_float):
            todo.append((inputs[0], factors))
        elif op == "select" and not depends(inputs[0]):
            todo += [(x, (*factors, inputs[0])) for x in inputs[1:]]
        elif (
            op in ("multiply", "divide") and sum(map(depends, inputs)) == 1 and (op == "multiply" or depends(inputs[0]))
        ):
            (core,) = (x for x in inputs if depends(x))
            (factor,) = (x for x in inputs if x is not core)
            todo.append((core, (*factors, *_factors(factor))))
        else:
            yield Term(factors, w)


def _products(v: Value) -> Iterator[tuple[Value, ...]]:
    """The products that a value without carries is a sum of."""
    todo, seen = [v], set[Value]()
    while todo:
        w = todo.pop()
        number = splat(w)
        if number == 0 or w in seen:
            continue
        seen.add(w)
        if w.op in ("add", "subtract"):
            todo += w.node.inputs
        else:
            yield _factors(w)


def _factors(v: Value) -> tuple[Value, ...]:
    out: list[Value] = []
    todo, seen = [v], set[Value]()
    while todo:
        w = todo.pop()
        if w in seen:
            continue
        seen.add(w)
        if w.op == "multiply" or w.op == "divide":
            todo += w.node.inputs
        elif w.op == "negate" or (w.op == "convert" and w.node.inputs[0].dtype.is_float):
            todo += w.node.inputs
        elif splat(w) is None:
            out.append(w)
    return tuple(out)


def outer(factors: Sequence[Value], i: int, j: int, spread: Spread) -> tuple[bool, bool] | None:
    """Whether a product differs along axis i, and along j; None where one factor differs along both.

    A product of two tensors of which nothing is summed is two factors.
    """
    along = [False, False]
    for found in (s for v in factors for s in _sides(v, spread)):
        if i in found and j in found:
            return None
        along = [along[0] or i in found, along[1] or j in found]
    return along[0], along[1]


def _sides(v: Value, spread: Spread) -> list[Axes]:
    """The axes along which a factor differs; of a product without sums those of each side."""
    n = v.node
    if n.op.name == "reshape":
        groups = regrouped(n.inputs[0].shape, v.shape)
        if groups is not None and all(len(a) <= 1 and len(b) <= 1 for a, b in groups):
            at = {a[0]: b[0] for a, b in groups if a and b}
            return [frozenset(at[i] for i in s if i in at) for s in _sides(n.inputs[0], spread)]
    if n.op.name == "transpose":
        at = {a: i for i, a in enumerate(n.attrs["permutation"])}
        return [frozenset(at[i] for i in s) for s in _sides(n.inputs[0], spread)]
    if n.op.name != "dot_general":
        return [spread.of(v)]
    summed = n.attrs["lhs_contracting_dimensions"]
    if any(n.inputs[0].shape[a] != 1 for a in summed):
        return [spread.of(v)]
    maps = product_axes(n)
    return [frozenset(m[a] for a in spread.of(x) if a in m) for x, m in zip(n.inputs, maps, strict=True)]
