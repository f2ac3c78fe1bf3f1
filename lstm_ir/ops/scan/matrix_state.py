"""A loop with a matrix state, taken apart: what decays it, what is added to it, and what reads it.

    S[t] = a[t] S[t-1] + k[t] v[t]^T        reads: q[t] . S[t-1] or q[t] . S[t], summed over the axis of k

a is one number for each matrix, or for each of its rows, or of its columns. A step may choose by a condition of the
batch's rows (`lengths`): a is 1 and k v^T is 0 there. Where v is linear in what the step reads of the state (writes.py)
that is a delta rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations

from lstm_ir.ir.carry_kinds import CarryKind, MatrixForm, circles
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.reach import parameters_of
from lstm_ir.ir.spread import Spread, product_axes
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.scan.partial import (
    Axes,
    NoFormError,
    Outer,
    Outers,
    Partial,
    applied,
    chosen,
    masked,
    narrowed,
)  # fmt: skip
from lstm_ir.ops.scan.tuned import DELTA_ROWS, MIN_STATE
from lstm_ir.ops.scan.writes import Affine, Linear, Read, Write

MOST_WRITES = 4  # of a step of a delta rule; their triangular system grows with them


@dataclass
class MatrixLoop:
    """One carry of a loop, and what it is to the body."""

    loop: Loop
    carry: int
    k: int  # the axis that reads sum over
    v: int
    after: Affine  # the state after the step
    writes: list[Write]
    reads: list[Read] = field(default_factory=list)

    @property
    def is_delta(self) -> bool:
        """Whether what is written depends on what was read."""
        return any(w.erased is not None for w in self.writes)

    @property
    def param(self) -> Value:
        """The carry in the body."""
        return self.loop.carry_params[self.carry]

    @property
    def lead(self) -> Axes:
        """The axes before those of the matrix."""
        return tuple(a for a in range(self.param.rank) if a not in (self.k, self.v))


def matrix_loop(loop: Loop) -> tuple[MatrixLoop | None, tuple[str, ...]]:
    """The first matrix state that chunks can make, or None and why each such carry is none."""
    reasons = []
    for c in circles(loop):
        if c.kind is not CarryKind.matrix or c.form is None or (c.form.delta and _is_short(loop)):
            continue
        found = _taken(loop, c.carries[0], c.form)
        if isinstance(found, MatrixLoop):
            return found, ()
        reasons.append(found)
    return None, tuple(dict.fromkeys(reasons))


def _is_short(loop: Loop) -> bool:
    """Whether a delta rule has no more steps than the loop that solves the system of a chunk."""
    return isinstance(loop.length, int) and loop.length <= DELTA_ROWS


def _taken(loop: Loop, carry: int, form: MatrixForm) -> MatrixLoop | str:
    """A matrix state that chunks can make, or why they cannot."""
    p = loop.carry_params[carry]
    sizes = p.shape[form.k_axis], p.shape[form.v_axis]
    if p.dtype not in (DType.f32, DType.f64):
        return f"a matrix state in {p.dtype}"
    if not all(isinstance(n, int) and n >= MIN_STATE for n in sizes):
        return f"a matrix state of {sizes[0]} x {sizes[1]}"
    why = ""
    for k, v in _orders(p, form):
        try:
            return _Taken(loop, carry, k, v).matrix
        except NoFormError as e:
            why = str(e) or why or "a matrix state that is read by more than products with a vector"
    return why


def _orders(carry: Value, form: MatrixForm) -> list[tuple[int, int]]:
    """Axes that may be those of k and v: where a delta rule's keys are shared by matrices, others may be v's."""
    found = [(form.k_axis, form.v_axis), (form.v_axis, form.k_axis)]
    large = [a for a, n in enumerate(carry.shape) if isinstance(n, int) and n >= MIN_STATE]
    return [*(o for o in permutations(large, 2) if form.delta and o not in found), *found]


class _Taken:
    """Takes a body apart for one carry and one order of its axes."""

    def __init__(self, loop: Loop, carry: int, k: int, v: int) -> None:
        self.loop, self.k, self.v = loop, k, v
        self.carry = loop.carry_params[carry]
        self.axes: Axes = tuple(range(self.carry.rank))
        made = parameters_of(loop.body)
        self.depends = {w for w, ps in made.items() if self.carry in ps}
        self.spread = Spread()
        self.outers = Outers(k, v, self.spread)
        self.affine: dict[Value, Affine] = {self.carry: Affine(Partial.number(1, self.carry.dtype))}
        self.asked: dict[Value, tuple[Affine, Partial]] = {}  # the state times a row of numbers, to be summed
        self.late: set[Value] = set()
        self.reads: list[Read] = []
        self.linear = Linear(loop.body, self.carry, k, v, self.spread, self.depends)
        for n in loop.body.nodes:
            if n.op.name != "parameter" and any(w in self.depends for w in n.inputs):
                self._node(n)
        self._check_outputs(carry)
        after = self.affine.get(loop.next[carry])
        if after is None:
            raise NoFormError
        writes = [self.linear.write(o) for o in after.added]
        self.matrix = MatrixLoop(loop, carry, k, v, after, writes, self.reads)
        most = MOST_WRITES if self.matrix.is_delta else 1
        if not 0 < len(writes) <= most:
            raise NoFormError(f"a matrix state to which {len(after.added) or 'no'} outer products are added")
        if self.matrix.is_delta and after.decay is not None and {k, v} & set(after.decay.axes):
            raise NoFormError("a delta rule with a decay for each row or column")

    def _check_outputs(self, carry: int) -> None:
        for i, w in enumerate(self.loop.body.outputs):
            if w in self.depends and w not in self.late and i != carry:
                raise NoFormError

    def _node(self, n: Node) -> None:
        given = [w for w in n.inputs if w in self.depends]
        if all(w in self.late for w in given):
            self.late.update(n.values)
            return
        if len(n.values) > 1:
            raise NoFormError
        (v,) = n.values
        if n.op.name in ("dot_general", "reduce_sum"):
            read = self._product(n) if n.op.name == "dot_general" else self._sum(n)
            self.reads.append(read)
            self.linear.read(read)
            self.late.add(v)
            return
        try:
            self.affine[v] = self._affine(n)
        except NoFormError:
            if n.op.name != "multiply":
                raise
            self._times_a_side(n)

    # -- the state, decayed, and what is added

    def _of(self, w: Value) -> Affine:
        if w not in self.depends or w in self.late:
            return Affine(None, tuple(self.outers.of(w, self.axes)))
        found = self.affine.get(w)
        if found is None:
            raise NoFormError
        return found

    def _affine(self, n: Node) -> Affine:
        name = n.op.name
        if name in ("add", "subtract"):
            a, b = map(self._of, n.inputs)
            b = b if name == "add" else _scaled(b, Partial.number(-1, self.carry.dtype))
            both = a.decay is not None and b.decay is not None
            decay = applied(e.add, a.decay, b.decay) if both else a.decay or b.decay  # type: ignore[arg-type]
            return Affine(decay, self.linear.merged((*a.added, *b.added)))
        if name == "negate":
            return _scaled(self._of(n.inputs[0]), Partial.number(-1, self.carry.dtype))
        if name == "multiply" and sum(w in self.depends for w in n.inputs) == 1:
            state, by_rows = n.inputs if n.inputs[0] in self.depends else reversed(n.inputs)
            return _scaled(self._of(state), self.outers.lead(by_rows, self.axes))
        if name == "divide" and n.inputs[1] not in self.depends:
            by = applied(e.divide, Partial.number(1, self.carry.dtype), self.outers.lead(n.inputs[1], self.axes))
            return _scaled(self._of(n.inputs[0]), by)
        if name == "select" and n.inputs[0] not in self.depends:
            cond = self.outers.lead(n.inputs[0], self.axes)
            return _chosen(cond, *map(self._of, n.inputs[1:]))
        raise NoFormError

    def _times_a_side(self, n: Node) -> None:
        """The state times numbers that differ along one of its axes: a decay, or, along that of k, what a read asks."""
        if sum(w in self.depends for w in n.inputs) != 1:
            raise NoFormError
        a, b = n.inputs if n.inputs[0] in self.depends else reversed(n.inputs)
        along = {self.axes[i] for i in self.spread.of(b)} & {self.k, self.v}
        if a in self.affine and len(along) == 1:
            made = self._by_side(self.affine[a], narrowed(b, self.axes, self.spread), along == {self.k})
            if not self._is_full(made):
                self.affine[n.values[0]] = made
        if along <= {self.k}:
            self.asked[n.values[0]] = self._asked(n)
        elif n.values[0] not in self.affine:
            raise NoFormError

    def _is_full(self, of: Affine) -> bool:
        """Whether the decay is a number for each element."""
        return of.decay is not None and {self.k, self.v} <= set(of.decay.axes)

    def _by_side(self, of: Affine, by: Partial, is_key: bool) -> Affine:
        decay = None if of.decay is None else applied(e.multiply, of.decay, by)
        if is_key:
            return Affine(decay, tuple(Outer(applied(e.multiply, o.key, by), o.value) for o in of.added))
        return Affine(decay, tuple(Outer(o.key, applied(e.multiply, o.value, by)) for o in of.added))

    # -- what reads it

    def _asked(self, n: Node) -> tuple[Affine, Partial]:
        """The state times numbers that differ along the axis of k."""
        a, b = n.inputs if n.inputs[0] in self.depends else reversed(n.inputs)
        of, query = self._query(a)
        return of, applied(e.multiply, query, narrowed(b, self.axes, self.spread))

    def _query(self, w: Value) -> tuple[Affine, Partial]:
        if w in self.asked:
            return self.asked[w]
        if w in self.affine and not self._is_full(self.affine[w]):
            return self.affine[w], Partial.number(1, w.dtype)
        raise NoFormError

    def _sum(self, n: Node) -> Read:
        if tuple(n.attrs["dimensions"]) != (self.k,):
            raise NoFormError
        of, query = self._query(n.inputs[0])
        return Read(n.values[0], of, query, tuple(a for a in self.axes if a != self.k))

    def _product(self, n: Node) -> Read:
        side = 0 if n.inputs[0] in self.depends else 1
        w, q = n.inputs[side], n.inputs[1 - side]
        if q in self.depends:
            raise NoFormError
        mine, its = ("lhs", "rhs") if side == 0 else ("rhs", "lhs")
        pairs = [
            (a, b)
            for word in ("batching", "contracting")
            for a, b in zip(n.attrs[f"{mine}_{word}_dimensions"], n.attrs[f"{its}_{word}_dimensions"], strict=True)
        ]
        if n.attrs[f"{mine}_contracting_dimensions"] != (self.k,) or any(a == self.v for a, _ in pairs):
            raise NoFormError
        known = {b: a for a, b in pairs}
        if any(q.shape[b] != 1 for b in range(q.rank) if b not in known):
            raise NoFormError
        of, query = self._query(w)
        given = Partial.of(q, tuple(known.get(b, -1) for b in range(q.rank)))
        at = {to: a for a, to in product_axes(n)[side].items()}
        axes = tuple(at.get(i, -1) for i in range(n.types[0].rank))
        return Read(n.values[0], of, applied(e.multiply, query, given), axes)


def _scaled(a: Affine, by: Partial) -> Affine:
    decay = None if a.decay is None else applied(e.multiply, a.decay, by)
    return Affine(decay, tuple(Outer(o.key, applied(e.multiply, o.value, by)) for o in a.added))


def _chosen(cond: Partial, yes: Affine, no: Affine) -> Affine:
    """One or the other by a condition of the rows.

    A state that one of them drops is not multiplied by 0, which would keep its infinities and NaN.
    """
    if (yes.decay is None) is not (no.decay is None):
        raise NoFormError("a matrix state that a condition drops")
    other = applied(e.logical_not, cond)
    added = (*(masked(o, cond) for o in yes.added), *(masked(o, other) for o in no.added))
    if yes.decay is None and no.decay is None:
        return Affine(None, added)
    dtype = (yes.decay or no.decay).value.dtype  # type: ignore[union-attr]
    zero = Partial.number(0, dtype)
    return Affine(chosen(cond, yes.decay or zero, no.decay or zero), added)
