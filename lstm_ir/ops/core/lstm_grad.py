"""`lstm_grad`: the gradients of `lstm` from its saved results, as one `scan` that goes back, and sums
over all rows after it (equations: docs/gradients.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ops.core.backward import Back, before_gate, plus
from lstm_ir.ops.core.frame import Alive, Consts, Rows, State, block
from lstm_ir.ops.core.grad import define_gradient, gradients, with_saved
from lstm_ir.ops.core.lstm import CELL, LSTM, bias, peepholes
from lstm_ir.ops.core.operands import LayerPlan
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.fill import zeros_like
from lstm_ir.ops.primitive.shape import concat


def _expand(*operands: Value | None, **a: Any) -> dict[str, Value | None]:
    """One gradient per present operand."""
    operands = with_saved(LSTM, operands, a, ("gates", "cells"))
    k = Back.of(CELL, LSTM, operands, a)
    p = k.p
    s = _LstmSaved(k)
    rows: dict[str, Rows | None] = {
        "gates": s.gates, "before": s.c_prev, "activated": s.activated,
        "cells": s.cells if a["cell_clip"] > 0 and a["clip_gradient"] == "exact" else None,
        "pre": s.pre(),
    }  # fmt: skip
    rows |= {n: k.rows(n) for n in ("d_y", "d_gates", "d_cells", "d_activated")}
    there = {n: r for n, r in rows.items() if r is not None}
    late, early = k.held()
    first = (plus(k.state("d_h_n", p.P), late), k.state("d_c_n", p.H))
    projected = p.v["w_hr"] is not None

    def cell(state: State, slices: State, c: Consts, alive: Alive) -> tuple[State, State]:
        row: Consts = dict.fromkeys(rows) | dict(zip(there, slices, strict=True))
        return _step(p, state, row, c, alive)

    consts = p.inside("w_hh", "w_hr", "recurrent_mask") | peepholes(p)
    final, out = k.f.loop(cell, first, list(there.values()), consts, 2 if projected else 1)
    return _results(k, s, out, (plus(final[0], early), final[1]))


class _LstmSaved:
    """The saved values by direction, those that are absent derived."""

    def __init__(self, k: Back) -> None:
        self.k = k
        gates, cells = k.rows("gates"), k.rows("cells")
        assert gates is not None
        assert cells is not None
        self.gates, self.cells = gates, cells
        given = k.rows("activated")
        self.activated = given if given is not None else self._activated()
        self.c_prev = k.previous(cells, k.p.f.state(k.p.v["c0"], k.p.H))
        self._h_prev: Rows | None = None

    def _activated(self) -> Rows:
        acts = self.k.p.act(4)
        return [act.build(c) for act, c in zip(acts, self.cells, strict=True)]

    def m(self) -> Rows:
        """o * act_h(c): h before the projection."""
        pairs = zip(self.gates, self.activated, strict=True)
        return [self.k.only(block(g, 3, self.k.p.H) * v) for g, v in pairs]

    def h_prev(self) -> Rows:
        """h of the step before."""
        if self._h_prev is None:
            k, y = self.k, self.k.rows("y")
            if y is None:
                w_hr = k.f.inside(k.p.v["w_hr"])
                y = self.m() if w_hr is None else k.through(self.m(), w_hr, transposed=True)
            self._h_prev = k.previous(y, k.p.f.state(k.p.v["h0"], k.p.P))
        return self._h_prev

    def pre(self) -> Rows | None:
        """The pre-activations, which alone tell what gate_clip held; None without it."""
        k, p = self.k, self.k.p
        if p.a["gate_clip"] == 0:
            return None
        c = p.inside("w_ih", "w_hh")
        w_ih, w_hh, b, peep = c["w_ih"], c["w_hh"], bias(p), peepholes(p)
        assert w_hh is not None
        recurrent = k.through(k.masked(self.h_prev()), w_hh, transposed=True)
        x = k.x_rows()
        given = x if w_ih is None else k.through(x, w_ih, transposed=True)
        out = []
        for d, (u, v) in enumerate(zip(given, recurrent, strict=True)):
            pre = u + v
            if b is not None:
                pre = pre + broadcast_in_dim(k.direction(b, d), pre.shape, (2,))
            out.append(self._peeped(pre, peep, d))
        return out

    def _peeped(self, pre: Value, peep: Consts, d: int) -> Value:
        if all(v is None for v in peep.values()):
            return pre
        old = self.c_prev[d]
        seen = self.k.only(self.cells[d]) if self.k.p.a["output_peephole"] == "new" else old
        parts = []
        for i, (name, cell) in enumerate({"p_i": old, "p_f": old, "p_g": old, "p_o": seen}.items()):
            part, w = block(pre, i, self.k.p.H), peep[name]
            if w is not None:
                part = part + broadcast_in_dim(self.k.direction(w, d), part.shape, (2,)) * cell
            parts.append(part)
        return concat(parts, 2)


def _step(p: LayerPlan, state: State, row: Consts, c: Consts, alive: Alive) -> tuple[State, State]:
    """One step back: carries dh and dc, rows da [B,4H] and, with a projection, what reached h."""
    dh, dc = state
    d_h = plus(dh, row["d_y"])
    w_hr, w_hh = c["w_hr"], c["w_hh"]
    assert w_hh is not None
    d_m = d_h if w_hr is None else p.f.dot(d_h, w_hr, transposed=False)
    da, new_dc = _cell(p, d_m, dc, row, c)
    back = p.f.dot(da, w_hh, transposed=False)
    mask = c["recurrent_mask"]
    back = back if mask is None else back * mask
    passed = d_h if p.a["padding"] == "hold" else dh
    rows = (alive.choose(da), alive.choose(d_h))
    carries = (alive.choose(back, passed), alive.choose(new_dc, dc))
    return carries, rows if w_hr is not None else rows[:1]


def _cell(p: LayerPlan, d_m: Value, dc: Value, row: Consts, c: Consts) -> tuple[Value, Value]:
    """da [B,4H] and the gradient of the cell before, from that of m = o * act_h(c)."""
    gates, act, old, arriving = row["gates"], row["activated"], row["before"], row["d_gates"]
    assert gates is not None
    assert act is not None
    assert old is not None
    H = p.H
    i, f, g, o = (block(gates, n, H) for n in range(4))
    to = [None if arriving is None else block(arriving, n, H) for n in range(4)]
    da_o = before_gate(p, 3, o, plus(d_m * act, to[3]), row["pre"])
    d_act = plus(d_m * o, row["d_activated"])
    d_c = plus(dc, row["d_cells"], d_act * p.f.slope(p.act(4), act))
    new = p.a["output_peephole"] == "new"
    if new:
        d_c = plus(d_c, _weighed(p, c["p_o"], da_o))
    cells = row["cells"]
    if cells is not None:  # where the clip held the cell, nothing passes
        d_c = e.select(e.less(e.abs(cells), p.a["cell_clip"]), d_c, constant(0, d_c.dtype))
    d_i, d_f, d_g = plus(d_c * g, to[0]), plus(d_c * old, to[1]), plus(d_c * i, to[2])
    if p.a["input_forget"]:
        d_i = d_i - d_f
        da_f = zeros_like(d_f)
    else:
        da_f = before_gate(p, 1, f, d_f, row["pre"])
    da_i = before_gate(p, 0, i, d_i, row["pre"])
    da_g = before_gate(p, 2, g, d_g, row["pre"])
    before = plus(
        d_c * f,
        _weighed(p, c["p_i"], da_i),
        None if p.a["input_forget"] else _weighed(p, c["p_f"], da_f),
        _weighed(p, c["p_g"], da_g),
        None if new else _weighed(p, c["p_o"], da_o),
    )
    return concat([da_i, da_f, da_g, da_o], da_i.rank - 1), before


def _weighed(p: LayerPlan, weights: Value | None, da: Value) -> Value | None:
    return None if weights is None else p.f.columns(weights, da) * da


def _results(k: Back, s: _LstmSaved, out: list[Rows], final: State) -> dict[str, Value | None]:
    """Gradients by result, for every operand that is there."""
    p, da = k.p, out[0]
    builders: dict[str, Callable[[], Value]] = {
        "x": lambda: k.d_x(da),
        "w_ih": lambda: k.products(da, k.x_rows()),
        "w_hh": lambda: k.products(da, k.masked(s.h_prev())),
        "b": lambda: k.sums(da),
        "h0": lambda: p.final(final[0]),
        "c0": lambda: p.final(final[1]),
        "w_hr": lambda: k.products(out[1], s.m()),
        "peephole": lambda: _d_peephole(k, s, da),
        "recurrent_mask": lambda: k.d_mask(da, s.h_prev()),
    }
    return {f"d_{n}": None if p.v[n] is None else build() for n, build in builders.items()}


def _d_peephole(k: Back, s: _LstmSaved, da: Rows) -> Value:
    H, v = k.p.H, k.p.v["peephole"]
    assert v is not None
    gates = (0, 1, 2, 3) if v.shape[1] == 4 * H else (0, 1, 3)
    parts = []
    for d, rows in enumerate(da):
        new = k.only(s.cells[d]) if k.p.a["output_peephole"] == "new" else s.c_prev[d]
        seen = {0: s.c_prev[d], 1: s.c_prev[d], 2: s.c_prev[d], 3: new}
        parts.append(concat([block(rows, n, H) * seen[n] for n in gates], 2))
    return k.sums(parts)


LSTM_GRAD = define_gradient(LSTM, CELL, _expand)


class LSTMGradients(NamedTuple):
    """One gradient per operand of `lstm`; None where the operand is absent."""

    d_x: Value
    d_w_ih: Value | None
    d_w_hh: Value
    d_b: Value | None
    d_h0: Value | None
    d_c0: Value | None
    d_w_hr: Value | None
    d_peephole: Value | None
    d_recurrent_mask: Value | None


def lstm_grad(x: Any, w_ih: Any, w_hh: Any, b: Any = None, h0: Any = None, c0: Any = None, **more: Any) -> Any:
    """The gradients of `lstm` for gradients d_y, d_h_n, d_c_n, d_gates, d_cells, d_activated.

    Takes lstm's operands and attributes, then y, gates, cells, activated, which are trusted where
    given and derived where not. Gives one gradient per operand, in the form with the axis D.
    """
    given = {"x": x, "w_ih": w_ih, "w_hh": w_hh, "b": b, "h0": h0, "c0": c0, **more}
    return LSTMGradients(**gradients(LSTM_GRAD, given))
