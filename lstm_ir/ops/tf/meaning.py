"""One LSTM step of TensorFlow's block ops and its backward step, in NumPy.

    g    = [x | h_prev] @ w + b
    i    = s(gi + cs_prev*wci)      ci = tanh(gc)      f = s(gf + forget_bias + cs_prev*wcf)
    cs   = clip(i*ci + f*cs_prev)   co = tanh(cs)      o = s(go + cs*wco)      h = o*co

    do   = o*(1-o) * h_grad * co
    dcs  = (1-co*co) * h_grad * o + cs_grad + do*wco
    dci  = (1-ci*ci) * dcs * i      df = f*(1-f) * dcs * cs_prev      di = i*(1-i) * dcs * ci
    cs_prev_grad = dcs*f + di*wci + df*wcf

The backward step knows no clip: it passes gradients straight through (docs/tf-block-ops.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lstm_ir.ops.primitive.numpy_math import logistic, wide
from lstm_ir.ops.tf.contract import TfOperands

Array = np.ndarray[Any, Any]
Order = tuple[str, ...]
Peepholes = tuple[Array, Array, Array] | None


class StepResults(NamedTuple):
    """Results of one step in TensorFlow's order, each [B,C]."""

    i: Array
    cs: Array
    f: Array
    o: Array
    ci: Array
    co: Array
    h: Array


class Slopes(NamedTuple):
    """Gradients at one step: of the pre-activations, and of cs_prev; each [B,C]."""

    i: Array
    ci: Array
    f: Array
    o: Array
    cs_prev: Array


def forward_step(
    v: TfOperands, order: Order, use_peephole: bool, forget_bias: float, limit: float | None
) -> StepResults:
    """One step; the blocks of w and b stand in `order`."""
    pre = np.concatenate([v.x, v.h_prev], axis=1) @ v.w + v.b
    g: dict[str, Array] = dict(zip(order, np.split(pre, 4, axis=1), strict=True))
    gi, gf, go = g["i"], g["f"] + pre.dtype.type(forget_bias), g["o"]
    if use_peephole:
        gi, gf = gi + v.cs_prev * v.wci, gf + v.cs_prev * v.wcf
    i, ci, f = logistic(gi), np.tanh(g["ci"]), logistic(gf)
    cs = i * ci + f * v.cs_prev
    if limit is not None:
        bound = pre.dtype.type(limit)
        cs = np.minimum(np.maximum(cs, -bound), bound)
    if use_peephole:
        go = go + cs * v.wco
    o, co = logistic(go), np.tanh(cs)
    return StepResults(i, cs, f, o, ci, co, o * co)


def backward_step(
    s: Mapping[str, Array], cs_prev: Array, cs_grad: Array, h_grad: Array, peepholes: Peepholes
) -> Slopes:
    """The step's gradients from the saved i, f, o, ci, co, which are trusted."""
    i, f, o, ci, co = (s[n] for n in ("i", "f", "o", "ci", "co"))
    do = o * (1 - o) * h_grad * co
    dcs = (1 - co * co) * h_grad * o + cs_grad
    if peepholes is not None:
        dcs = dcs + do * peepholes[2]
    dci = (1 - ci * ci) * dcs * i
    df = f * (1 - f) * dcs * cs_prev
    di = i * (1 - i) * dcs * ci
    before = dcs * f
    if peepholes is not None:
        before = before + di * peepholes[0] + df * peepholes[1]
    return Slopes(di, dci, df, do, before)


def placed(d: Slopes, order: Order) -> Array:
    """The gate gradients side by side in `order`, [B,4C]."""
    return np.concatenate([getattr(d, name) for name in order], axis=1)


def peephole_part(d: Slopes, cs_prev: Array, cs: Array) -> Array:
    """Gradients of wci, wcf, wco at one step, [3,C]."""
    return np.stack([(d.i * cs_prev).sum(0), (d.f * cs_prev).sum(0), (d.o * cs).sum(0)])


def widened(*arrays: Array) -> tuple[Array, ...]:
    """Half and bfloat16 as float32."""
    return tuple(np.asarray(wide(a)) for a in arrays)
