"""How the next value of each carry of a loop depends on the last one: from the body's structure, never from a name.

Carries that need each other are a *circle* and have one kind. Kinds say what a schedule may do:

    elementwise linear      c' = a * c + b, where a and b are made of no carry of the circle
    elementwise nonlinear   each element of c' is made of the same element of c
    block-diagonal          products with a matrix for each block (head) of c, which stays in its block
    dense                   a product with a matrix
    convolution             a stencil
    matrix state            C' = a * C + k v^T: a scalar, or a number for each row or column of C; or a delta rule, in
                            which C is multiplied by the identity less an outer product
    mixed                   reductions, moves of elements, and what is not known
    replaced                c' is made of no carry of the circle, as the row of the step before

What a coefficient is made of does not change the kind: the exponents of a running maximum leave what they scale
elementwise linear, and say that it `reads` the maximum's carry, which is elementwise nonlinear.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from lstm_ir.ir.carry_places import ELSEWHERE, Place, Places, joined, lost, moved, of_product, own
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.reach import parameters_of
from lstm_ir.ir.spread import MOST_TERMS, Spread, Term, outer, terms
from lstm_ir.ir.types import DType


class CarryKind(Enum):
    """Of a circle of carries."""

    linear = "elementwise linear"
    nonlinear = "elementwise nonlinear"
    blocks = "block-diagonal"
    dense = "dense"
    convolution = "convolution"
    matrix = "matrix state"
    mixed = "mixed"
    replaced = "replaced"


@dataclass(frozen=True)
class MatrixForm:
    """C' = a * C + k v^T: the carry's axes of k and of v, the one that a differs along, if any, and the delta rule."""

    k_axis: int
    v_axis: int
    decay: frozenset[int] = frozenset()
    delta: bool = False


@dataclass(frozen=True)
class Circle:
    """Carries (by number) that need each other, their kind, and the other carries that they read."""

    carries: tuple[int, ...]
    kind: CarryKind
    is_linear: bool  # in the carries of the circle
    reads: tuple[int, ...] = ()
    form: MatrixForm | None = None


def circles(loop: Loop) -> tuple[Circle, ...]:
    """The circles of a loop, by their first carries."""
    made = parameters_of(loop.body)
    index = {p: k for k, p in enumerate(loop.carry_params)}
    needs = [frozenset(index[p] for p in made[v] if p in index) for v in loop.next]
    out = []
    for members in _groups(needs):
        read = frozenset[int]().union(*(needs[k] for k in members)) - set(members)
        out.append(_circle(loop, members, tuple(sorted(read)), made))
    return tuple(out)


def described(loop: Loop) -> str:
    """`h elementwise linear, reads m, m dense`: the circles in words, with the names of the body's parameters."""
    names = [str(p.node.attrs["name"]) for p in loop.carry_params]
    return ", ".join(words(c, names) for c in circles(loop)) or "no carry"


def words(c: Circle, names: Sequence[str]) -> str:
    """One circle: `h + c dense`."""
    text = f"{' + '.join(names[k] for k in c.carries)} {c.kind.value}"
    if c.form is not None and c.form.delta:
        text += " by a delta rule"
    if c.is_linear and c.kind in (CarryKind.dense, CarryKind.blocks, CarryKind.convolution, CarryKind.mixed):
        text += " linear"
    return text + (f" (reads {', '.join(names[k] for k in c.reads)})" if c.reads else "")


def loops_of(graph: Graph) -> Iterator[Loop]:
    """All loops, those in bodies after what they stand in."""
    for n in graph.nodes:
        loop = Loop.of(n, until=True)
        if loop is not None:
            yield loop
        for a in n.attrs.values():
            if isinstance(a, Graph):
                yield from loops_of(a)


def _groups(needs: Sequence[frozenset[int]]) -> list[tuple[int, ...]]:
    """Carries that reach each other."""
    reach = [set(n) for n in needs]
    for k in range(len(needs)):
        for r in reach:
            if k in r:
                r |= reach[k]
    found = {
        tuple(j for j in range(len(needs)) if j == k or (j in reach[k] and k in reach[j])) for k in range(len(needs))
    }
    return sorted(found)


@dataclass(frozen=True)
class _Composition:
    """How a value is made of the carries of a circle."""

    places: Places
    is_linear: bool = True
    mixes: frozenset[str] = frozenset()  # dense, blocks, convolution, vector, other


