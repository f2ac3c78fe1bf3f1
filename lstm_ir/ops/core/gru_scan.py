"""`gru` as one `scan` of primitives (equations: gru.py)."""

from __future__ import annotations

from typing import Any

from lstm_ir.ir.graph import Value
from lstm_ir.ops.core.frame import Alive, Consts, State, block, clipped
from lstm_ir.ops.core.gru import DEFAULT_ACTS, OPERANDS
from lstm_ir.ops.core.operands import Cell, Plan, masked
from lstm_ir.ops.primitive.shape import concat
from lstm_ir.ops.primitive.window import slice_axis

CELL = Cell.of(OPERANDS, 3, DEFAULT_ACTS)


def expand(*operands: Value | None, **a: Any) -> dict[str, Value]:
    """The results of `gru` by one `scan`."""
    p = Plan.of(CELL, operands, a)
    first = (p.f.state(p.v["h0"], p.H),)
    extra = (2 if a["reset_after"] else 1) if a["save"] else 0

    def cell(state: State, rows: State, c: Consts, alive: Alive) -> tuple[State, State]:
        (h,) = state
        given = p.input_part(rows[0], c, alive)
        gates, k = _gates(p, given, masked(h, c["recurrent_mask"]), c)
        _, z, n = gates
        new = (1.0 - z) * h + z * n if a["flip_z"] else z * h + (1.0 - z) * n
        held = alive.choose(new, h)
        kept = [concat(list(gates), n.rank - 1), k][:extra]
        rows_out = (
            p.hold_or_zero(alive, new, held),
            *(alive.choose(v) for v in kept if v is not None),
        )
        return (held,), rows_out

    consts = p.inside("w_ih", "b", "b_hn", "recurrent_mask") | recurrent_weights(p)
    final, out = p.f.loop(cell, first, [p.x_rows], consts, 1 + extra)
    results = {"y": p.result(p.y_rows(out[0], final[0], first[0])), "h_n": p.final(final[0])}
    return results | {n: p.result(r) for n, r in zip(("gates", "inner"), out[1:], strict=False)}


def recurrent_weights(p: Plan) -> Consts:
    """w_hh whole where one product serves all gates; cut behind r and z where n waits for r."""
    w = p.f.inside(p.v["w_hh"])
    assert w is not None
    if p.a["reset_after"]:
        return {"w_hh": w}
    axis = w.rank - 2
    return {
        "w_rz": slice_axis(w, axis, 0, 2 * p.H),
        "w_n": slice_axis(w, axis, 2 * p.H, 3 * p.H),
    }


def _gates(p: Plan, given: Value, hm: Value, c: Consts) -> tuple[State, Value | None]:
    """(r, z, n) and, with reset_after, what r multiplies."""
    H, limit = p.H, p.a["gate_clip"]
    ar, az, an = (block(given, k, H) for k in range(3))
    k: Value | None = None
    weights = c["w_hh"] if p.a["reset_after"] else c["w_rz"]
    assert weights is not None
    rec = p.f.dot(hm, weights)
    r = p.f.apply(p.act(0), clipped(ar + block(rec, 0, H), limit))
    z = p.f.apply(p.act(1), clipped(az + block(rec, 1, H), limit))
    if p.a["reset_after"]:
        k, b_hn = block(rec, 2, H), c["b_hn"]
        if b_hn is not None:
            k = k + p.f.columns(b_hn, k)
        n = an + r * k
    else:
        w_n = c["w_n"]
        assert w_n is not None
        n = an + p.f.dot(r * hm, w_n)
    return (r, z, p.f.apply(p.act(2), clipped(n, limit))), k
