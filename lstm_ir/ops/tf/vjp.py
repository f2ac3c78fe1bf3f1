"""Gradients of TensorFlow's block ops.

What arrives at cs and h goes through the Grad op, which passes the clip straight through.
TensorFlow drops what arrives at the other results; here all of it goes through the expansion then,
whose `lstm` has `clip_gradient="straight_through"` and so the same rule. Grad ops have no rule of
their own: they are differentiated through their expansion. With `remat` so is a whole sequence, as
the Grad op reads what the forward op saved of every step; a cell is no loop, and has no remat.
"""

from __future__ import annotations

from typing import Any

from lstm_ir.ir.errors import GradientError, message
from lstm_ir.ir.expansion import expansion
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.opdef import OPS
from lstm_ir.ir.pullback import Cts, session, through
from lstm_ir.ops.primitive.fill import zeros_like
from lstm_ir.ops.primitive.linear import dot_general
from lstm_ir.ops.primitive.reduce import sum as sum_
from lstm_ir.ops.primitive.shape import concat
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.ops.tf.contract import TfOperands, clip_limit
from lstm_ir.ops.tf.layout import got


def block_lstm(node: Node, cts: Cts) -> Any:
    """By tf.BlockLSTMGrad for tf.BlockLSTM, by tf.BlockLSTMGradV2 for tf.BlockLSTMV2."""
    arrived, remat = _arrived(node, cts, ("cs", "h")), session().remat
    if remat is not None:
        _need_no_clip(node)
    if arrived is None or remat is not None:
        return through(node, expansion(node, "grad"), cts, remat)
    op = OPS["tf.BlockLSTMGradV2" if node.op.name == "tf.BlockLSTMV2" else "tf.BlockLSTMGrad"]
    peephole = node.attrs["use_peephole"]
    out = make(op, *node.args, *node.values, *arrived, use_peephole=peephole)
    return (None, *out.values)


def _need_no_clip(node: Node) -> None:
    """With remat the clip is an op of the loop, whose gradient is the true one."""
    clip = node.attrs["cell_clip"]
    if clip_limit(clip, node.types[0].dtype) is not None:
        problem = f"remat does not go with cell_clip = {clip}, whose gradient is straight through"
        hint = "; cell_clip = 0 has none"
        raise GradientError(message(node.op.name, problem + hint, (), node.loc))


def lstm_block_cell(node: Node, cts: Cts) -> Any:
    """By tf.LSTMBlockCellGrad; gradients of x, h_prev, w, b from its dicfo."""
    arrived = _arrived(node, cts, ("cs", "h"))
    if arrived is None:
        return through_expansion(node, cts)
    peephole = node.attrs["use_peephole"]
    saved = node.values[:-1]  # without h
    out = make(OPS["tf.LSTMBlockCellGrad"], *node.args, *saved, *arrived, use_peephole=peephole)
    v, dicfo = TfOperands(*node.args), got(out, "dicfo")
    dx, dh = _back(dicfo, v.w, v.x)
    peepholes = (got(out, f"{name}_grad") for name in ("wci", "wcf", "wco"))
    dw = _weight(v.x, v.h_prev, dicfo)
    return (dx, got(out, "cs_prev_grad"), dh, dw, *peepholes, sum_(dicfo, 0))


def gru_block_cell(node: Node, cts: Cts) -> Any:
    """By tf.GRUBlockCellGrad; gradients of the weights from its d_c_bar and d_r_bar_u_bar."""
    arrived = _arrived(node, cts, ("h",))
    if arrived is None:
        return through_expansion(node, cts)
    x, h_prev = node.inputs[:2]
    r, u, c, _ = node.values
    out = make(OPS["tf.GRUBlockCellGrad"], *node.args, r, u, c, *arrived)
    d_c, d_ru = got(out, "d_c_bar"), got(out, "d_r_bar_u_bar")
    weights = _weight(x, h_prev, d_ru), _weight(x, h_prev * r, d_c)
    return (got(out, "d_x"), got(out, "d_h_prev"), *weights, sum_(d_ru, 0), sum_(d_c, 0))


def _arrived(node: Node, cts: Cts, known: tuple[str, ...]) -> tuple[Value, ...] | None:
    """What arrives at the results `known`; None if something arrives at another one."""
    by_name = dict(zip(node.by_name, zip(node.values, cts, strict=True), strict=True))
    if any(ct is not None for name, (_, ct) in by_name.items() if name not in known):
        return None
    return tuple(zeros_like(v) if ct is None else ct for v, ct in map(by_name.__getitem__, known))


def _back(d: Value, w: Value, x: Value) -> tuple[Value, Value]:
    """d @ w^T [B,I+C], cut into the part of x and the part of h."""
    both = dot_general(d, w, ((1,), (1,)))
    width = x.shape[1]
    return slice_axis(both, 1, 0, width), slice_axis(both, 1, width, both.shape[1])


def _weight(x: Value, h: Value, d: Value) -> Value:
    """[x | h]^T @ d."""
    return dot_general(concat([x, h], 1), d, ((0,), (0,)))


def through_expansion(node: Node, cts: Cts) -> Any:
    """The gradient of what the op expands into."""
    return through(node, expansion(node, "grad"), cts)
