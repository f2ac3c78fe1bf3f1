"""`lstm` as one `scan` of primitives (equations: lstm.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ops.core.frame import Alive, Consts, State, block, clipped
from lstm_ir.ops.core.lstm import DEFAULT_ACTS, OPERANDS
from lstm_ir.ops.core.operands import Cell, Plan, masked
from lstm_ir.ops.primitive.shape import concat

CELL = Cell.of(OPERANDS, 4, DEFAULT_ACTS)


def expand(*operands: Value | None, **a: Any) -> dict[str, Value]:
    """The results of `lstm` by one `scan`."""
    p = Plan.of(CELL, operands, a)
    f = p.f
    first = (f.state(p.v["h0"], p.P), f.state(p.v["c0"], p.H))
    saved = a["save"]

    def cell(state: State, rows: State, c: Consts, alive: Alive) -> tuple[State, State]:
        h, old = state
        w_hh, w_hr = c["w_hh"], c["w_hr"]
        assert w_hh is not None
        pre = p.input_part(rows[0], c, alive) + f.dot(masked(h, c["recurrent_mask"]), w_hh)
        gates, new, act = _cell(p, pre, old, c)
        m = gates[3] * act
        out = m if w_hr is None else f.dot(m, w_hr)
        held = alive.choose(out, h)
        kept = (concat(list(gates), gates[0].rank - 1), new, act) if saved else ()
        rows_out = (p.hold_or_zero(alive, out, held), *map(alive.choose, kept))
        return (held, alive.choose(new, old)), rows_out

    consts = p.inside("w_ih", "w_hh", "w_hr", "recurrent_mask") | {"b": bias(p), **peepholes(p)}
    final, out = f.loop(cell, first, [p.x_rows], consts, 4 if saved else 1)
    y = p.y_rows(out[0], final[0], first[0])
    results = {"y": p.result(y), "h_n": p.final(final[0]), "c_n": p.final(final[1])}
    names = ("gates", "cells", "activated")
    return results | {n: p.result(r) for n, r in zip(names, out[1:], strict=False)}


def bias(p: Plan) -> Value | None:
    """Bias with forget_bias in the f block."""
    b = p.f.inside(p.v["b"])
    if p.a["forget_bias"] == 0:
        return b
    extra = np.zeros((p.f.D, 4, p.H), p.f.dtype.numpy)
    extra[:, 1] = p.a["forget_bias"]
    row = constant(extra.reshape((4 * p.H,) if p.f.D == 1 else (2, 4 * p.H)))
    return row if b is None else b + row


def peepholes(p: Plan) -> Consts:
    """p_i, p_f, p_g, p_o; None where there is none."""
    names = ["p_i", "p_f", "p_g", "p_o"]
    out: Consts = dict.fromkeys(names)
    v = p.f.inside(p.v["peephole"])
    if v is None:
        return out
    if v.shape[-1] != 4 * p.H:
        names.remove("p_g")
    return out | {n: block(v, k, p.H) for k, n in enumerate(names)}


def _cell(p: Plan, pre: Value, old: Value, c: Consts) -> tuple[State, Value, Value]:
    """(i, f, g, o), the new cell, and its activation."""
    ai, af, ag, ao = (block(pre, k, p.H) for k in range(4))
    ai, af, ag = (peeped(p, v, old, c[n]) for v, n in ((ai, "p_i"), (af, "p_f"), (ag, "p_g")))
    limit = p.a["gate_clip"]
    i = p.f.apply(p.act(0), clipped(ai, limit))
    f = 1.0 - i if p.a["input_forget"] else p.f.apply(p.act(1), clipped(af, limit))
    g = p.f.apply(p.act(2), clipped(ag, limit))
    new = clipped(f * old + i * g, p.a["cell_clip"])
    ao = peeped(p, ao, new if p.a["output_peephole"] == "new" else old, c["p_o"])
    o = p.f.apply(p.act(3), clipped(ao, limit))
    return (i, f, g, o), new, p.f.apply(p.act(4), new)


def peeped(p: Plan, pre: Value, cell: Value, weights: Value | None) -> Value:
    """A pre-activation with its peephole."""
    return pre if weights is None else pre + p.f.columns(weights, pre) * cell
