"""Values of a loop's body computed for all steps at once, outside of it.

A value that depends on scanned operands, the step number and constants only has one row per step:
its *rows* are the same computation with a leading axis T. Row t of an operand scanned in reverse
belongs to step n-1-t, and so does row t of what is lifted from it, with n = count or T; rows from n
on are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from lstm_ir import ops
from lstm_ir.ir import dims
from lstm_ir.ir.clone import needed
from lstm_ir.ir.graph import Node, Value, make, map_arg
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.size import steps_that_run
from lstm_ir.ops.scan.idle import can_stand_before, put_before


class Dependence(Enum):
    """What a value of the body depends on, constants apart."""

    fixed = "constants only"
    step = "the step number"
    forward = "operands scanned forward"
    backward = "operands scanned in reverse"
    carried = "carries, or through an op that cannot be lifted"


class Lift:
    """The values of one loop's body outside of it."""

    def __init__(
        self, loop: Loop, rule: str, known: Mapping[Value, Value] | None = None, *, reverse: bool = False,
        inputs: Sequence[Value] | None = None,
    ) -> None:  # fmt: skip
        """known: values of the body whose rows are there already, in the order of `reverse`; inputs: of the entry,
        where the loop may stand in another body."""
        self.loop, self.rule, self.inputs = loop, rule, inputs
        given = known if known is not None else {}
        self.kind = _kinds(loop, {v: Dependence.backward if reverse else Dependence.forward for v in given})
        self._fixed: dict[Value, Value] = dict(zip(loop.const_params, loop.consts, strict=True))
        self._rows: dict[tuple[Value, bool], Value] = {}
        for p, x, flag in zip(loop.x_params, loop.xs, loop.x_reverse, strict=True):
            self._rows[p, flag] = x
        self._rows |= {(v, reverse): rows for v, rows in given.items()}

    def fixed(self, v: Value) -> Value:
        """A value that depends on constants only, outside."""
        put_before(self.loop, [v], self._fixed, self.rule, self.inputs)
        return self._fixed[v]

    def rows(self, v: Value, reverse: bool) -> Value:
        """The rows [T,...] of a value [...]."""
        if (v, reverse) in self._rows:  # one result of a node whose others may not be there
            return self._rows[v, reverse]
        known = {w for w, k in self.kind.items() if k is Dependence.fixed}
        known |= {w for w, r in self._rows if r == reverse}
        for n in needed([v.node], known):
            for w in n.values:
                if w not in known:
                    with at(n.loc.through(self.rule)):
                        self._rows[w, reverse] = self._lifted(n, reverse)
        if self.kind[v] is Dependence.fixed:
            return self._repeated(v)
        return self._rows[v, reverse]

    def _repeated(self, v: Value) -> Value:
        return broadcast_in_dim(self.fixed(v), (self.loop.length, *v.shape), tuple(range(1, v.rank + 1)))

    def _lifted(self, n: Node, reverse: bool) -> Value:
        if n.values[0] is self.loop.step:
            return self._steps(reverse)

        def rows(v: Value) -> Value:
            return self._repeated(v) if self.kind[v] is Dependence.fixed else self._rows[v, reverse]

        if Trait.elementwise in n.op.traits:
            return make(n.op, *map(rows, n.inputs), **n.attrs).values[0]
        if n.op.name == "dot_general":
            return self._dot(n, rows)
        plain = {n.inputs[i]: self.fixed(n.inputs[i]) for i in _FIXED.get(n.op.name, ())}
        return _MOVES[n.op.name](n, lambda v: plain[v] if v in plain else rows(v), self.loop)

    def _steps(self, reverse: bool) -> Value:
        rows = ops.arange(self.loop.length)
        if not reverse:
            return rows
        return steps_that_run(self.loop.count, self.loop.length) - 1 - rows

    def _dot(self, n: Node, rows: Callable[[Value], Value]) -> Value:
        a, b = n.inputs
        ac, bc = n.attrs["lhs_contracting_dimensions"], n.attrs["rhs_contracting_dimensions"]
        ab, bb = n.attrs["lhs_batching_dimensions"], n.attrs["rhs_batching_dimensions"]
        left, right = self.kind[a] is not Dependence.fixed, self.kind[b] is not Dependence.fixed
        place = len(ab)  # of T in the result, where only one side has it
        if not left:
            place += a.rank - len(ac) - len(ab)
        va, vb = (rows(a) if left else self.fixed(a)), (rows(b) if right else self.fixed(b))
        ac, ab = (_up(ac), _up(ab)) if left else (ac, ab)
        bc, bb = (_up(bc), _up(bb)) if right else (bc, bb)
        if left and right:
            ab, bb, place = (0, *ab), (0, *bb), 0
        out = ops.dot_general(va, vb, (ac, bc), (ab, bb))
        return ops.transpose(out, (place, *(i for i in range(out.rank) if i != place)))


def _up(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + 1 for a in axes)


Move = Callable[[Node, Callable[[Value], Value], Loop], Value]


