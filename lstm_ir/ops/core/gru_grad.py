"""`gru_grad`: the gradients of `gru` from its saved results, as one `scan` that goes back, and sums
over all rows after it (equations: docs/gradients.md)."""

from __future__ import annotations

from typing import Any, NamedTuple

from lstm_ir.ir.graph import Value
from lstm_ir.ops.core.backward import Back, before_gate, plus
from lstm_ir.ops.core.frame import Alive, Consts, Rows, State, block
from lstm_ir.ops.core.grad import define_gradient, gradients, with_saved
from lstm_ir.ops.core.gru import CELL, GRU, recurrent_weights
from lstm_ir.ops.core.operands import LayerPlan, masked
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.reduce import sum as reduce_sum
from lstm_ir.ops.primitive.shape import concat
from lstm_ir.ops.primitive.window import slice_axis


def _expand(*operands: Value | None, **a: Any) -> dict[str, Value | None]:
    """One gradient per present operand."""
    operands = with_saved(GRU, operands, a, ("gates", "y"))
    k = Back.of(CELL, GRU, operands, a)
    p, s = k.p, _GruSaved(k)
    rows: dict[str, Rows | None] = {
        "gates": s.gates, "before": s.h_prev, "inner": s.inner if a["reset_after"] else None,
        "pre": s.pre(),
    }  # fmt: skip
    rows |= {n: k.rows(n) for n in ("d_y", "d_gates", "d_inner")}
    there = {n: r for n, r in rows.items() if r is not None}
    late, early = k.held()

    def cell(state: State, slices: State, c: Consts, alive: Alive) -> tuple[State, State]:
        row: Consts = dict.fromkeys(rows) | dict(zip(there, slices, strict=True))
        return _step(p, state[0], row, c, alive)

    consts = p.inside("recurrent_mask") | recurrent_weights(p)
    first = (plus(k.state("d_h_n", p.P), late),)
    final, out = k.f.loop(cell, first, list(there.values()), consts, 2 if a["reset_after"] else 1)
    return _results(k, s, out, plus(final[0], early))


class _GruSaved:
    """The saved values by direction, those that are absent derived."""

    def __init__(self, k: Back) -> None:
        self.k = k
        gates, y = k.rows("gates"), k.rows("y")
        assert gates is not None
        assert y is not None
        self.gates = gates
        self.h_prev = k.previous(y, k.p.f.state(k.p.v["h0"], k.p.H))
        self._inner = k.rows("inner")

    @property
    def w_hh(self) -> Value:
        """Recurrent weights as the loop has them."""
        w = self.k.f.inside(self.k.p.v["w_hh"])
        assert w is not None
        return w

    def weights(self, first: int, last: int) -> Value:
        """Gates first .. last of the recurrent weights."""
        H = self.k.p.H
        return slice_axis(self.w_hh, self.w_hh.rank - 2, first * H, last * H)

    @property
    def inner(self) -> Rows:
        """R_n hm + b_hn: what r multiplies."""
        if self._inner is None:
            k = self.k
            self._inner = k.through(k.masked(self.h_prev), self.weights(2, 3), transposed=True)
            b_hn = k.f.inside(k.p.v["b_hn"])
            if b_hn is not None:
                self._inner = [
                    v + broadcast_in_dim(k.direction(b_hn, d), v.shape, (2,)) for d, v in enumerate(self._inner)
                ]
        return self._inner

    def reset(self) -> Rows:
        """r * hm: what the candidate's weights multiply without reset_after."""
        pairs = zip(self.gates, self.k.masked(self.h_prev), strict=True)
        return [self.k.only(block(g, 0, self.k.p.H)) * h for g, h in pairs]

    def pre(self) -> Rows | None:
        """The pre-activations, which alone tell what gate_clip held; None without it."""
        k, p = self.k, self.k.p
        if p.a["gate_clip"] == 0:
            return None
        x, w_ih, b = k.x_rows(), k.f.inside(p.v["w_ih"]), k.f.inside(p.v["b"])
        given = x if w_ih is None else k.through(x, w_ih, transposed=True)
        rz = k.through(k.masked(self.h_prev), self.weights(0, 2), transposed=True)
        if p.a["reset_after"]:
            pairs = zip(self.gates, self.inner, strict=True)
            n = [k.only(block(g, 0, p.H) * v) for g, v in pairs]
        else:
            n = k.through(self.reset(), self.weights(2, 3), transposed=True)
        out = []
        for d, (u, v, w) in enumerate(zip(given, rz, n, strict=True)):
            pre = u + concat([v, w], 2)
            if b is not None:
                pre = pre + broadcast_in_dim(k.direction(b, d), pre.shape, (2,))
            out.append(pre)
        return out


