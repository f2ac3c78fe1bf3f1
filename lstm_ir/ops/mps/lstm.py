"""`mps.LSTM`: MPSGraph's LSTM. Not checked on Apple hardware.

Per direction, with hm = h[t-1] * mask, gate blocks i, f, z, o (forgetGateLast: i, z, f, o):

    a    = source[t] W^T + bias + hm R^T + peephole * [c[t-1] four times]
    i, f, z, o = the four gate activations of a
    c[t] = f * c[t-1] + i * z                  h[t] = o * activation(c[t])

One bias; the peephole acts on all four gates and always on the previous cell; the mask has no time
axis and touches neither h nor c. Without inputWeight the source is added as it is. Results h, c
[T,N,D*H] and z [T,N,D*4H] stay at the time of their source; z holds i, f, z, o after activation.

Choices where Apple's text is silent [I] or contradicts itself [D!], listed in
docs/mpsgraph-choices.md: [h, c, z] with training alone [D!]; hardSigmoid clamp(0.2 x + 0.5, 0, 1)
[I]; the order of z under forgetGateLast and of its directions [I]; the mask's shape [I]; reverse
results at source time [I]; initCell a cell, though called h[-1] [D!]; peephole [8H] as [2,4H] [D!].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lstm_ir.ir.graph import Value
from lstm_ir.ir.opdef import Attr, Level, define
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.core.lstm import CELL, lstm
from lstm_ir.ops.mps import activations as ma
from lstm_ir.ops.mps import contract as mc
from lstm_ir.ops.mps import meaning as mn
from lstm_ir.ops.mps.layout import MpsOperands, Order, Values, named
from lstm_ir.ops.mps.vjp import by_gradients

OPERANDS = "source recurrentWeight inputWeight? bias? initState? initCell? mask? peephole?"
NAMES = mc.names(OPERANDS)
GATES = ("i", "f", "z", "o")
FORGET_LAST = ("i", "z", "f", "o")
GATE_ATTRS = {
    "i": "inputGateActivation",
    "f": "forgetGateActivation",
    "z": "cellGateActivation",
    "o": "outputGateActivation",
}
ATTRS = {
    **mc.DIRECTION,
    "produceCell": Attr("bool", False),
    "training": Attr("bool", False),
    "forgetGateLast": Attr("bool", False),
    "inputGateActivation": Attr("str", "sigmoid"),
    "forgetGateActivation": Attr("str", "sigmoid"),
    "cellGateActivation": Attr("str", "tanh"),
    "outputGateActivation": Attr("str", "sigmoid"),
    "activation": Attr("str", "tanh"),
}


def gate_order(a: Mapping[str, Any]) -> Order:
    """Gate blocks of every operand and of z."""
    return FORGET_LAST if a["forgetGateLast"] else GATES


def check(v: mc.Types, a: Mapping[str, Any]) -> mc.MpsSizes:
    """The sizes, every forward operand and attribute checked."""
    for attr in (*GATE_ATTRS.values(), "activation"):
        ma.check(attr, a[attr])
    s = mc.sizes(v, a, 4)
    mc.state("initCell", v["initCell"], s)
    p = v["peephole"]
    if s.D == 2 and (p is None or p.rank != 1):
        mc.exactly("peephole", p, s, (2, 4 * s.H), "[2,4H]")
    else:
        mc.exactly("peephole", p, s, (s.D * 4 * s.H,), f"[{s.width(4)}]")
    return s


def _types(*operands: Any, **a: Any) -> dict[str, TensorType | None]:
    s = check(dict(zip(NAMES, operands, strict=True)), a)
    return {
        "h": s.rows(),
        "c": s.rows() if a["produceCell"] or a["training"] else None,
        "z": s.rows(4) if a["training"] else None,
    }


def _numpy(*arrays: Any, **a: Any) -> list[mn.Array]:
    v = mn.named(NAMES, arrays)
    parts = [_direction(w, a) for w in mn.Direction.all(v, a, 4)]
    present = ("h", "c", "z") if a["training"] else ("h", "c") if a["produceCell"] else ("h",)
    return mn.side_by_side(parts, present)


def _direction(w: mn.Direction, a: Mapping[str, Any]) -> dict[str, mn.Array]:
    """h, c, z of one direction."""
    order, given, peephole = gate_order(a), w.given(), w.vector("peephole")
    out = {"h": w.empty(), "c": w.empty(), "z": w.empty(4)}
    h, c = w.state("initState"), w.state("initCell")
    for t in w.times:
        pre = given[t] + w.masked(h) @ w.R.T
        if peephole is not None:
            pre = pre + peephole * mn.in_order(dict.fromkeys(order, c), order)
        g = {n: mn.act(a[GATE_ATTRS[n]], k) for n, k in mn.gates_of(pre, order).items()}
        c = g["f"] * c + g["i"] * g["z"]
        h = g["o"] * mn.act(a["activation"], c)
        out["h"][t], out["c"][t], out["z"][t] = h, c, mn.in_order(g, order)
    return out


def core_operands(v: Values, a: Mapping[str, Any]) -> tuple[MpsOperands, dict[str, Any]]:
    """The layout, and the operands and attributes of the core op `lstm`."""
    k = MpsOperands.of(v, a, gate_order(a), GATES)
    names = tuple(a[n] for n in (*GATE_ATTRS.values(), "activation"))
    return k, {
        **k.shared(),
        "c0": k.state("initCell"),
        "peephole": k.vector("peephole"),
        "output_peephole": "previous",
        "activations": ma.core_names(names, CELL.acts, k.D),
    }


def _expand(*values: Value | None, **a: Any) -> dict[str, Value]:
    k, given = core_operands(named(NAMES, values), a)
    if not (a["training"] or a["produceCell"]):
        return {"h": lstm(**given).y}
    out = lstm(**given, save=True)
    return {"h": out.y, "c": out.cells, "z": k.gates_back(out.gates)}


LSTM = define(
    "mps.LSTM",
    OPERANDS,
    attrs=ATTRS,
    results="h c z",
    types=_types,
    numpy=_numpy,
    vjp=by_gradients,
    expand=_expand,
    level=Level.composite,
)
