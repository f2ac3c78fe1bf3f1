"""`rnn` as one `scan` of primitives (equations: rnn.py)."""

from __future__ import annotations

from typing import Any

from lstm_ir.ir.graph import Value
from lstm_ir.ops.core.frame import Alive, Consts, State, clipped
from lstm_ir.ops.core.operands import Cell, Plan, masked
from lstm_ir.ops.core.rnn import DEFAULT_ACTS, OPERANDS

CELL = Cell.of(OPERANDS, 1, DEFAULT_ACTS)


def expand(*operands: Value | None, **a: Any) -> dict[str, Value]:
    """The results of `rnn` by one `scan`."""
    p = Plan.of(CELL, operands, a)
    first = (p.f.state(p.v["h0"], p.H),)

    def cell(state: State, rows: State, c: Consts, alive: Alive) -> tuple[State, State]:
        (h,) = state
        w_hh = c["w_hh"]
        assert w_hh is not None
        pre = p.input_part(rows[0], c, alive) + p.f.dot(masked(h, c["recurrent_mask"]), w_hh)
        new = p.f.apply(p.act(0), clipped(pre, a["gate_clip"]))
        held = alive.choose(new, h)
        kept = (alive.choose(pre),) if a["save"] else ()
        return (held,), (p.hold_or_zero(alive, new, held), *kept)

    consts = p.inside("w_ih", "w_hh", "b", "recurrent_mask")
    final, out = p.f.loop(cell, first, [p.x_rows], consts, 2 if a["save"] else 1)
    results = {"y": p.result(p.y_rows(out[0], final[0], first[0])), "h_n": p.final(final[0])}
    return results | ({"pre": p.result(out[1])} if a["save"] else {})
