"""What the gradients of `lstm`, `gru` and `rnn` share: rows before a step, masks, sums.

Only the recurrence is in a loop. Everything else is a product or sum over all T*B rows, in which
rows that do not exist are zero by selection.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lstm_ir.ir import dims
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.opdef import Op
from lstm_ir.ops.core import frame
from lstm_ir.ops.core.cell import Cell
from lstm_ir.ops.core.frame import Frame, Rows, block
from lstm_ir.ops.core.grad import arriving_names, saved_names
from lstm_ir.ops.core.operands import LayerPlan
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.fill import iota, zeros
from lstm_ir.ops.primitive.linear import dot_general
from lstm_ir.ops.primitive.precision import in_compute_dtype
from lstm_ir.ops.primitive.reduce import sum as reduce_sum
from lstm_ir.ops.primitive.shape import concat, expand_dims, reshape
from lstm_ir.ops.primitive.size import steps_that_run
from lstm_ir.ops.primitive.window import slice_axis


@dataclass(frozen=True)
class Back:
    """The plan of the forward op, and the operands that its gradient has beyond it, by name."""

    p: LayerPlan
    f: Frame
    more: Mapping[str, Value | None]

    @classmethod
    def of(cls, cell: Cell, forward: Op, operands: tuple[Value | None, ...], a: Mapping[str, Any]) -> Back:
        """From the operands of the gradient op of `forward`."""
        p = LayerPlan.of(cell, operands, a)
        f = dataclasses.replace(p.f, reverse=tuple(not r for r in p.f.reverse))
        rest = [None if v is None else in_compute_dtype(v) for v in operands[len(cell.names) :]]
        names = (*saved_names(forward), *arriving_names(forward))
        return cls(p, f, dict(zip(names, rest, strict=True)))

    def rows(self, name: str) -> Rows | None:
        """A further operand [T,B,D*w] per direction, None where it is absent."""
        v = self.more[name]
        return None if v is None else self.p.f.split(frame.time_major(v, self.p.a["layout"]))

    def state(self, name: str, width: int) -> Value:
        """A further operand [D,B,w] as the loop has it; zeros where it is absent."""
        return self.f.state(self.more[name], width)

    def alive(self, offset: int = 0) -> Value | None:
        """Whether row b exists at step t + offset, i1[T,B]; None: all do."""
        f = self.p.f
        if not f.masked:
            return None
        time = iota((f.T, f.B), 0)
        time = time + offset if offset else time
        found: Value | None = None
        count = None if f.count is None else steps_that_run(f.count, f.T)
        for end, at in ((f.lengths, (1,)), (count, ())):
            if end is not None:
                there = e.less(time, broadcast_in_dim(end, time.shape, at))
                found = there if found is None else e.logical_and(found, there)
        return found

    def only(self, rows: Value, where: Value | None = None, else_: Value | None = None) -> Value:
        """Rows [T,B,w] where they exist, zero (or `else_`) elsewhere."""
        mask = self.alive() if where is None else where
        if mask is None:
            return rows
        wide = broadcast_in_dim(mask, rows.shape, (0, 1))
        return e.select(wide, rows, constant(0, rows.dtype) if else_ is None else else_)

    def previous(self, rows: Rows, first: Value) -> Rows:
        """What each step found: the row of the step before it, `first` ([D,]B,w) before the
        first."""
        T, out = self.p.f.T, []
        for d, part in enumerate(rows):
            start = self.direction(first, d)
            at_start = broadcast_in_dim(start, part.shape, (1, 2))
            if not self.p.f.reverse[d]:
                moved = slice_axis(concat([expand_dims(start, 0), part], 0), 0, 0, T)
                out.append(self.only(moved))
                continue
            moved = slice_axis(concat([part, expand_dims(start, 0)], 0), 0, 1, dims.add(T, 1))
            following = self.alive(1)
            if following is not None:
                moved = self.only(moved, following, at_start)
            out.append(self.only(moved))
        return out

    def direction(self, v: Value, d: int) -> Value:
        """Direction d of a state or weight as the loop has it."""
        if self.f.D == 1:
            return v
        return reshape(slice_axis(v, 0, d, d + 1), v.shape[1:])

    def masked(self, rows: Rows) -> Rows:
        """h of the step before on its way into the recurrent weights."""
        mask = self.f.inside(self.p.v["recurrent_mask"])
        if mask is None:
            return rows
        return [r * broadcast_in_dim(self.direction(mask, d), r.shape, (1, 2)) for d, r in enumerate(rows)]

    def through(self, rows: Rows, weight: Value, transposed: bool = False) -> Rows:
        """rows @ weight (or its transpose) for all steps at once; weight [D,m,n] or [m,n]."""
        out = []
        for d, r in enumerate(rows):
            w = self.direction(weight, d)
            flat = dot_general(_flat(r), w, ((1,), (1 if transposed else 0,)))
            out.append(reshape(flat, (*r.shape[:2], flat.shape[1])))
        return out

    def products(self, left: Rows, right: Rows) -> Value:
        """Sum over all rows of left^T right, [D,m,n]."""
        parts = [dot_general(_flat(a), _flat(b), ((0,), (0,))) for a, b in zip(left, right, strict=True)]
        return self.stacked(parts)

    def sums(self, rows: Rows) -> Value:
        """Sum over all rows, [D,w]."""
        return self.stacked([reduce_sum(r, (0, 1)) for r in rows])

    def stacked(self, parts: list[Value]) -> Value:
        """One value per direction, with the direction axis in front, in the op's dtype."""
        return e.convert(concat([expand_dims(v, 0) for v in parts], 0), self.p.kind)

    def x_rows(self) -> Rows:
        """What each direction read of x, zero where no row exists."""
        return [self.only(r) for r in self.p.x_rows]

    def d_x(self, da: Rows) -> Value:
        """The gradient of x from those of the pre-activations."""
        w_ih = self.f.inside(self.p.v["w_ih"])
        if w_ih is None:
            return self.p.result(da)
        parts = self.through(da, w_ih)
        total = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        return e.convert(frame.time_major(total, self.p.a["layout"]), self.p.kind)

    def d_mask(self, da: Rows, h_prev: Rows) -> Value:
        """The gradient of the recurrent mask, [D,B,P]."""
        w_hh = self.f.inside(self.p.v["w_hh"])
        assert w_hh is not None
        pairs = zip(self.through(da, w_hh), h_prev, strict=True)
        return self.stacked([reduce_sum(a * h, 0) for a, h in pairs])

    def held(self) -> tuple[Value | None, Value | None]:
        """With padding "hold", d_y of the rows after `count`, summed: (for h_n, for h0) as the loop
        has it."""
        d_y, count = self.rows("d_y"), self.p.f.count
        if self.p.a["padding"] != "hold" or count is None or d_y is None:
            return None, None
        ends: list[list[Value]] = [[], []]
        for d, rows in enumerate(d_y):
            n = broadcast_in_dim(steps_that_run(count, self.p.f.T), rows.shape, ())
            late = e.greater_equal(iota(rows.shape, 0), n)
            total = reduce_sum(e.select(late, rows, constant(0, rows.dtype)), 0)
            reverse = int(self.p.f.reverse[d])
            ends[reverse].append(total)
            ends[1 - reverse].append(zeros(total.shape, total.dtype))
        joined = [v[0] if self.f.D == 1 else concat([expand_dims(p, 0) for p in v], 0) for v in ends]
        return joined[0], joined[1]


def _flat(rows: Value) -> Value:
    """[T,B,w] as [T*B,w]."""
    return reshape(rows, (dims.mul(rows.shape[0], rows.shape[1]), rows.shape[2]))


def plus(*terms: Value | None) -> Value:
    """The sum of those that are there."""
    there = [t for t in terms if t is not None]
    total = there[0]
    for t in there[1:]:
        total = total + t
    return total


def before_gate(p: LayerPlan, k: int, gate: Value, d_gate: Value, pre: Value | None) -> Value:
    """The gradient of a pre-activation from that of gate k; `pre`, all of them, tells what
    gate_clip held."""
    da = d_gate * p.f.slope(p.act(k), gate)
    if pre is None:
        return da
    inside = e.less_equal(e.abs(block(pre, k, p.H)), p.a["gate_clip"])
    return e.select(inside, da, constant(0, da.dtype))
