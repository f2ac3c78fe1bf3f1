"""`mps.singleGateRNN`: MPSGraph's plain RNN. Not checked on Apple hardware.

    z[t] = source[t] W^T + bias + (h[t-1] * mask) R^T          h[t] = activation(z[t])

The default activation is relu. Without inputWeight the source is added as it is. Results h and,
with training, z, both [T,N,D*H]; z is the pre-activation here, unlike the LSTM's and the GRU's.
Choices (docs/mpsgraph-choices.md): the mask's shape, and source time of reverse results [I].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lstm_ir.ir.graph import Value
from lstm_ir.ir.opdef import Attr, Level, define
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.core.rnn import CELL, rnn
from lstm_ir.ops.mps import activations as ma
from lstm_ir.ops.mps import contract as mc
from lstm_ir.ops.mps import meaning as mn
from lstm_ir.ops.mps.layout import MpsOperands, Values, named
from lstm_ir.ops.mps.vjp import by_gradients

OPERANDS = "source recurrentWeight inputWeight? bias? initState? mask?"
NAMES = mc.names(OPERANDS)
GATES = ("z",)
ATTRS = {**mc.DIRECTION, "training": Attr("bool", False), "activation": Attr("str", "relu")}


def check(v: mc.Types, a: Mapping[str, Any]) -> mc.MpsSizes:
    """The sizes, every forward operand and attribute checked."""
    ma.check("activation", a["activation"])
    return mc.sizes(v, a, 1)


def _types(*operands: Any, **a: Any) -> dict[str, TensorType | None]:
    s = check(dict(zip(NAMES, operands, strict=True)), a)
    return {"h": s.rows(), "z": s.rows() if a["training"] else None}


def _numpy(*arrays: Any, **a: Any) -> list[mn.Array]:
    v = mn.named(NAMES, arrays)
    parts = [_direction(w, a) for w in mn.Direction.all(v, a, 1)]
    return mn.side_by_side(parts, ("h", "z") if a["training"] else ("h",))


def _direction(w: mn.Direction, a: Mapping[str, Any]) -> dict[str, mn.Array]:
    """h, z of one direction."""
    given, h = w.given(), w.state("initState")
    out = {"h": w.empty(), "z": w.empty()}
    for t in w.times:
        out["z"][t] = given[t] + w.masked(h) @ w.R.T
        out["h"][t] = h = mn.act(a["activation"], out["z"][t])
    return out


def core_operands(v: Values, a: Mapping[str, Any]) -> tuple[MpsOperands, dict[str, Any]]:
    """The layout, and the operands and attributes of the core op `rnn`."""
    k = MpsOperands.of(v, a, GATES, GATES)
    return k, k.shared() | {"activations": ma.core_names((a["activation"],), CELL.acts, k.D)}


def _expand(*values: Value | None, **a: Any) -> dict[str, Value]:
    _, given = core_operands(named(NAMES, values), a)
    if not a["training"]:
        return {"h": rnn(**given).y}
    out = rnn(**given, save=True)
    return {"h": out.y, "z": out.pre}


RNN = define(
    "mps.singleGateRNN",
    OPERANDS,
    attrs=ATTRS,
    results="h z",
    types=_types,
    numpy=_numpy,
    vjp=by_gradients,
    expand=_expand,
    level=Level.composite,
)
