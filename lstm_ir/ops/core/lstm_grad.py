"""`lstm_grad`: the gradients of `lstm` from its saved results (equations: docs/gradients.md)."""

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
from lstm_ir.ops.core.lstm import ATTRS as FORWARD_ATTRS
from lstm_ir.ops.core.lstm import DEFAULT_ACTS, check
from lstm_ir.ops.core.lstm import OPERANDS as FORWARD

SAVED = ("y", "gates", "cells", "activated")
ARRIVING = ("d_y", "d_h_n", "d_c_n", "d_gates", "d_cells", "d_activated")
NAMES = tuple(t.rstrip("?") for t in FORWARD.split())
OPERANDS = " ".join([FORWARD, *(f"{n}?" for n in (*SAVED, *ARRIVING))])
ATTRS = grad_attrs(FORWARD_ATTRS)


def _types(*operands: Any, **a: Any) -> dict[str, TensorType | None]:
    first = operands[: len(NAMES)]
    s = check(*first, **a)
    rt.need_slopes(rt.acts(a["activations"], DEFAULT_ACTS, s.D))
    rows = {"y": s.P, "gates": 4 * s.H, "cells": s.H, "activated": s.H}
    for name, t in zip((*SAVED, *ARRIVING), operands[len(NAMES) :], strict=True):
        base = name.removeprefix("d_")
        if base in rows:
            rt.exactly(name, t, s, s.rows(rows[base]).shape)
        else:
            rt.exactly(name, t, s, s.state(s.P if base == "h_n" else s.H).shape)
    return grad_types(NAMES, first)


def _expand(*operands: Value | None, **a: Any) -> Any:
    from lstm_ir.ops.core.lstm_grad_scan import expand

    return expand(*operands, **a)


LSTM_GRAD = define(
    "lstm_grad",
    OPERANDS,
    attrs=ATTRS,
    results=grad_results(NAMES),
    types=_types,
    numpy=by_expansion("lstm_grad"),
    vjp=expanded_vjp,
    expand=_expand,
    level=Level.core,
    ranges=rt.ranges,
)


def lstm_vjp(node: Node, cts: Cts) -> Any:
    """The gradient of `lstm` as one `lstm_grad`."""
    return layer_vjp(node, cts, LSTM_GRAD, SAVED, NAMES)


class LSTMGradients(NamedTuple):
    """One gradient per operand of `lstm`; None where the operand is absent."""

    d_x: Value
    d_w_ih: Value | None
    d_w_hh: Value
    d_b: Value | None
    d_h0: Value | None
    d_c0: Value | None
    d_w_hr: Value | None
    d_peephole: Value | None
    d_recurrent_mask: Value | None


def lstm_grad(
    x: Any, w_ih: Any, w_hh: Any, b: Any = None, h0: Any = None, c0: Any = None, **more: Any
) -> Any:
    """The gradients of `lstm` for gradients d_y, d_h_n, d_c_n, d_gates, d_cells, d_activated.

    Takes lstm's operands and attributes, then y, gates, cells, activated, which are trusted where
    given and derived where not. Gives one gradient per operand, in the form with the axis D.
    """
    given = {"x": x, "w_ih": w_ih, "w_hh": w_hh, "b": b, "h0": h0, "c0": c0, **more}
    operands = tuple(given.pop(o.name, None) for o in LSTM_GRAD.operands)
    given.setdefault("direction", "forward")
    node = layer_node(LSTM_GRAD, operands, **given)
    found: dict[str, Any] = {n: node.result(n) for n in LSTM_GRAD.results}
    return LSTMGradients(**found)