def _again(n: Node, rows: Callable[[Value], Value], **attrs: Any) -> Value:
    args = tuple(map_arg(a, {v: rows(v) for v in n.inputs}) for a in n.args)
    return make(n.op, *args, **attrs).values[0]


def _broadcast(n: Node, rows: Callable[[Value], Value], loop: Loop) -> Value:
    places = (0, *_up(n.attrs["broadcast_dimensions"]))
    return _again(n, rows, shape=(loop.length, *n.types[0].shape), broadcast_dimensions=places)


def _slice(n: Node, rows: Callable[[Value], Value], loop: Loop) -> Value:
    a = n.attrs
    lows, highs = (0, *a["start_indices"]), (loop.length, *a["limit_indices"])
    return _again(n, rows, start_indices=lows, limit_indices=highs, strides=(1, *a["strides"]))


def _reduce(n: Node, rows: Callable[[Value], Value], loop: Loop) -> Value:
    return _again(n, rows, dimensions=_up(n.attrs["dimensions"]))


def _pad(n: Node, rows: Callable[[Value], Value], loop: Loop) -> Value:
    (x, number), a = n.inputs, n.attrs
    edges: dict[str, Any] = {k: (0, *a[k]) for k in ("edge_padding_low", "edge_padding_high", "interior_padding")}
    return make(n.op, rows(x), rows(number), **edges).values[0]


def _gather(n: Node, rows: Callable[[Value], Value], loop: Loop) -> Value:
    """The rows of a fixed table for all steps; T moves to the front."""
    table, indices = n.inputs
    out = make(n.op, rows(table), rows(indices), **n.attrs).values[0]
    axis = n.attrs["axis"]
    return ops.transpose(out, (axis, *(i for i in range(out.rank) if i != axis)))


def _stencil(n: Node, rows: Callable[[Value], Value], loop: Loop) -> Value:
    """Steps are more images of the batch, T*N in all."""
    lhs, rhs = n.inputs
    many = dims.mul(loop.length, lhs.shape[0])
    out = make(n.op, ops.reshape(rows(lhs), (many, *lhs.shape[1:])), rows(rhs), **n.attrs).values[0]
    return ops.reshape(out, (loop.length, *n.types[0].shape))


_MOVES: Mapping[str, Move] = {
    "pad": _pad,
    "gather": _gather,
    "stencil": _stencil,
    "cumsum": lambda n, rows, loop: _again(n, rows, **{**n.attrs, "axis": n.attrs["axis"] + 1}),
    "argmax": lambda n, rows, loop: _again(n, rows, axis=n.attrs["axis"] + 1),
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "reshape": lambda n, rows, loop: _again(n, rows, shape=(loop.length, *n.types[0].shape)),
    "transpose": lambda n, rows, loop: _again(n, rows, permutation=(0, *_up(n.attrs["permutation"]))),
    "concatenate": lambda n, rows, loop: _again(n, rows, dimension=n.attrs["dimension"] + 1),
    "reverse": _reduce,
    "reduce_sum": _reduce,
    "reduce_max": _reduce,
    "reduce_min": _reduce,
}


_FIXED = {"pad": (1,), "gather": (0,), "stencil": (1,)}
"""Operands that are the same at every step, or the op is not lifted."""


def liftable(n: Node, fixed: Sequence[bool], loop: Loop) -> bool:
    """Whether the op of a node can be computed for all steps at once; fixed: which operands are constants."""
    if (n.ranges or n.requires) and (loop.count is not None or loop.until):
        return False  # demanded of the rows of steps that run, not of all rows
    if len(n.values) != 1 or any(not fixed[i] for i in _FIXED.get(n.op.name, ())):
        return False
    return n.op.name in _MOVES or n.op.name == "dot_general" or Trait.elementwise in n.op.traits


def _kinds(loop: Loop, parameters: Mapping[Value, Dependence]) -> dict[Value, Dependence]:
    kind: dict[Value, Dependence] = {loop.step: Dependence.step}
    kind |= dict.fromkeys(loop.const_params, Dependence.fixed)
    kind |= dict.fromkeys(loop.carry_params, Dependence.carried)
    for p, reverse in zip(loop.x_params, loop.x_reverse, strict=True):
        kind[p] = Dependence.backward if reverse else Dependence.forward
    for n in loop.body.nodes:
        if n.op.name != "parameter":
            found = _joined(n, [kind[v] for v in n.inputs], loop)
            kind.update({v: parameters.get(v, found) for v in n.values})
    return kind


def _joined(n: Node, operands: Sequence[Dependence], loop: Loop) -> Dependence:
    kinds = set(operands) - {Dependence.fixed}
    if not kinds:
        return Dependence.fixed if can_stand_before(n, loop) else Dependence.carried
    if Dependence.carried in kinds or not liftable(n, [k is Dependence.fixed for k in operands], loop):
        return Dependence.carried
    kinds.discard(Dependence.step)
    return Dependence.step if not kinds else kinds.pop() if len(kinds) == 1 else Dependence.carried
