"""`gru_grad`: the gradients of `gru` from its saved results (equations: docs/gradients.md)."""

from __future__ import annotations

from typing import Any, NamedTuple

from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.opdef import Level, define, need
from lstm_ir.ir.pullback import Cts
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.core import sizes as rt
from lstm_ir.ops.core.build import layer_node
from lstm_ir.ops.core.grad import (
    by_expansion,
    expanded_vjp,
    grad_attrs,
    grad_results,
    grad_types,
    layer_vjp,
)
from lstm_ir.ops.core.gru import ATTRS as FORWARD_ATTRS
from lstm_ir.ops.core.gru import DEFAULT_ACTS, check
from lstm_ir.ops.core.gru import OPERANDS as FORWARD

SAVED = ("y", "gates", "inner")
ARRIVING = ("d_y", "d_h_n", "d_gates", "d_inner")
NAMES = tuple(t.rstrip("?") for t in FORWARD.split())
OPERANDS = " ".join([FORWARD, *(f"{n}?" for n in (*SAVED, *ARRIVING))])


def _types(*operands: Any, **a: Any) -> dict[str, TensorType | None]:
    first = operands[: len(NAMES)]
    s = check(*first, **a)
    rt.need_slopes(rt.acts(a["activations"], DEFAULT_ACTS, s.D))
    rows = {"y": s.H, "gates": 3 * s.H, "inner": s.H}
    for name, t in zip((*SAVED, *ARRIVING), operands[len(NAMES) :], strict=True):
        base = name.removeprefix("d_")
        shape = s.rows(rows[base]).shape if base in rows else s.state(s.H).shape
        rt.exactly(name, t, s, shape)
        alone = base == "inner" and not a["reset_after"]
        need(t is None or not alone, f"{name} needs reset_after: there is no such product without")
    return grad_types(NAMES, first)


def _expand(*operands: Value | None, **a: Any) -> Any:
    from lstm_ir.ops.core.gru_grad_scan import expand

    return expand(*operands, **a)


GRU_GRAD = define(
    "gru_grad",
    OPERANDS,
    attrs=grad_attrs(FORWARD_ATTRS),
    results=grad_results(NAMES),
    types=_types,
    numpy=by_expansion("gru_grad"),
    vjp=expanded_vjp,
    expand=_expand,
    level=Level.core,
    ranges=rt.ranges,
)


def gru_vjp(node: Node, cts: Cts) -> Any:
    """The gradient of `gru` as one `gru_grad`."""
    return layer_vjp(node, cts, GRU_GRAD, SAVED, NAMES)


class GRUGradients(NamedTuple):
    """One gradient per operand of `gru`; None where the operand is absent."""

    d_x: Value
    d_w_ih: Value | None
    d_w_hh: Value
    d_b: Value | None
    d_b_hn: Value | None
    d_h0: Value | None
    d_recurrent_mask: Value | None


def gru_grad(x: Any, w_ih: Any, w_hh: Any, b: Any = None, h0: Any = None, **more: Any) -> Any:
    """The gradients of `gru` for gradients d_y, d_h_n, d_gates, d_inner.

    Takes gru's operands and attributes, then y, gates, inner, which are trusted where given and
    derived where not. Gives one gradient per operand, in the form with the axis D.
    """
    given = {"x": x, "w_ih": w_ih, "w_hh": w_hh, "b": b, "h0": h0, **more}
    operands = tuple(given.pop(o.name, None) for o in GRU_GRAD.operands)
    given.setdefault("direction", "forward")
    node = layer_node(GRU_GRAD, operands, **given)
    found: dict[str, Any] = {n: node.result(n) for n in GRU_GRAD.results}
    return GRUGradients(**found)
