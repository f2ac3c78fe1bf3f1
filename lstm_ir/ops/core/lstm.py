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
from lstm_ir.ir.opdef import Attr, Level, define, need
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.core import sizes as rt
from lstm_ir.ops.core.build import layer_node
from lstm_ir.ops.core.meaning import Array, Layer, State, clip, gate_values, start, wide

DEFAULT_ACTS = ("sigmoid", "sigmoid", "tanh", "sigmoid", "tanh")
OPERANDS = "x w_ih? w_hh b? h0? c0? w_hr? peephole? lengths? count? recurrent_mask?"
ATTRS = {
    **rt.SHARED_ATTRS, "forget_bias": Attr("float", 0.0), "cell_clip": Attr("float", 0.0),
    "clip_gradient": Attr("str", "true"), "input_forget": Attr("bool", False),
    "output_peephole": Attr("str", "new"),
}  # fmt: skip


def check(
    x: TensorType,
    w_ih: rt.Maybe,
    w_hh: TensorType,
    b: rt.Maybe,
    h0: rt.Maybe,
    c0: rt.Maybe,
    w_hr: rt.Maybe,
    peephole: rt.Maybe,
    lengths: rt.Maybe,
    count: rt.Maybe,
    recurrent_mask: rt.Maybe,
    **a: Any,
) -> rt.Sizes:
    """The sizes, every operand and attribute checked."""
    s = rt.sizes(x, w_ih, w_hh, 4, a["direction"], a["layout"], w_hr)
    rt.exactly("b", b, s, (s.D, 4 * s.H))
    rt.exactly("h0", h0, s, (s.D, s.B, s.P))
    rt.exactly("c0", c0, s, (s.D, s.B, s.H))
    if peephole is not None:
        k = 4 if peephole.rank == 2 and peephole.shape[1] == 4 * s.H else 3
        rt.exactly("peephole", peephole, s, (s.D, k * s.H))
    rt.check_masks(s, lengths, count, recurrent_mask)
    rt.one_of("padding", a["padding"], ("zero", "hold"))
    rt.one_of("clip_gradient", a["clip_gradient"], ("true", "straight_through"))
    rt.one_of("output_peephole", a["output_peephole"], ("new", "previous"))
    rt.clip_limit("cell_clip", a["cell_clip"])
    rt.clip_limit("gate_clip", a["gate_clip"])
    need(bool(np.isfinite(a["forget_bias"])), f"forget_bias is {a['forget_bias']}")
    rt.acts(a["activations"], DEFAULT_ACTS, s.D)
    return s


def _types(*operands: Any, **a: Any) -> dict[str, TensorType | None]:
    s = check(*operands, **a)
    saved = a["save"]
    return {
        "y": s.rows(s.P), "h_n": s.state(s.P), "c_n": s.state(s.H),
        "gates": s.rows(4 * s.H) if saved else None,
        "cells": s.rows(s.H) if saved else None,
        "activated": s.rows(s.H) if saved else None,
    }  # fmt: skip


def _numpy(
    x: Array,
    w_ih: Any,
    w_hh: Any,
    b: Any,
    h0: Any,
    c0: Any,
    w_hr: Any,
    peephole: Any,
    lengths: Any,
    count: Any,
    recurrent_mask: Any,
    *,
    direction: str,
    layout: str,
    padding: str,
    **a: Any,
) -> list[Array]:
    wides = (wide(v) for v in (x, w_ih, w_hh, b, h0, c0, w_hr, peephole, recurrent_mask))
    x, w_ih, w_hh, b, h0, c0, w_hr, peephole, recurrent_mask = wides  # type: ignore[assignment]
    layer = Layer(x, lengths, count, direction=direction, layout=layout, padding=padding)
    D, G, P = w_hh.shape
    H = G // 4
    acts = rt.acts(a["activations"], DEFAULT_ACTS, D)
    for d in range(D):
        given = layer.inputs(d, w_ih, G)
        p = _peepholes(peephole, d, H, x.dtype)

        def step(
            t: int, alive: Array, state: State, d: int = d, p: Any = p, given: Any = given
        ) -> Any:
            h, c = state
            hm = h if recurrent_mask is None else h * recurrent_mask[d]
            pre = given(t, alive) + hm @ w_hh[d].T
            if b is not None:
                pre = pre + b[d]
            i, f, g, o, new, act = _cell(pre, c, p, acts[d], a)
            m = o * act
            h = m if w_hr is None else m @ w_hr[d].T
            return (h, new), (h, np.concatenate([i, f, g, o], axis=1), new, act)

        first = (start(h0, d, layer.B, P, x.dtype), start(c0, d, layer.B, H, x.dtype))
        layer.run(d, first, (P, G, H, H), step)
    return layer.results(a["save"])


def _peepholes(peephole: Array | None, d: int, H: int, kind: Any) -> tuple[Array, ...] | None:
    """p_i, p_f, p_g, p_o of direction d."""
    if peephole is None:
        return None
    parts = np.split(peephole[d], peephole.shape[1] // H if H else 4)
    if len(parts) == 3:
        parts.insert(2, np.zeros(H, kind))
    return tuple(parts)


def _cell(pre: Array, c: Array, p: Any, acts: Any, a: Any) -> tuple[Array, ...]:
    """i, f, g, o, the new cell, and its activation."""
    limit = a["gate_clip"]
    ai, af, ag, ao = np.split(pre, 4, axis=1)
    af = af + pre.dtype.type(a["forget_bias"])
    if p is not None:
        ai, af, ag = ai + p[0] * c, af + p[1] * c, ag + p[2] * c
    i, f, g = gate_values((ai, af, ag), acts, limit)
    if a["input_forget"]:
        f = 1 - i
    new = clip(f * c + i * g, a["cell_clip"])
    if p is not None:
        ao = ao + p[3] * (new if a["output_peephole"] == "new" else c)
    o = acts[3].numpy(clip(ao, limit))
    return i, f, g, o, new, acts[4].numpy(new)


def _expand(*operands: Value | None, **a: Any) -> Any:
    from lstm_ir.ops.core.lstm_scan import expand

    return expand(*operands, **a)


def _vjp(node: Any, cts: Any) -> Any:
    from lstm_ir.ops.core.lstm_grad import lstm_vjp

    return lstm_vjp(node, cts)


LSTM = define(
    "lstm",
    OPERANDS,
    attrs=ATTRS,
    results="y h_n c_n gates cells activated",
    types=_types,
    numpy=_numpy,
    vjp=_vjp,
    expand=_expand,
    level=Level.core,
    ranges=rt.ranges,
)


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
    clip_gradient: str = "true",
    gate_clip: float = 0.0,
    input_forget: bool = False,
    output_peephole: str = "new",
    padding: str = "zero",
    save: bool = False,
) -> Any:
    """An LSTM layer: y [T,B,D*P], h_n [D,B,P], c_n [D,B,H]; save=True adds gates, cells, activated.

    x [T,B,I] (layout "batch": [B,T,I]), w_ih [D,4H,I] or None, w_hh [D,4H,P], b [D,4H], h0 [D,B,P],
    c0 [D,B,H], w_hr [D,P,H], peephole [D,3H] or [D,4H], lengths i32[B], count i32[], recurrent_mask
    [D,B,P]; the axis D may be left out of all but x when it is 1. Raises IRError for operands that
    do not fit.
    """
    node = layer_node(
        LSTM,
        (x, w_ih, w_hh, b, h0, c0, w_hr, peephole, lengths, count, recurrent_mask),
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
