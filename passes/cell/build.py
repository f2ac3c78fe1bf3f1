"""From a matched cell to the operands of `lstm`, `gru` or `rnn`.

A gate's terms are sorted into products with the old state (w_hh), products with input rows (w_ih),
biases (b) and the rest. Where every gate has products with the same rows and nothing else is left,
those rows are x; otherwise the whole of what does not depend on the old state is computed for all
steps, and given as an x that is projected already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lstm_ir import ops
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.passes.cell.activation import activation
from lstm_ir.passes.cell.match import CellMatch
from lstm_ir.passes.cell.terms import Bias, Dot, NoCellError, Other, Term, Terms


class CellSite(Protocol):
    """Where a cell was found: how to name its values outside."""

    T: Dim

    def fixed(self, v: Value) -> Value:
        """A weight, outside."""
        ...

    def rows(self, v: Value) -> Value:
        """[T,...] of a value that does not depend on the old states."""
        ...


@dataclass
class Gate:
    """One gate's terms."""

    state: list[Dot]
    inputs: list[Dot]
    biases: list[Bias]
    others: list[Other]


@dataclass
class CellParts:
    """What the op is made of: one entry per gate, in the op's order, and b_hn of a GRU."""

    cell: CellMatch
    h: Value
    gates: list[Gate]
    inner_bias: list[Bias]
    reset_after: bool = True


def sorted_terms(terms: Sequence[Term], h: Value) -> Gate:
    """Terms by role, where h is the old state."""
    gate = Gate([], [], [], [])
    for t in terms:
        if isinstance(t, Bias):
            gate.biases.append(t)
        elif isinstance(t, Other):
            gate.others.append(t)
        else:
            (gate.state if t.row is h else gate.inputs).append(t)
    return gate


def operands(plan: CellParts, site: CellSite, B: Dim) -> dict[str, Value | None]:
    """x, w_ih, w_hh, b and, of a GRU, b_hn."""
    H, gates = plan.cell.width, plan.gates
    if any(len(g.state) != 1 for g in gates):
        raise NoCellError("a gate does not have one product with the old state", plan.cell.new[0])
    w_hh = _wide([_matrix(g.state[0], site) for g in gates])
    rows = _common_rows(gates)
    out: dict[str, Value | None] = {"w_hh": w_hh, "b_hn": None}
    if rows is not None:
        xs = [_flat(site.rows(r), B, site) for r in rows]
        out["x"] = ops.concat(xs, 2)
        parts = [ops.concat([_matrix(d, site) for d in _in_order(g, rows)], 1) for g in gates]
        out["w_ih"] = _wide(parts)
    else:
        out["x"] = ops.concat([_projected(g, H, B, site, plan) for g in gates], 2)
        out["w_ih"] = None
    out["b"] = _bias([g.biases for g in gates], H, site, w_hh.dtype)
    if plan.inner_bias:
        out["b_hn"] = _bias([plan.inner_bias], H, site, w_hh.dtype)
    return out


def _common_rows(gates: Sequence[Gate]) -> list[Value] | None:
    """The input rows, if all gates multiply the same ones and nothing else is added."""
    rows = [d.row for d in gates[0].inputs]
    if not rows or len(set(rows)) != len(rows) or any(g.others for g in gates):
        return None
    same = all({d.row for d in g.inputs} == set(rows) and len(g.inputs) == len(rows) for g in gates)
    return rows if same else None


def _in_order(gate: Gate, rows: Sequence[Value]) -> list[Dot]:
    by_row = {d.row: d for d in gate.inputs}
    return [by_row[r] for r in rows]


def _matrix(d: Dot, site: CellSite) -> Value:
    """[H, K]: rows are output units."""
    w = slice_axis(site.fixed(d.matrix), d.axis, d.first, d.first + d.width)
    w = slice_axis(w, 1 - d.axis, d.low, d.high)
    return ops.transpose(w) if d.axis == 0 else w


def _wide(parts: Sequence[Value]) -> Value:
    """[1, G*H, K]."""
    return ops.expand_dims(ops.concat(parts, 0), 0)


def _flat(v: Value, B: Dim, site: CellSite) -> Value:
    """[T, B, K]."""
    return ops.reshape(v, (site.T, B, v.shape[-1]))


