"""`mps.GRU`: MPSGraph's GRU. Not checked on Apple hardware.

Per direction, with x' = source[t] W^T + bias, hm = h[t-1] * mask, gate blocks z, r, o
(resetGateFirst: r, z, o):

    z = f_z(x'_z + hm R_z^T)                   r = f_r(x'_r + hm R_r^T)
    k = (h[t-1] * r * mask) R_o^T              resetAfter: k = (hm R_o^T + secondaryBias) * r
    o = f_o(x'_o + k)
    h[t] = z * h[t-1] + (1 - z) * o            flipZ: h[t] = (1 - z) * h[t-1] + z * o

h[t-1] in the last line is not masked. secondaryBias acts under resetAfter alone. Without
inputWeight the source is added as it is. Results h [T,N,D*H] and, with training, z [T,N,D*3H].

Choices (docs/mpsgraph-choices.md): flipZ as the method pages have it, against the property page
[D!]; z holds the three gates after activation, in the order of the weights [I]; the mask's shape
and source time of reverse results [I].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.opdef import Attr, Level, define
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.core.gru import CELL, gru
from lstm_ir.ops.mps import activations as ma
from lstm_ir.ops.mps import contract as mc
from lstm_ir.ops.mps import meaning as mn
from lstm_ir.ops.mps.layout import MpsOperands, Order, Values, named
from lstm_ir.ops.mps.vjp import by_gradients
from lstm_ir.ops.primitive.fill import zeros_like
from lstm_ir.ops.primitive.shape import reshape

OPERANDS = "source recurrentWeight inputWeight? bias? initState? mask? secondaryBias?"
NAMES = mc.names(OPERANDS)
GATES = ("z", "r", "o")
RESET_FIRST = ("r", "z", "o")  # also the order of the core op
GATE_ATTRS = {"r": "resetGateActivation", "z": "updateGateActivation", "o": "outputGateActivation"}
ATTRS = {
    **mc.DIRECTION,
    "training": Attr("bool", False),
    "resetGateFirst": Attr("bool", False),
    "resetAfter": Attr("bool", False),
    "flipZ": Attr("bool", False),
    "updateGateActivation": Attr("str", "sigmoid"),
    "resetGateActivation": Attr("str", "sigmoid"),
    "outputGateActivation": Attr("str", "tanh"),
}


def gate_order(a: Mapping[str, Any]) -> Order:
    """Gate blocks of every operand and of z."""
    return RESET_FIRST if a["resetGateFirst"] else GATES


def check(v: mc.Types, a: Mapping[str, Any]) -> mc.MpsSizes:
    """The sizes, every forward operand and attribute checked."""
    for attr in GATE_ATTRS.values():
        ma.check(attr, a[attr])
    s = mc.sizes(v, a, 3)
    mc.exactly("secondaryBias", v["secondaryBias"], s, (s.D * s.H,), f"[{s.width(1)}]")
    return s


def _types(*operands: Any, **a: Any) -> dict[str, TensorType | None]:
    s = check(dict(zip(NAMES, operands, strict=True)), a)
    return {"h": s.rows(), "z": s.rows(3) if a["training"] else None}


def _numpy(*arrays: Any, **a: Any) -> list[mn.Array]:
    v = mn.named(NAMES, arrays)
    parts = [_direction(w, a) for w in mn.Direction.all(v, a, 3)]
    return mn.side_by_side(parts, ("h", "z") if a["training"] else ("h",))


def inner(w: mn.Direction, hm: mn.Array, order: Order) -> mn.Array:
    """hm R_o^T + secondaryBias: what r multiplies under resetAfter."""
    u = hm @ matrix(w, order)["o"].T
    b2 = w.vector("secondaryBias")
    return u if b2 is None else u + b2


def matrix(w: mn.Direction, order: Order) -> dict[str, mn.Array]:
    """The gates' rows of R, each [H,H]."""
    return {n: k.T for n, k in mn.gates_of(w.R.T, order).items()}


def _direction(w: mn.Direction, a: Mapping[str, Any]) -> dict[str, mn.Array]:
    """h, z of one direction."""
    order, given = gate_order(a), w.given()
    R = matrix(w, order)
    out = {"h": w.empty(), "z": w.empty(3)}
    h = w.state("initState")
    for t in w.times:
        x, hm = mn.gates_of(given[t], order), w.masked(h)
        z = mn.act(a["updateGateActivation"], x["z"] + hm @ R["z"].T)
        r = mn.act(a["resetGateActivation"], x["r"] + hm @ R["r"].T)
        k = inner(w, hm, order) * r if a["resetAfter"] else (hm * r) @ R["o"].T
        o = mn.act(a["outputGateActivation"], x["o"] + k)
        h = (1 - z) * h + z * o if a["flipZ"] else z * h + (1 - z) * o
        out["h"][t], out["z"][t] = h, mn.in_order({"z": z, "r": r, "o": o}, order)
    return out


def core_operands(v: Values, a: Mapping[str, Any]) -> tuple[MpsOperands, dict[str, Any]]:
    """The layout, and the operands and attributes of the core op `gru`."""
    k = MpsOperands.of(v, a, gate_order(a), RESET_FIRST)
    b2 = v["secondaryBias"] if a["resetAfter"] else None
    names = tuple(a[n] for n in GATE_ATTRS.values())
    return k, {
        **k.shared(),
        "b_hn": None if b2 is None else reshape(b2, (k.D, k.H)),
        "reset_after": a["resetAfter"],
        "flip_z": a["flipZ"],
        "activations": ma.core_names(names, CELL.acts, k.D),
    }


def _expand(*values: Value | None, **a: Any) -> dict[str, Value]:
    k, given = core_operands(named(NAMES, values), a)
    if not a["training"]:
        return {"h": gru(**given).y}
    out = gru(**given, save=True)
    return {"h": out.y, "z": k.gates_back(out.gates)}


def _vjp(node: Node, cts: Any) -> Any:
    *grads, b2 = by_gradients(node, cts)
    unused = node.arg("secondaryBias")  # without resetAfter: zero, whatever the way
    return *grads, zeros_like(unused) if b2 is None and isinstance(unused, Value) else b2


GRU = define(
    "mps.GRU",
    OPERANDS,
    attrs=ATTRS,
    results="h z",
    types=_types,
    numpy=_numpy,
    vjp=_vjp,
    expand=_expand,
    level=Level.composite,
)
