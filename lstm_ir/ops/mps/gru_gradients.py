"""`mps.GRUGradients`: MPSGraph's backward GRU. Not checked on Apple hardware.

sourceGradient is the gradient of h, zState and outputFwd are the forward results z and h. Per
direction, from the last processed step back, h' being outputFwd of the step processed before (at
the first step initState) and hm = h' * mask:

    dh = stateGradient or 0
    at t:  dh += sourceGradient[t]
        dz = dh * (h' - o)    do = dh * (1 - z)    dp = dh * z
        flipZ: dz = dh * (o - h')    do = dh * z    dp = dh * (1 - z)
        da_o = do * f_o'
        v = da_o R_o    dr = v * hm    q = v * r    dR_o += da_o^T (hm * r)
        resetAfter: u = hm R_o^T + b2    dr = da_o * u    du = da_o * r    q = du R_o
                    dR_o += du^T hm    d b2 += du
        da_z = dz * f_z'    da_r = dr * f_r'    dR_z += da_z^T hm    dR_r += da_r^T hm
        dh = dp + (q + da_z R_z + da_r R_r) * mask
    d initState = dh    d source, d W, d bias from da as for the LSTM

Results in Apple's order: source, recurrentWeight, inputWeight, bias, initState, secondaryBias;
the last comes after the state, while the LSTM's peephole comes before the states. A nil operand has
none. A secondaryBias without resetAfter has the gradient zero [I]. Each gradient has its operand's
shape [I].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lstm_ir.ir.graph import Value
from lstm_ir.ir.opdef import Level, define
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.core.gru_grad import gru_grad
from lstm_ir.ops.mps import contract as mc
from lstm_ir.ops.mps import meaning as mn
from lstm_ir.ops.mps.gru import ATTRS, check, core_operands, gate_order, inner, matrix
from lstm_ir.ops.mps.layout import named
from lstm_ir.ops.primitive.fill import zeros_like
from lstm_ir.ops.primitive.shape import reshape

OPERANDS = (
    "source recurrentWeight sourceGradient zState outputFwd stateGradient? "
    "inputWeight? bias? initState? mask? secondaryBias?"
)
NAMES = mc.names(OPERANDS)
RESULTS = "source recurrentWeight inputWeight bias initState secondaryBias"


def _types(*operands: Any, **a: Any) -> dict[str, TensorType | None]:
    v = dict(zip(NAMES, operands, strict=True))
    s = check(v, a)
    mc.rows("sourceGradient", v["sourceGradient"], s)
    mc.rows("zState", v["zState"], s, 3)
    mc.rows("outputFwd", v["outputFwd"], s)
    mc.state("stateGradient", v["stateGradient"], s)
    return mc.gradient_types(v, RESULTS)


def _numpy(*arrays: Any, **a: Any) -> list[mn.Array]:
    v = mn.named(NAMES, arrays)
    return mn.gradients([_direction(w, a) for w in mn.Direction.all(v, a, 3)], v, RESULTS)


def _direction(w: mn.Direction, a: Mapping[str, Any]) -> dict[str, mn.Array]:
    """The gradients of one direction's part of every operand."""
    order = gate_order(a)
    R = matrix(w, order)
    arriving, h, saved = w.rows("sourceGradient"), w.rows("outputFwd"), w.rows("zState")
    da, db2, dh = w.empty(3), np.zeros(w.H, w.kind), w.state("stateGradient")
    dR = {n: np.zeros_like(k) for n, k in R.items()}
    for t, before in w.backwards():
        y = mn.gates_of(saved[t], order)
        h_prev = w.state("initState") if before is None else h[before]
        hm = w.masked(h_prev)
        dh = dh + arriving[t]
        d_o, d_z, passed = _mix(dh, y, h_prev, a["flipZ"])
        d_o = d_o * mn.slope(a["outputGateActivation"], y["o"])
        if a["resetAfter"]:
            d_r, du = d_o * inner(w, hm, order), d_o * y["r"]
            dR["o"] += du.T @ hm
            db2 += du.sum(0)
            q = du @ R["o"]
        else:
            back = d_o @ R["o"]
            d_r, q = back * hm, back * y["r"]
            dR["o"] += d_o.T @ (hm * y["r"])
        d_z = d_z * mn.slope(a["updateGateActivation"], y["z"])
        d_r = d_r * mn.slope(a["resetGateActivation"], y["r"])
        dR["z"] += d_z.T @ hm
        dR["r"] += d_r.T @ hm
        da[t] = mn.in_order({"z": d_z, "r": d_r, "o": d_o}, order)
        dh = passed + w.masked(q + d_z @ R["z"] + d_r @ R["r"])
    rows = np.concatenate([dR[n] for n in order], axis=0)
    return w.common(da, rows, dh) | {"secondaryBias": db2}


def _mix(dh: mn.Array, y: Mapping[str, mn.Array], h_prev: mn.Array, flip: bool) -> tuple[mn.Array, mn.Array, mn.Array]:
    """do, dz, and what passes to h of the step before."""
    z, o = y["z"], y["o"]
    if flip:
        return dh * z, dh * (o - h_prev), dh * (1 - z)
    return dh * (1 - z), dh * (h_prev - o), dh * z


def _expand(*values: Value | None, **a: Any) -> dict[str, Value]:
    v = named(NAMES, values)
    k, given = core_operands(v, a)
    d = gru_grad(
        **given,
        y=v["outputFwd"],
        gates=k.gates(k.there("zState")),
        d_y=v["sourceGradient"],
        d_h_n=k.state("stateGradient"),
    )
    out = k.back(d)
    b2 = v["secondaryBias"]
    if b2 is not None:
        out["secondaryBias"] = reshape(d.d_b_hn, b2.shape) if a["resetAfter"] else zeros_like(b2)
    return out


GRU_GRADIENTS = define(
    "mps.GRUGradients",
    OPERANDS,
    attrs=ATTRS,
    results=RESULTS,
    types=_types,
    numpy=_numpy,
    vjp=None,
    expand=_expand,
    level=Level.composite,
)
