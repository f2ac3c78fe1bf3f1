"""`rnn_grad`: the gradients of `rnn` from its saved results (equations: docs/gradients.md)."""

from __future__ import annotations

from typing import Any, NamedTuple

from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.opdef import Level, define
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
from lstm_ir.ops.core.rnn import ATTRS as FORWARD_ATTRS
from lstm_ir.ops.core.rnn import DEFAULT_ACTS, check
from lstm_ir.ops.core.rnn import OPERANDS as FORWARD

SAVED = ("y", "pre")
ARRIVING = ("d_y", "d_h_n", "d_pre")
NAMES = tuple(t.rstrip("?") for t in FORWARD.split())
OPERANDS = " ".join([FORWARD, *(f"{n}?" for n in (*SAVED, *ARRIVING))])


def _types(*operands: Any, **a: Any) -> dict[str, TensorType | None]:
    first = operands[: len(NAMES)]
    s = check(*first, **a)
    rt.need_slopes(rt.acts(a["activations"], DEFAULT_ACTS, s.D))
    for name, t in zip((*SAVED, *ARRIVING), operands[len(NAMES) :], strict=True):
        rt.exactly(name, t, s, s.state(s.H).shape if name == "d_h_n" else s.rows(s.H).shape)
    return grad_types(NAMES, first)


def _expand(*operands: Value | None, **a: Any) -> Any:
    from lstm_ir.ops.core.rnn_grad_scan import expand

    return expand(*operands, **a)


RNN_GRAD = define(
    "rnn_grad",
    OPERANDS,
    attrs=grad_attrs(FORWARD_ATTRS),
    results=grad_results(NAMES),
    types=_types,
    numpy=by_expansion("rnn_grad"),
    vjp=expanded_vjp,
    expand=_expand,
    level=Level.core,
    ranges=rt.ranges,
)


def rnn_vjp(node: Node, cts: Cts) -> Any:
    """The gradient of `rnn` as one `rnn_grad`."""
    return layer_vjp(node, cts, RNN_GRAD, SAVED, NAMES)


class RNNGradients(NamedTuple):
    """One gradient per operand of `rnn`; None where the operand is absent."""

    d_x: Value
    d_w_ih: Value | None
    d_w_hh: Value
    d_b: Value | None
    d_h0: Value | None
    d_recurrent_mask: Value | None


def rnn_grad(x: Any, w_ih: Any, w_hh: Any, b: Any = None, h0: Any = None, **more: Any) -> Any:
    """The gradients of `rnn` for gradients d_y, d_h_n, d_pre.

    Takes rnn's operands and attributes, then y and pre, which are trusted where given and derived
    where not. Gives one gradient per operand, in the form with the axis D.
    """
    given = {"x": x, "w_ih": w_ih, "w_hh": w_hh, "b": b, "h0": h0, **more}
    operands = tuple(given.pop(o.name, None) for o in RNN_GRAD.operands)
    given.setdefault("direction", "forward")
    node = layer_node(RNN_GRAD, operands, **given)
    found: dict[str, Any] = {n: node.result(n) for n in RNN_GRAD.results}
    return RNNGradients(**found)
