"""The recurrent op for a matched cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lstm_ir import ops
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.opdef import OPS
from lstm_ir.ops.core import gru, lstm, rnn
from lstm_ir.passes.cell.build import CellParts, CellSite, operands
from lstm_ir.passes.cell.terms import NoCellError

CELLS = {c.op: c for c in (lstm.CELL, gru.CELL, rnn.CELL)}


def batch(v: Value) -> Dim:
    """B of a state [B,H] with any axes of size 1 beside."""
    wide = [d for d in v.shape[:-1] if d != 1]
    if v.rank == 0 or len(wide) > 1:
        raise NoCellError(f"a state is {v.type}, not [B,H]", v)
    return wide[0] if wide else 1


def recurrent(
    plan: CellParts, site: CellSite, states: Sequence[Value], *, direction: str = "forward",
    save: bool = False, padding: str = "zero", lengths: Value | None = None,
    count: Value | None = None,
) -> Node:  # fmt: skip
    """The op over the cell's operands; `states` are h0 (and c0) outside."""
    cell = plan.cell
    kind = cell.new[0].dtype
    if not kind.is_float:
        raise NoCellError(f"the op computes in floats, the cell in {kind}", cell.new[0])
    if kind.bits == 16:
        raise NoCellError(f"the op computes in f32 inside, the cell in {kind}", cell.new[0])
    B, H = batch(cell.new[0]), cell.width
    given = operands(plan, site, B)
    named = {f"{k}0": ops.reshape(v, (1, B, H)) for k, v in zip("hc", states, strict=False)}
    named |= {k: v for k, v in given.items() if v is not None}
    named |= {k: v for k, v in (("lengths", lengths), ("count", count)) if v is not None}
    op = OPS[cell.op]
    args = tuple(named.get(o.name) for o in op.operands)
    acts = () if cell.acts == CELLS[cell.op].acts else cell.acts
    attrs: dict[str, Any] = {"direction": direction, "save": save, "padding": padding, "activations": acts}
    if cell.op == "gru":
        attrs |= {"flip_z": cell.flip_z, "reset_after": plan.reset_after}
    return make(op, *args, **attrs)
