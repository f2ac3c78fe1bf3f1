"""`mps.LSTMGradients`: MPSGraph's backward LSTM. Not checked on Apple hardware.

sourceGradient is the gradient of h (not of source, despite its name), zState and cellOutputFwd are
the forward results z and c, made with training. Per direction, from the last processed step back
(t' is the step processed before t; at the first step c' and h' are initCell and initState):

    dh = stateGradient, dc = cellGradient, or 0 [P: of the last step processed, backward: t = 0]
    at t:  dh += sourceGradient[t]           dc += dh * o * g'(c[t])
        da_i = dc * z * f_i'    da_f = dc * c' * f_f'    da_z = dc * i * f_z'
        da_o = dh * g(c[t]) * f_o'           da[t] = the four in gate order
        dc = dc * f + sum of p_k * da_k      dh = (da[t] R) * mask
    d initState = dh      d initCell = dc    d source = da W     d W = sum da^T source
    d R = sum da^T (h' * mask)    d bias = sum da    d peephole = sum da * [c' four times]

h' is rebuilt as o' * g(c') [I], since h is no operand. The mask does not multiply stateGradient
[I]: d initState of a later part of a sequence is the stateGradient of the part before it.

Results in Apple's order: source, recurrentWeight, inputWeight, bias, peephole, initState,
initCell; a nil operand has none. The descriptor is that of the forward call; its produceCell and
training have no effect [I]. Each gradient has its operand's shape [I; PyTorch saw a bidirectional
bias gradient of shape (1,1,8H)].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lstm_ir.ir.graph import Value
from lstm_ir.ir.opdef import Level, define
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.core.lstm_grad import lstm_grad
from lstm_ir.ops.mps import contract as mc
from lstm_ir.ops.mps import meaning as mn
from lstm_ir.ops.mps.layout import named
from lstm_ir.ops.mps.lstm import ATTRS, GATE_ATTRS, check, core_operands, gate_order

OPERANDS = (
    "source recurrentWeight sourceGradient zState cellOutputFwd stateGradient? cellGradient? "
    "inputWeight? bias? initState? initCell? mask? peephole?"
)
NAMES = mc.names(OPERANDS)
RESULTS = "source recurrentWeight inputWeight bias peephole initState initCell"


def _types(*operands: Any, **a: Any) -> dict[str, TensorType | None]:
    v = dict(zip(NAMES, operands, strict=True))
    s = check(v, a)
    mc.rows("sourceGradient", v["sourceGradient"], s)
    mc.rows("zState", v["zState"], s, 4)
    mc.rows("cellOutputFwd", v["cellOutputFwd"], s)
    mc.state("stateGradient", v["stateGradient"], s)
    mc.state("cellGradient", v["cellGradient"], s)
    return mc.gradient_types(v, RESULTS)


def _numpy(*arrays: Any, **a: Any) -> list[mn.Array]:
    v = mn.named(NAMES, arrays)
    return mn.gradients([_direction(w, a) for w in mn.Direction.all(v, a, 4)], v, RESULTS)


def _direction(w: mn.Direction, a: Mapping[str, Any]) -> dict[str, mn.Array]:
    """The gradients of one direction's part of every operand."""
    order, g_act = gate_order(a), a["activation"]
    arriving, cells = w.rows("sourceGradient"), w.rows("cellOutputFwd")
    saved, peephole = mn.gates_of(w.rows("zState"), order), w.vector("peephole")
    p = None if peephole is None else mn.gates_of(peephole, order)
    dh, dc = w.state("stateGradient"), w.state("cellGradient")
    da, dR = w.empty(4), np.zeros_like(w.R)
    dp = np.zeros(4 * w.H, w.kind)
    for t, before in w.backwards():
        y = {n: rows[t] for n, rows in saved.items()}
        if before is None:
            c_prev, h_prev = w.state("initCell"), w.state("initState")
        else:
            c_prev = cells[before]
            h_prev = saved["o"][before] * mn.act(g_act, c_prev)
        gc = mn.act(g_act, cells[t])
        dh = dh + arriving[t]
        dc = dc + dh * y["o"] * mn.slope(g_act, gc)
        d = {"i": dc * y["z"], "f": dc * c_prev, "z": dc * y["i"], "o": dh * gc}
        d = {n: k * mn.slope(a[GATE_ATTRS[n]], y[n]) for n, k in d.items()}
        da[t] = mn.in_order(d, order)
        dc = dc * y["f"]
        if p is not None:
            dc = dc + sum(p[n] * d[n] for n in order)
        dR += da[t].T @ w.masked(h_prev)
        dp += (da[t] * mn.in_order(dict.fromkeys(order, c_prev), order)).sum(0)
        dh = w.masked(da[t] @ w.R)
    return w.common(da, dR, dh) | {"initCell": dc, "peephole": dp}


def _expand(*values: Value | None, **a: Any) -> dict[str, Value]:
    v = named(NAMES, values)
    k, given = core_operands(v, a)
    d = lstm_grad(
        **given,
        gates=k.gates(k.there("zState")),
        cells=v["cellOutputFwd"],
        d_y=v["sourceGradient"],
        d_h_n=k.state("stateGradient"),
        d_c_n=k.state("cellGradient"),
    )
    out = k.back(d)
    if v["peephole"] is not None:
        out["peephole"] = k.vector_back("peephole", d.d_peephole)
    if v["initCell"] is not None:
        out["initCell"] = k.state_back("initCell", d.d_c0)
    return out


LSTM_GRADIENTS = define(
    "mps.LSTMGradients",
    OPERANDS,
    attrs=ATTRS,
    results=RESULTS,
    types=_types,
    numpy=_numpy,
    vjp=None,
    expand=_expand,
    level=Level.composite,
)