def _step(p: LayerPlan, dh: Value, row: Consts, c: Consts, alive: Alive) -> tuple[State, State]:
    """One step back: carry dh, rows da [B,3H] and, with reset_after, the gradient of the
    product."""
    d_h = plus(dh, row["d_y"])
    gates, old, arriving, mask = row["gates"], row["before"], row["d_gates"], c["recurrent_mask"]
    assert gates is not None
    assert old is not None
    H = p.H
    r, z, n = (block(gates, k, H) for k in range(3))
    to = [None if arriving is None else block(arriving, k, H) for k in range(3)]
    if p.a["flip_z"]:
        d_z, d_n, direct = d_h * (n - old), d_h * z, d_h * (1.0 - z)
    else:
        d_z, d_n, direct = d_h * (old - n), d_h * (1.0 - z), d_h * z
    da_z = before_gate(p, 1, z, plus(d_z, to[1]), row["pre"])
    da_n = before_gate(p, 2, n, plus(d_n, to[2]), row["pre"])
    last = da_n.rank - 1
    if p.a["reset_after"]:
        inner, w_hh = row["inner"], c["w_hh"]
        assert inner is not None
        assert w_hh is not None
        da_r = before_gate(p, 0, r, plus(da_n * inner, to[0]), row["pre"])
        du = plus(da_n * r, row["d_inner"])
        back = p.f.dot(concat([da_r, da_z, du], last), w_hh, transposed=False)
        extra = [alive.choose(du)]
    else:
        w_rz, w_n = c["w_rz"], c["w_n"]
        assert w_rz is not None
        assert w_n is not None
        d_reset = p.f.dot(da_n, w_n, transposed=False)
        da_r = before_gate(p, 0, r, plus(d_reset * masked(old, mask), to[0]), row["pre"])
        back = p.f.dot(concat([da_r, da_z], last), w_rz, transposed=False) + d_reset * r
        extra = []
    new = direct + masked(back, mask)
    da = alive.choose(concat([da_r, da_z, da_n], last))
    passed = d_h if p.a["padding"] == "hold" else dh
    return (alive.choose(new, passed),), (da, *extra)


def _results(k: Back, s: _GruSaved, out: list[Rows], d_h0: Value) -> dict[str, Value | None]:
    """Gradients by result, for every operand that is there."""
    p, da, H = k.p, out[0], k.p.H
    du = out[1] if p.a["reset_after"] else [block(v, 2, H) for v in da]

    def d_w_hh() -> Value:
        if p.a["reset_after"]:
            whole = [concat([slice_axis(a, 2, 0, 2 * H), u], 2) for a, u in zip(da, du, strict=True)]
            return k.products(whole, k.masked(s.h_prev))
        rz = k.products([slice_axis(a, 2, 0, 2 * H) for a in da], k.masked(s.h_prev))
        return concat([rz, k.products(du, s.reset())], 1)

    def d_mask() -> Value:
        rz = [slice_axis(a, 2, 0, 2 * H) for a in da]
        reached = k.through(rz, s.weights(0, 2))
        n = k.through(du, s.weights(2, 3))
        total = []
        for d, (u, v) in enumerate(zip(reached, n, strict=True)):
            if not p.a["reset_after"]:
                v = v * k.only(block(s.gates[d], 0, H))
            total.append(reduce_sum((u + v) * s.h_prev[d], 0))
        return k.stacked(total)

    builders = {
        "x": lambda: k.d_x(da),
        "w_ih": lambda: k.products(da, k.x_rows()),
        "w_hh": d_w_hh,
        "b": lambda: k.sums(da),
        "b_hn": lambda: k.sums(du),
        "h0": lambda: p.final(d_h0),
        "recurrent_mask": d_mask,
    }
    return {f"d_{n}": None if p.v[n] is None else build() for n, build in builders.items()}


GRU_GRAD = define_gradient(GRU, CELL, _expand)


class GRUGradients(NamedTuple):
    """One gradient per operand of `gru`; None where the operand is absent."""

    d_x: Value
    d_w_ih: Value | None
    d_w_hh: Value
    d_b: Value | None
    d_b_hn: Value | None
    d_h0: Value | None
    d_recurrent_mask: Value | None


def gru_grad(x: Any, w_ih: Any, w_hh: Any, b: Any = None, h0: Any = None, **more: Any) -> Any:
    """The gradients of `gru` for gradients d_y, d_h_n, d_gates, d_inner.

    Takes gru's operands and attributes, then y, gates, inner, which are trusted where given and
    derived where not. Gives one gradient per operand, in the form with the axis D.
    """
    given = {"x": x, "w_ih": w_ih, "w_hh": w_hh, "b": b, "h0": h0, **more}
    return GRUGradients(**gradients(GRU_GRAD, given))