class _CircleWalk:
    """Every value of a body that carries of one circle are part of."""

    def __init__(self, loop: Loop, members: Sequence[int], dependencies: dict[Value, frozenset[Value]]) -> None:
        self.loop = loop
        self.constant = {v for v, ps in dependencies.items() if ps <= set(loop.const_params)}
        self.found: dict[Value, _Composition] = {
            loop.carry_params[k]: _Composition(own(loop.carry_params[k].shape)) for k in members
        }
        self._nodes(loop.body)

    def _nodes(self, graph: Graph) -> None:
        for n in graph.nodes:
            inputs = [self.found.get(v) for v in n.inputs]
            if n.op.name == "custom_vjp" and any(inputs):
                self._forward(n)
            elif n.op.name != "parameter" and any(inputs):
                self.found.update((v, m) for v, m in zip(n.values, self._node(n, inputs), strict=True))

    def _forward(self, n: Node) -> None:
        """A gradient that is written by hand changes no value: what counts is what computes the results."""
        forward: Graph = n.attrs["forward"]
        for v in (v for inner in forward.nodes for v in inner.values):
            self.found.pop(v, None)  # of another call of the same function
        for p, v in zip(forward.params, n.inputs, strict=True):
            if v in self.found:
                self.found[p] = self.found[v]
        self._nodes(forward)
        for v, out in zip(n.values, forward.outputs, strict=False):  # residuals come last
            if out in self.found:
                self.found[v] = self.found[out]

    def _node(self, n: Node, inputs: list[_Composition | None]) -> list[_Composition]:
        given = [m for m in inputs if m is not None]
        mixes = frozenset[str]().union(*(m.mixes for m in given))
        plain = all(m.is_linear for m in given)
        name = n.op.name
        if len(n.values) != 1:
            return [_Composition(lost(v), False, mixes | {"other"}) for v in n.values]
        if Trait.elementwise in n.op.traits:
            linear = plain and _is_linear(n, [m is not None for m in inputs])
            return [_Composition(joined([m.places for m in given]), linear, mixes)]
        if name == "dot_general":
            return [self._product(n, inputs, mixes, plain)]
        places = moved(n, [None if m is None else m.places for m in inputs])
        if places is not None:
            return [_Composition(places, plain, mixes)]
        if name.startswith("reduce_"):
            return [_reduced(n, given[0], plain and name in ("reduce_sum", "reduce_mean"))]
        (v,) = n.values
        if name in ("stencil", "convolution", "convolution_transpose"):
            alone = plain and len(given) == 1
            return [_Composition(lost(v), alone, mixes | {"convolution"})]
        linear = plain and name in ("reverse", "pad", "cumsum", "transpose", "reshape", "slice")
        return [_Composition(lost(v), linear, mixes | {"other"})]

    def _product(self, n: Node, inputs: list[_Composition | None], mixes: frozenset[str], plain: bool) -> _Composition:
        if all(inputs):
            return _Composition(lost(n.values[0]), False, mixes | {"dense"})
        side = 0 if inputs[0] is not None else 1
        m, other = inputs[side], n.inputs[1 - side]
        assert m is not None
        mine, its = ("lhs", "rhs") if side == 0 else ("rhs", "lhs")
        summed = [m.places[a] for a in n.attrs[f"{mine}_contracting_dimensions"] if n.inputs[side].shape[a] != 1]
        batched = [m.places[a] for a in n.attrs[f"{mine}_batching_dimensions"]]
        bound = (*n.attrs[f"{its}_contracting_dimensions"], *n.attrs[f"{its}_batching_dimensions"])
        free = [a for a, d in enumerate(other.shape) if a not in bound and d != 1]
        out = _Composition(of_product(n, side, m.places), plain, mixes)
        if not summed or (all(p is None for p in summed) and not mixes):
            return out
        if not free and other not in self.constant:
            how = "vector"
        elif other in self.constant and self._in_blocks(n, summed, batched):
            how = "blocks"
        else:
            how = "dense"
        return _Composition(out.places, plain, mixes | {how})

    def _in_blocks(self, n: Node, summed: list[Place | None], batched: list[Place | None]) -> bool:
        """Whether each block has a matrix of its own: over an axis of the carry, or over a window of one."""
        if any(p is not None and p is not ELSEWHERE and p.size != 1 for p in batched):
            return True
        (p, *more) = summed
        if more or p is None or p is ELSEWHERE or p.part:
            return False
        sizes = {q.shape[p.axis] for q in self.loop.carry_params if q.rank > p.axis}
        return p.size not in sizes and p.size in n.types[0].shape


def _is_linear(n: Node, depends: list[bool]) -> bool:
    """Whether an elementwise op is linear in the operands that depend on carries."""
    if n.op.name in ("add", "subtract", "negate"):
        return True
    if n.op.name == "multiply":
        return sum(depends) == 1
    if n.op.name == "divide":
        return not depends[1] and n.types[0].dtype.is_float
    if n.op.name == "select":
        return not depends[0]
    old, new = n.inputs[0].dtype, n.types[0].dtype
    return n.op.name == "convert" and new.is_float and (old is new or (old.is_float and _within(old, new)))


