"""`lstm`: a whole layer, one or two directions.

Gates i, f, g, o lie in this order in blocks of H rows; rows of a weight are output units, as in
PyTorch and cuDNN. Per direction and step, with hm = recurrent_mask * h[t-1], and p the peephole
vectors:

    a  = W x[t] + R hm + b         a_f += forget_bias         a_k += p_k * c[t-1], k = i, f (and g)
    i, f, g = act(a_i), act(a_f), act(a_g)                        input_forget: f = 1 - i
    c  = f * c[t-1] + i * g             held inside ±cell_clip
    a_o += p_o * c                      output_peephole "previous": p_o * c[t-1]
    o  = act_o(a_o)                     gate_clip holds every a inside its limit
    m  = o * act_h(c)
    h  = m, or w_hr m with a projection

Sources: Hochreiter & Schmidhuber 1997; Gers, Schmidhuber & Cummins 2000 (forget gate); Gers &
Schmidhuber 2000 (peepholes); Sak, Senior & Beaufays 2014 (projection); Greff et al. 2017 (coupled
gates). docs/core-ops.md has the operand table, docs/gradients.md the backward equations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.no_operand import several
from lstm_ir.ir.opdef import Attr, need
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.core import sizes as layer_sizes
from lstm_ir.ops.core.build import layer_node
from lstm_ir.ops.core.cell import Cell
from lstm_ir.ops.core.frame import Alive, Consts, State, block, clipped
from lstm_ir.ops.core.grad import define_layer
from lstm_ir.ops.core.meaning import Array, LayerMeaning, clip, gate_values, start
from lstm_ir.ops.core.operands import LayerPlan, masked
from lstm_ir.ops.primitive.numpy_math import wide
from lstm_ir.ops.primitive.shape import concat


class LstmOperands(NamedTuple):
    """Types, arrays or values of the operands; None where one is absent."""

    x: Any
    w_ih: Any
    w_hh: Any
    b: Any
    h0: Any
    c0: Any
    w_hr: Any
    peephole: Any
    lengths: Any
    count: Any
    recurrent_mask: Any


CELL = Cell("lstm", LstmOperands, ("i", "f", "g", "o"), ("sigmoid", "sigmoid", "tanh", "sigmoid", "tanh"))
ATTRS = {
    **layer_sizes.SHARED_ATTRS, "forget_bias": Attr("float", 0.0), "cell_clip": Attr("float", 0.0),
    "clip_gradient": Attr("str", "exact"), "input_forget": Attr("bool", False),
    "output_peephole": Attr("str", "new"),
}  # fmt: skip


def _sizes(v: LstmOperands, a: dict[str, Any]) -> layer_sizes.Sizes:
    """The sizes, every operand and attribute checked."""
    s = layer_sizes.sizes(CELL, v.x, v.w_ih, v.w_hh, a["direction"], a["layout"], v.w_hr)
    layer_sizes.exactly("b", v.b, s, (s.D, 4 * s.H))
    layer_sizes.first_state("h0", v.h0, s, s.P, v.b)
    layer_sizes.exactly("c0", v.c0, s, (s.D, s.B, s.H))
    if v.peephole is not None:
        k = 4 if v.peephole.rank == 2 and v.peephole.shape[1] == 4 * s.H else 3
        layer_sizes.exactly("peephole", v.peephole, s, (s.D, k * s.H))
    layer_sizes.check_masks(s, v.lengths, v.count, v.recurrent_mask)
    layer_sizes.one_of("padding", a["padding"], ("zero", "hold"))
    need(a["clip_gradient"] != "true", "clip_gradient is 'true', which is called 'exact' now")
    layer_sizes.one_of("clip_gradient", a["clip_gradient"], ("exact", "straight_through"))
    layer_sizes.one_of("output_peephole", a["output_peephole"], ("new", "previous"))
    layer_sizes.clip_limit("cell_clip", a["cell_clip"])
    layer_sizes.clip_limit("gate_clip", a["gate_clip"])
    need(bool(np.isfinite(a["forget_bias"])), f"forget_bias is {a['forget_bias']}")
    layer_sizes.acts(a["activations"], CELL.acts, s.D)
    return s


def _types(*operands: TensorType | None, **a: Any) -> dict[str, TensorType | None]:
    s, saved = _sizes(LstmOperands(*operands), a), a["save"]
    return {
        "y": s.rows(s.P), "h_n": s.state(s.P), "c_n": s.state(s.H),
        "gates": s.rows(4 * s.H) if saved else None,
        "cells": s.rows(s.H) if saved else None,
        "activated": s.rows(s.H) if saved else None,
    }  # fmt: skip


def _numpy(*operands: Any, direction: str, layout: str, padding: str, **a: Any) -> list[Array]:
    v = LstmOperands(*map(wide, operands))
    layer = LayerMeaning(v.x, v.lengths, v.count, direction=direction, layout=layout, padding=padding)
    D, G, P = v.w_hh.shape
    H, kind = G // 4, layer.x.dtype
    acts = layer_sizes.acts(a["activations"], CELL.acts, D)
    for d in range(D):
        inputs = layer.inputs(d, v.w_ih, G)
        p = _peephole_arrays(v.peephole, d, H)

        def step(t: int, alive: Array, state: Any, d: int = d, p: Any = p, inputs: Any = inputs) -> Any:
            h, c = state
            hm = h if v.recurrent_mask is None else h * v.recurrent_mask[d]
            pre = inputs(t, alive) + hm @ v.w_hh[d].T
            if v.b is not None:
                pre = pre + v.b[d]
            i, f, g, o, new, act = _step_arrays(pre, c, p, acts[d], a)
            m = o * act
            h = m if v.w_hr is None else m @ v.w_hr[d].T
            return (h, new), (h, np.concatenate([i, f, g, o], axis=1), new, act)

        first = (start(v.h0, d, layer.B, P, kind), start(v.c0, d, layer.B, H, kind))
        layer.run(d, first, (P, G, H, H), step)
    return layer.results(a["save"])


def _peephole_arrays(peephole: Array | None, d: int, H: int) -> list[Array | None]:
    """p_i, p_f, p_g, p_o of direction d; None is no term, where zeros would make NaN of a cell that is infinite."""
    if peephole is None:
        return [None] * 4
    parts: list[Array | None] = list(np.split(peephole[d], peephole.shape[1] // H if H else 4))
    if len(parts) == 3:
        parts.insert(2, None)
    return parts


def _step_arrays(pre: Array, c: Array, p: Any, acts: Any, a: Any) -> tuple[Array, ...]:
    """i, f, g, o, the new cell, and its activation."""
    limit = a["gate_clip"]
    ai, af, ag, ao = np.split(pre, 4, axis=1)
    af = af + pre.dtype.type(a["forget_bias"])
    ai, af, ag = (v if w is None else v + w * c for v, w in zip((ai, af, ag), p[:3], strict=True))
    i, f, g = gate_values((ai, af, ag), acts, limit)
    if a["input_forget"]:
        f = 1 - i
    new = clip(f * c + i * g, a["cell_clip"])
    if p[3] is not None:
        ao = ao + p[3] * (new if a["output_peephole"] == "new" else c)
    o = acts[3].numpy(clip(ao, limit))
    return i, f, g, o, new, acts[4].numpy(new)


def _expand(*operands: Value | None, **a: Any) -> dict[str, Value]:
    """The results of `lstm` by one `scan`."""
    p = LayerPlan.of(CELL, operands, a)
    f = p.f
    first = (f.state(p.v["h0"], p.P), f.state(p.v["c0"], p.H))
    saved = a["save"]

    def cell(state: State, rows: State, c: Consts, alive: Alive) -> tuple[State, State]:
        h, old = state
        w_hh, w_hr = c["w_hh"], c["w_hr"]
        assert w_hh is not None
        pre = p.input_part(rows[0], c, alive) + f.dot(masked(h, c["recurrent_mask"]), w_hh)
        gates, new, act = _step(p, pre, old, c)
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


def bias(p: LayerPlan) -> Value | None:
    """Bias with forget_bias in the f block."""
    b = p.f.inside(p.v["b"])
    if p.a["forget_bias"] == 0:
        return b
    extra = np.zeros((p.f.D, 4, p.H), p.f.dtype.numpy)
    extra[:, 1] = p.a["forget_bias"]
    row = constant(extra.reshape((4 * p.H,) if p.f.D == 1 else (2, 4 * p.H)))
    return row if b is None else b + row


def peepholes(p: LayerPlan) -> Consts:
    """p_i, p_f, p_g, p_o; None where there is none."""
    names = ["p_i", "p_f", "p_g", "p_o"]
    out: Consts = dict.fromkeys(names)
    v = p.f.inside(p.v["peephole"])
    if v is None:
        return out
    if v.shape[-1] != 4 * p.H:
        names.remove("p_g")
    return out | {n: block(v, k, p.H) for k, n in enumerate(names)}


def _step(p: LayerPlan, pre: Value, old: Value, c: Consts) -> tuple[State, Value, Value]:
    """(i, f, g, o), the new cell, and its activation."""
    ai, af, ag, ao = (block(pre, k, p.H) for k in range(4))
    ai, af, ag = (_peeped(p, v, old, c[n]) for v, n in ((ai, "p_i"), (af, "p_f"), (ag, "p_g")))
    limit = p.a["gate_clip"]
    i = p.f.apply(p.act(0), clipped(ai, limit))
    f = 1.0 - i if p.a["input_forget"] else p.f.apply(p.act(1), clipped(af, limit))
    g = p.f.apply(p.act(2), clipped(ag, limit))
    new = clipped(f * old + i * g, p.a["cell_clip"])
    ao = _peeped(p, ao, new if p.a["output_peephole"] == "new" else old, c["p_o"])
    o = p.f.apply(p.act(3), clipped(ao, limit))
    return (i, f, g, o), new, p.f.apply(p.act(4), new)


def _peeped(p: LayerPlan, pre: Value, cell: Value, weights: Value | None) -> Value:
    """A pre-activation with its peephole."""
    return pre if weights is None else pre + p.f.columns(weights, pre) * cell


LSTM = define_layer(CELL, ATTRS, "y h_n c_n gates cells activated", types=_types, numpy=_numpy, expand=_expand)


@several
class LSTMResult(NamedTuple):
    """y [T,B,D*P], h_n [D,B,P], c_n [D,B,H]."""

    y: Value
    h_n: Value
    c_n: Value


class SavedLSTM(NamedTuple):
    """LSTMResult and gates [T,B,D*4H], cells and activated [T,B,D*H]."""

    y: Value
    h_n: Value
    c_n: Value
    gates: Value
    cells: Value
    activated: Value


def lstm(
    x: Any,
    w_ih: Any,
    w_hh: Any,
    b: Any = None,
    h0: Any = None,
    c0: Any = None,
    *,
    w_hr: Any = None,
    peephole: Any = None,
    lengths: Any = None,
    count: Any = None,
    recurrent_mask: Any = None,
    direction: str = "forward",
    layout: str = "time",
    activations: tuple[str, ...] = (),
    forget_bias: float = 0.0,
    cell_clip: float = 0.0,
    clip_gradient: str = "exact",
    gate_clip: float = 0.0,
    input_forget: bool = False,
    output_peephole: str = "new",
    padding: str = "zero",
    save: bool = False,
) -> Any:
    """An LSTM layer: y [T,B,D*P], h_n [D,B,P], c_n [D,B,H]; save=True adds gates, cells, activated.

    x [T,B,I] (layout "batch": [B,T,I]), w_ih [D,4H,I] or None, w_hh [D,4H,P], b [D,4H], h0 [D,B,P],
    c0 [D,B,H], w_hr [D,P,H], peephole [D,3H] or [D,4H], lengths [B], count [] (i32 or i64), recurrent_mask
    [D,B,P]; the axis D may be left out of all but x when it is 1. Raises IRError for operands that
    do not fit.
    """
    node = layer_node(
        LSTM,
        LstmOperands(x, w_ih, w_hh, b, h0, c0, w_hr, peephole, lengths, count, recurrent_mask),
        direction=direction,
        layout=layout,
        activations=activations,
        forget_bias=forget_bias,
        cell_clip=cell_clip,
        clip_gradient=clip_gradient,
        gate_clip=gate_clip,
        input_forget=input_forget,
        output_peephole=output_peephole,
        padding=padding,
        save=save,
    )
    return (SavedLSTM if save else LSTMResult)(*node.values)
