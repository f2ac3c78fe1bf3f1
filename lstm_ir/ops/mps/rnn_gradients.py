"""`mps.singleGateRNNGradients`: MPSGraph's backward plain RNN. Not checked on Apple hardware.

sourceGradient is the gradient of h, zState the forward result z, the pre-activation. Per direction,
from the last processed step back, h' being activation(zState) of the step processed before (at the
first step initState):

    dh = stateGradient or 0
    at t:  dh += sourceGradient[t]      da[t] = dh * f'      dh = (da[t] R) * mask
    d initState = dh    d R = sum da^T (h' * mask)    d source, d W, d bias from da as for the LSTM

Results in Apple's order: source, recurrentWeight, inputWeight, bias, initState; a nil operand has
none. Each gradient has its operand's shape [I].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lstm_ir.ir.graph import Value
from lstm_ir.ir.opdef import Level, define
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.core.rnn_grad import rnn_grad
from lstm_ir.ops.mps import contract as mc
from lstm_ir.ops.mps import meaning as mn
from lstm_ir.ops.mps.layout import named
from lstm_ir.ops.mps.rnn import ATTRS, check, core_operands

OPERANDS = "source recurrentWeight sourceGradient zState stateGradient? inputWeight? bias? initState? mask?"
NAMES = mc.names(OPERANDS)
RESULTS = "source recurrentWeight inputWeight bias initState"


def _types(*operands: Any, **a: Any) -> dict[str, TensorType | None]:
    v = dict(zip(NAMES, operands, strict=True))
    s = check(v, a)
    mc.rows("sourceGradient", v["sourceGradient"], s)
    mc.rows("zState", v["zState"], s)
    mc.state("stateGradient", v["stateGradient"], s)
    return mc.gradient_types(v, RESULTS)


def _numpy(*arrays: Any, **a: Any) -> list[mn.Array]:
    v = mn.named(NAMES, arrays)
    return mn.gradients([_direction(w, a) for w in mn.Direction.all(v, a, 1)], v, RESULTS)


def _direction(w: mn.Direction, a: Mapping[str, Any]) -> dict[str, mn.Array]:
    """The gradients of one direction's part of every operand."""
    arriving, h = w.rows("sourceGradient"), mn.act(a["activation"], w.rows("zState"))
    da, dR, dh = w.empty(), np.zeros_like(w.R), w.state("stateGradient")
    for t, before in w.backwards():
        h_prev = w.state("initState") if before is None else h[before]
        da[t] = (dh + arriving[t]) * mn.slope(a["activation"], h[t])
        dR += da[t].T @ w.masked(h_prev)
        dh = w.masked(da[t] @ w.R)
    return w.common(da, dR, dh)


def _expand(*values: Value | None, **a: Any) -> dict[str, Value]:
    v = named(NAMES, values)
    k, given = core_operands(v, a)
    d = rnn_grad(**given, pre=v["zState"], d_y=v["sourceGradient"], d_h_n=k.state("stateGradient"))
    return k.back(d)


RNN_GRADIENTS = define(
    "mps.singleGateRNNGradients",
    OPERANDS,
    attrs=ATTRS,
    results=RESULTS,
    types=_types,
    numpy=_numpy,
    vjp=None,
    expand=_expand,
    level=Level.composite,
)