def _projected(gate: Gate, H: int, B: Dim, site: CellSite, plan: CellParts) -> Value:
    """What a gate is given at every step, [T,B,H]."""
    parts = []
    for o in gate.others:
        parts.append(slice_axis(_flat(site.rows(o.value), B, site), 2, o.low, o.high))
    for d in gate.inputs:
        parts.append(ops.dot_general(_flat(site.rows(d.row), B, site), _matrix(d, site), ((2,), (1,))))
    if not parts:
        return ops.zeros((site.T, B, H), plan.h.dtype)
    total = parts[0]
    for p in parts[1:]:
        total = ops.add(total, p)
    return total


def _bias(gates: Sequence[Sequence[Bias]], H: int, site: CellSite, dtype: DType) -> Value | None:
    """[1, G*H], the sum of every gate's biases; None where there are none."""
    most = max(len(g) for g in gates)
    total: Value | None = None
    for k in range(most):
        row = ops.concat([_vector(g[k], H, site) if k < len(g) else ops.zeros((H,), dtype) for g in gates], 0)
        total = row if total is None else ops.add(total, row)
    return None if total is None else ops.expand_dims(total, 0)


def _vector(b: Bias, H: int, site: CellSite) -> Value:
    number = splat(b.vector)
    if number is not None:
        return ops.full((H,), number, b.vector.dtype)
    v = site.fixed(b.vector)
    if v.rank == 0:
        return ops.broadcast_to(v, (H,))
    if v.op == "broadcast_in_dim" and v.node.inputs[0].rank == 0:
        return ops.broadcast_to(v.node.inputs[0], (H,))
    if v.rank > 1:
        last = v.shape[-1]
        v = ops.reshape(v, (last,))
    return slice_axis(v, 0, b.low, b.high)


def gru_plan(cell: CellMatch, h: Value) -> CellParts:
    """The gates r, z, n of a GRU; r is found inside n."""
    terms, (z_pre, n_pre), H = cell.terms, cell.gates, cell.width
    n_terms = terms.of(n_pre, 0, H)
    found = _reset_after(n_terms, terms, h)
    found = _reset_before(n_terms, terms, h) if found is None else found
    if found is None:
        raise NoCellError("the candidate is not tanh(.. + r * product) or tanh(.. + product of r * h)", cell.new[0])
    reset, (low, high), n_gate, inner_bias, after = found
    opened = activation(reset, terms)
    if opened is None:
        raise NoCellError("what resets the state is not an activation", reset)
    gates = [sorted_terms(terms.of(opened[1], low, high), h), sorted_terms(terms.of(z_pre, 0, H), h)]
    acts = (opened[0], *cell.acts)
    full = CellMatch("gru", cell.new, cell.old, cell.gates, acts, terms, cell.flip_z)
    return CellParts(full, h, [*gates, n_gate], inner_bias, after)


Found = tuple[Value, tuple[int, int], Gate, list[Bias], bool]
"""The reset gate and its columns, the candidate's terms, the bias inside, whether the reset comes after the product."""


def _reset_after(n_terms: Sequence[Term], terms: Terms, h: Value) -> Found | None:
    """n = act(a + r * (R h + b_hn))."""
    for t in n_terms:
        if not isinstance(t, Other) or t.value.op != "multiply":
            continue
        a, b = t.value.node.inputs
        for r, product in ((a, b), (b, a)):
            inside = terms.fresh()
            gate = sorted_terms(inside.of(product, t.low, t.high), h)
            if len(gate.state) == 1 and not gate.inputs and not gate.others:
                terms.inner |= inside.inner | {t.value.node}
                rest = sorted_terms([u for u in n_terms if u is not t], h)
                if not rest.state:
                    n = Gate(gate.state, rest.inputs, rest.biases, rest.others)
                    return r, (t.low, t.high), n, gate.biases, True
    return None


def _reset_before(n_terms: Sequence[Term], terms: Terms, h: Value) -> Found | None:
    """n = act(a + R (r * h))."""
    for t in n_terms:
        if not isinstance(t, Dot) or t.row.op != "multiply":
            continue
        a, b = t.row.node.inputs
        for r, state in ((a, b), (b, a)):
            if terms.fresh().peel(state) is h:
                terms.inner.add(t.row.node)
                rest = sorted_terms([u for u in n_terms if u is not t], h)
                if not rest.state:
                    n = Gate([t], rest.inputs, rest.biases, rest.others)
                    return r, (0, t.width), n, [], False
    return None


def plain_plan(cell: CellMatch, h: Value) -> CellParts:
    """The gates of an LSTM or an RNN."""
    return CellParts(cell, h, [sorted_terms(cell.terms.of(v, 0, cell.width), h) for v in cell.gates], [])
