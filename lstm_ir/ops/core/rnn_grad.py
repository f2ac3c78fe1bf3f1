"""`rnn_grad`: the gradients of `rnn` from its saved results, as one `scan` that goes back, and sums
over all rows after it (equations: docs/gradients.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lstm_ir.ir.graph import Value
from lstm_ir.ops.core.backward import Back, before_gate, plus
from lstm_ir.ops.core.frame import Alive, Consts, Rows, State, clipped
from lstm_ir.ops.core.grad import define_gradient, gradients, with_saved
from lstm_ir.ops.core.operands import LayerPlan, masked
from lstm_ir.ops.core.rnn import CELL, RNN
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim


def _expand(*operands: Value | None, **a: Any) -> dict[str, Value | None]:
    """One gradient per present operand."""
    operands = with_saved(RNN, operands, a, ("y", "pre"), either=True)
    k = Back.of(CELL, RNN, operands, a)
    p = k.p
    y = _y(k)
    h_prev = k.previous(y, p.f.state(p.v["h0"], p.H))
    rows: dict[str, Rows | None] = {"y": y, "pre": _pre(k, h_prev)}
    rows |= {n: k.rows(n) for n in ("d_y", "d_pre")}
    there = {n: r for n, r in rows.items() if r is not None}
    late, early = k.held()

    def cell(state: State, slices: State, c: Consts, alive: Alive) -> tuple[State, State]:
        row: Consts = dict.fromkeys(rows) | dict(zip(there, slices, strict=True))
        return _step(p, state[0], row, c, alive)

    first = (plus(k.state("d_h_n", p.P), late),)
    consts = p.inside("w_hh", "recurrent_mask")
    final, out = k.f.loop(cell, first, list(there.values()), consts, 1)
    return _results(k, h_prev, out[0], plus(final[0], early))


def _y(k: Back) -> Rows:
    """h of every step; from the pre-activations where it is absent."""
    y, pre = k.rows("y"), k.rows("pre")
    if y is not None:
        return y
    assert pre is not None
    pairs = zip(k.p.act(0), pre, strict=True)
    return [act.build(clipped(v, k.p.a["gate_clip"])) for act, v in pairs]


def _pre(k: Back, h_prev: Rows) -> Rows | None:
    """The pre-activations, which alone tell what gate_clip held; None without it."""
    p = k.p
    if p.a["gate_clip"] == 0:
        return None
    given = k.rows("pre")
    if given is not None:
        return given
    x, w_ih, w_hh, b = k.x_rows(), *p.inside("w_ih", "w_hh", "b").values()
    assert w_hh is not None
    left = x if w_ih is None else k.through(x, w_ih, transposed=True)
    right = k.through(k.masked(h_prev), w_hh, transposed=True)
    out = [u + v for u, v in zip(left, right, strict=True)]
    if b is None:
        return out
    return [v + broadcast_in_dim(k.direction(b, d), v.shape, (2,)) for d, v in enumerate(out)]


def _step(p: LayerPlan, dh: Value, row: Consts, c: Consts, alive: Alive) -> tuple[State, State]:
    """One step back: carry dh, row da [B,H]."""
    d_h = plus(dh, row["d_y"])
    y, pre, w_hh = row["y"], row["pre"], c["w_hh"]
    assert y is not None
    assert w_hh is not None
    da = plus(before_gate(p, 0, y, d_h, pre), row["d_pre"])
    back = masked(p.f.dot(da, w_hh, transposed=False), c["recurrent_mask"])
    passed = d_h if p.a["padding"] == "hold" else dh
    return (alive.choose(back, passed),), (alive.choose(da),)


def _results(k: Back, h_prev: Rows, da: Rows, d_h0: Value) -> dict[str, Value | None]:
    """Gradients by result, for every operand that is there."""
    p = k.p

    builders: dict[str, Callable[[], Value]] = {
        "x": lambda: k.d_x(da),
        "w_ih": lambda: k.products(da, k.x_rows()),
        "w_hh": lambda: k.products(da, k.masked(h_prev)),
        "b": lambda: k.sums(da),
        "h0": lambda: p.final(d_h0),
        "recurrent_mask": lambda: k.d_mask(da, h_prev),
    }
    return {f"d_{n}": None if p.v[n] is None else build() for n, build in builders.items()}


RNN_GRAD = define_gradient(RNN, CELL, _expand)


class RNNGradients(NamedTuple):
    """One gradient per operand of `rnn`; None where the operand is absent."""

    d_x: Value
    d_w_ih: Value | None
    d_w_hh: Value
    d_b: Value | None
    d_h0: Value | None
    d_recurrent_mask: Value | None


def rnn_grad(x: Any, w_ih: Any, w_hh: Any, b: Any = None, h0: Any = None, **more: Any) -> Any:
    """The gradients of `rnn` for gradients d_y, d_h_n, d_pre.

    Takes rnn's operands and attributes, then y and pre, which are trusted where given and derived
    where not. Gives one gradient per operand, in the form with the axis D.
    """
    given = {"x": x, "w_ih": w_ih, "w_hh": w_hh, "b": b, "h0": h0, **more}
    return RNNGradients(**gradients(RNN_GRAD, given))
