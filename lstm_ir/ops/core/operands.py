"""The operands of one recurrent layer as its loop has them: time-major, widened, in a frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.core import frame
from lstm_ir.ops.core import sizes as layer_sizes
from lstm_ir.ops.core.activations import Act
from lstm_ir.ops.core.cell import Cell
from lstm_ir.ops.core.frame import Alive, Consts, Frame, Rows
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.precision import in_compute_dtype
from lstm_ir.ops.primitive.size import in_range


@dataclass(frozen=True)
class LayerPlan:
    """Frame, sizes, attributes, activations per direction, and operands by name."""

    f: Frame
    H: int
    P: int
    a: Mapping[str, Any]
    acts: tuple[tuple[Act, ...], ...]
    v: Mapping[str, Value | None]
    kind: DType

    @classmethod
    def of(cls, cell: Cell, operands: tuple[Value | None, ...], a: Mapping[str, Any]) -> LayerPlan:
        """The plan of the forward operands (those that follow are left out) and attributes."""
        given = operands[: len(cell.names)]
        v = {n: None if o is None else in_compute_dtype(o) for n, o in zip(cell.names, given, strict=True)}
        x, w_hh = v["x"], v["w_hh"]
        assert x is not None
        assert w_hh is not None
        v["x"] = x = frame.time_major(x, a["layout"])
        if v["lengths"] is not None:
            v["lengths"] = in_range(v["lengths"], 0, x.shape[0])
        way = layer_sizes.DIRECTIONS[a["direction"]]
        f = Frame(x.shape[0], x.shape[1], way, x.dtype, v["lengths"], v["count"])
        wide, P = w_hh.shape[1], w_hh.shape[2]
        assert isinstance(wide, int)
        assert isinstance(P, int)
        first = operands[0]
        assert first is not None
        acts = layer_sizes.acts(a["activations"], cell.acts, f.D)
        return cls(f, wide // len(cell.gates), P, a, acts, v, first.dtype)

    @property
    def x(self) -> Value:
        """x [T,B,I]."""
        x = self.v["x"]
        assert x is not None
        return x

    @property
    def x_rows(self) -> Rows:
        """What every direction reads of x: all of it, or its part of an x that is projected."""
        return [self.x] * self.f.D if self.v["w_ih"] is not None else self.f.split(self.x)

    def act(self, k: int) -> tuple[Act, ...]:
        """Activation k of every direction."""
        return tuple(row[k] for row in self.acts)

    def inside(self, *names: str) -> Consts:
        """Operands as the loop has them."""
        return {n: self.f.inside(self.v[n]) for n in names}

    def input_part(self, x: Value, c: Consts, alive: Alive) -> Value:
        """W x + b, [B,G*H]: what does not depend on the state, first, so that it can leave the
        loop."""
        w_ih, b = c["w_ih"], c["b"]
        x = alive.choose(x)
        pre = x if w_ih is None else self.f.dot(x, w_ih)
        return pre if b is None else pre + self.f.columns(b, pre)

    def hold_or_zero(self, alive: Alive, new: Value, held: Value) -> Value:
        """y of a step: where the row does not exist, zero or the held state."""
        return held if self.a["padding"] == "hold" else alive.choose(new)

    def y_rows(self, rows: Rows, final: Value, first: Value) -> Rows:
        """y of all steps, those after `count` included."""
        hold = self.a["padding"] == "hold"
        return frame.held_rows(self.f, rows, final, first) if hold else rows

    def result(self, rows: Rows) -> Value:
        """Rows of the loop as the op gives them."""
        return e.convert(frame.time_major(self.f.join(rows), self.a["layout"]), self.kind)

    def final(self, state: Value) -> Value:
        """A final state as the op gives it."""
        return e.convert(self.f.outside(state), self.kind)


def masked(h: Value, mask: Value | None) -> Value:
    """h on its way into the recurrent weights."""
    return h if mask is None else h * mask