def _within(old: DType, new: DType) -> bool:
    return old.bits < new.bits


def _reduced(n: Node, m: _Composition, is_linear: bool) -> _Composition:
    axes = n.attrs["dimensions"]
    rest = tuple(p for a, p in enumerate(m.places) if a not in axes)
    if all(m.places[a] is None for a in axes) and is_linear:
        return _Composition(rest, True, m.mixes)
    return _Composition(rest, is_linear, m.mixes | {"vector" if is_linear else "other"})


def _circle(
    loop: Loop, members: tuple[int, ...], reads: tuple[int, ...], dependencies: dict[Value, frozenset[Value]]
) -> Circle:
    walk = _CircleWalk(loop, members, dependencies)
    compositions = [walk.found.get(loop.next[k]) for k in members]
    known = [m for m in compositions if m is not None]
    if not known:
        return Circle(members, CarryKind.replaced, False, reads)
    mixes = frozenset[str]().union(*(m.mixes for m in known))
    is_linear = all(m.is_linear for m in known)
    stay = all(m is None or _stays(m, loop.carry_params[k]) for k, m in zip(members, compositions, strict=True))
    kind, form = _kind(mixes, is_linear, stay), None
    if kind in (CarryKind.linear, CarryKind.matrix):
        if len(members) == 1:
            form = _matrix_form(loop, members[0], walk, "vector" in mixes)
        kind = CarryKind.matrix if form is not None else CarryKind.mixed if "vector" in mixes else CarryKind.linear
    return Circle(members, kind, is_linear, reads, form)


def _kind(mixes: frozenset[str], is_linear: bool, stay: bool) -> CarryKind:
    if "convolution" in mixes:
        return CarryKind.convolution
    if "dense" in mixes:
        return CarryKind.dense
    if "blocks" in mixes:
        return CarryKind.blocks if stay and "other" not in mixes else CarryKind.dense
    if "other" in mixes or not stay or ("vector" in mixes and not is_linear):
        return CarryKind.mixed
    if "vector" in mixes:
        return CarryKind.matrix
    return CarryKind.linear if is_linear else CarryKind.nonlinear


def _stays(m: _Composition, carry: Value) -> bool:
    """Whether each element is made of the same element, or of what was mixed along an axis."""
    for p, d, whole in zip(m.places, carry.shape, own(carry.shape), strict=True):
        if p != whole and d != 1 and not (p is None and m.mixes):
            return False
    return True


def _matrix_form(loop: Loop, k: int, walk: _CircleWalk, delta: bool) -> MatrixForm | None:
    """The two axes of a matrix state; None for other linear carries."""
    carry, spread = loop.carry_params[k], Spread()
    found = list(islice(terms(loop.next[k], walk.found.__contains__), MOST_TERMS + 1))
    if len(found) > MOST_TERMS:
        return None
    added = [t.factors for t in found if t.core is None]
    kept = [t for t in found if t.core is carry]
    rest = [t for t in found if t.core is not None and t.core is not carry]
    if len(rest) > 0 and not delta:
        return None
    for i in range(carry.rank):
        for j in range(i + 1, carry.rank):
            if carry.shape[i] == 1 or carry.shape[j] == 1:
                continue
            form = _form(i, j, added, [t.factors for t in kept], spread, walk) if added or rest else None
            if form is None or (delta and not _rank_one(form, rest, spread, walk)):
                continue
            return MatrixForm(form.k_axis, form.v_axis, form.decay, delta)
    return None


def _form(
    i: int, j: int, added: list[tuple[Value, ...]], retained: list[tuple[Value, ...]], spread: Spread, walk: _CircleWalk
) -> MatrixForm | None:
    for factors in added:
        sides = outer(factors, i, j, spread)
        varying = [v for v in factors if v not in walk.constant]
        if sides is None or outer(varying, i, j, spread) != (True, True):
            return None
    decay: set[int] = set()
    for factors in retained:
        sides = outer(factors, i, j, spread)
        if sides is None or sides == (True, True):
            return None
        decay |= {axis for axis, along in zip((i, j), sides, strict=True) if along}
    return MatrixForm(i, j, frozenset(decay)) if len(decay) < 2 else None


def _rank_one(form: MatrixForm, mixed: Sequence[Term], spread: Spread, walk: _CircleWalk) -> bool:
    """Whether what the state is multiplied by mixes along one of the two axes alone, and stands beside vectors."""
    for t in mixed:
        assert t.core is not None
        p = walk.found[t.core].places
        lacks = [axis for axis in (form.k_axis, form.v_axis) if p[axis] is None]
        if len(lacks) != 1 or any(q is not None and q.axis != a for a, q in enumerate(p)):
            return False
        if outer((*t.factors, t.core), form.k_axis, form.v_axis, spread) is None:
            return False
    return True
