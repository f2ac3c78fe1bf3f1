"""The frame in which `lstm`, `gru`, `rnn` and their gradients become one `scan`.

One direction: rows are [B,w] and dots two-dimensional. Two directions run in one loop: states are
[2,B,w], dots are batched over the leading axis, every direction reads and writes its rows [T,B,w]
under its own `reverse` flag. One step (T = 1, no count) from zeros is written out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.literals import splat
from lstm_ir.ir.types import DType
from lstm_ir.ops.core.activations import Act
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.fill import iota, zeros
from lstm_ir.ops.primitive.linear import dot_general
from lstm_ir.ops.primitive.shape import concat, expand_dims, reshape, swapaxes
from lstm_ir.ops.primitive.size import steps_that_run
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.ops.scan.builder import scan

Rows = list[Value]
"""One value [T,B,w] per direction."""
State = tuple[Value, ...]
Consts = dict[str, Value | None]
Cell = Callable[[State, tuple[Value, ...], Consts, "Alive"], tuple[State, tuple[Value, ...]]]


@dataclass(frozen=True)
class Alive:
    """Which rows of the batch exist at a step, [B] or [2,B]; None: all."""

    mask: Value | None

    def choose(self, there: Value, else_: Value | None = None) -> Value:
        """`there` in rows that exist, `else_` (zero) in the others."""
        if self.mask is None:
            return there
        wide = broadcast_in_dim(self.mask, there.shape, tuple(range(self.mask.rank)))
        return e.select(wide, there, constant(0, there.dtype) if else_ is None else else_)


@dataclass(frozen=True)
class Frame:
    """T steps of B rows; `reverse` has one flag per direction."""

    T: Dim
    B: Dim
    reverse: tuple[bool, ...]
    dtype: DType
    lengths: Value | None = None
    count: Value | None = None

    @property
    def D(self) -> int:  # noqa: N802
        """Number of directions."""
        return len(self.reverse)

    @property
    def masked(self) -> bool:
        """Whether a row may not exist at some step."""
        return self.lengths is not None or self.count is not None

    def inside(self, v: Value | None) -> Value | None:
        """A weight or state [D,...] as the loop has it: without the axis of a single direction."""
        if v is None or self.D == 2:
            return v
        return reshape(v, v.shape[1:])  # of v itself: a gradient looks for what reads v

    def outside(self, v: Value) -> Value:
        """The opposite of `inside`."""
        return v if self.D == 2 else expand_dims(v, 0)

    def state(self, v: Value | None, width: int) -> Value:
        """A first state; zeros for None."""
        given = self.inside(v)
        if given is not None:
            return given
        return zeros((self.B, width) if self.D == 1 else (2, self.B, width), self.dtype)

    def split(self, rows: Value) -> Rows:
        """[T,B,D*w] per direction."""
        if self.D == 1:
            return [rows]
        w = rows.shape[2] // 2
        return [slice_axis(rows, 2, 0, w), slice_axis(rows, 2, w, 2 * w)]

    def join(self, rows: Rows) -> Value:
        """Directions side by side, [T,B,D*w]."""
        return rows[0] if self.D == 1 else concat(rows, 2)

    def dot(self, rows: Value, weight: Value, transposed: bool = True) -> Value:
        """rows @ weight.T, or rows @ weight; over the direction axis where there is one."""
        k = 0 if self.D == 1 else 1
        batch = ((), ()) if k == 0 else ((0,), (0,))
        return dot_general(rows, weight, ((k + 1,), (k + (1 if transposed else 0),)), batch)

    def columns(self, v: Value, like: Value) -> Value:
        """A vector [w] or [2,w] repeated over the batch."""
        return broadcast_in_dim(v, like.shape, (1,) if self.D == 1 else (0, 2))

    def apply(self, acts: Sequence[Act], v: Value) -> Value:
        """Activation of every direction."""
        return self.per_direction(acts, v, lambda act, part: act.build(part))

    def slope(self, acts: Sequence[Act], y: Value) -> Value:
        """Slope of every direction's activation from its output."""
        return self.per_direction(acts, y, lambda act, part: act.slope(part))

    def per_direction(self, acts: Sequence[Act], v: Value, build: Callable[[Act, Value], Value]) -> Value:
        """`build` on the whole where the directions agree, else on each and joined."""
        if len(set(acts)) == 1:
            return build(acts[0], v)
        return concat([build(a, slice_axis(v, 0, d, d + 1)) for d, a in enumerate(acts)], 0)

    def loop(
        self, cell: Cell, first: State, rows: Sequence[Rows], consts: Consts, outs: int
    ) -> tuple[State, list[Rows]]:
        """Run `cell` over all steps: final states, and for each of its `outs` rows one [T,B,w] per
        direction."""
        xs = [r for group in rows for r in group]
        fixed = {**consts, **self._mask_consts()}

        def body(state: State, slices: list[Value], c: Consts, step: Value) -> Any:
            joined = tuple(self._joined(slices[i : i + self.D]) for i in range(0, len(slices), self.D))
            new, out = cell(state, joined, c, self._alive(step, c))
            return new, [part for o in out for part in self._parted(o)]

        # A step from zeros is no loop: its product with the state goes. One from a state is, for kernels' sake.
        if self.T == 1 and self.count is None and all(splat(v) == 0 for v in first):
            final, flat = body(first, [reshape(x, x.shape[1:]) for x in xs], fixed, constant(0))
            flat = [expand_dims(v, 0) for v in flat]
        else:
            final, flat = self._scan(body, first, xs, fixed, outs)
        return final, [flat[i * self.D : (i + 1) * self.D] for i in range(outs)]

    def _scan(self, body: Any, first: State, xs: list[Value], fixed: Consts, outs: int) -> Any:
        used = {k: v for k, v in fixed.items() if v is not None}
        absent = {k: None for k, v in fixed.items() if v is None}

        def cell(state: State, slices: Any, c: Consts, step: Value) -> Any:
            return body(state, slices, {**c, **absent}, step)

        flags = self.reverse[0] if self.D == 1 else self.reverse * (len(xs) // 2 + outs)
        return scan(
            cell, first, xs, (used,), length=self.T, reverse=flags, count=self.count, with_step=True, name="step"
        )

    def _mask_consts(self) -> Consts:
        """`time < lengths` as `way * step < bound`: bound = lengths forward, lengths - (n - 1) in
        reverse."""
        if self.lengths is None:
            return {}
        bounds = [self._bound(r) for r in self.reverse]
        if self.D == 1:
            return {"alive_bound": bounds[0]}
        ways = constant([-1 if r else 1 for r in self.reverse])
        both = concat([expand_dims(b, 0) for b in bounds], 0)
        return {"alive_bound": both, "alive_way": broadcast_in_dim(ways, (2, self.B), (0,))}

    def _bound(self, reverse: bool) -> Value:
        assert self.lengths is not None
        if not reverse:
            return self.lengths
        return self.lengths - (steps_that_run(self.count, self.T) - 1)

    def _alive(self, step: Value, c: Consts) -> Alive:
        bound, way = c.get("alive_bound"), c.get("alive_way")
        if bound is None:
            return Alive(None)
        at = e.negate(step) if self.D == 1 and self.reverse[0] else step
        wide = broadcast_in_dim(at, bound.shape, ())
        return Alive(e.less(wide if way is None else wide * way, bound))

    def _joined(self, parts: list[Value]) -> Value:
        return parts[0] if self.D == 1 else concat([expand_dims(p, 0) for p in parts], 0)

    def _parted(self, v: Value) -> list[Value]:
        if self.D == 1:
            return [v]
        return [reshape(slice_axis(v, 0, d, d + 1), v.shape[1:]) for d in range(2)]


def block(v: Value, k: int, width: int) -> Value:
    """Columns k*width .. (k+1)*width of the last axis."""
    return v if v.shape[-1] == width else slice_axis(v, v.rank - 1, k * width, (k + 1) * width)


def clipped(v: Value, limit: float) -> Value:
    """v held inside ±limit, 0 is off; NaN stays."""
    return e.clamp(-limit, v, limit) if limit > 0 else v


def time_major(v: Value, layout: str) -> Value:
    """[B,T,w] as [T,B,w] (and back) for layout batch."""
    return swapaxes(v, 0, 1) if layout == "batch" else v


def held_rows(f: Frame, y: Rows, final: Value, first: Value) -> Rows:
    """padding "hold" after `count`: forward the final state, in reverse the first."""
    if f.count is None:
        return y
    out = []
    for d, rows in enumerate(y):
        state = first if f.reverse[d] else final
        if f.D == 2:
            state = reshape(slice_axis(state, 0, d, d + 1), state.shape[1:])
        n = broadcast_in_dim(steps_that_run(f.count, f.T), rows.shape, ())
        held = broadcast_in_dim(state, rows.shape, (1, 2))
        out.append(e.select(e.less(iota(rows.shape, 0), n), rows, held))
    return out
