"""`tf.GRUBlockCell` and `tf.GRUBlockCellGrad`: one step, gates r then u; reset before the product.

    [gr | gu] = [x | h_prev] @ w_ru + b_ru          r = s(gr)       u = s(gu)
    c = tanh([x | h_prev*r] @ w_c + b_c)            h = u*(h_prev - c) + c

    d_c_bar = d_h*(1-u)*(1-c*c)                     d_u_bar = d_h*(h_prev-c)*u*(1-u)
    [q_x | q_h] = d_c_bar @ w_c^T                   d_r_bar = q_h*h_prev*r*(1-r)
    [k_x | k_h] = [d_r_bar | d_u_bar] @ w_ru^T
    d_x = k_x + q_x                                 d_h_prev = k_h + q_h*r + d_h*u

The Grad op reads no bias, and of x only the shape. TensorFlow has both ops in float32 and registers
no gradient for GRUBlockCell; here f16, bf16 and f64 work too, and the gradient for h is that of the
Grad op. Evidence: docs/tf-block-ops.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lstm_ir.ir.graph import Value
from lstm_ir.ir.opdef import Level, define
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.primitive.fill import zeros
from lstm_ir.ops.primitive.linear import dot_general
from lstm_ir.ops.primitive.numpy_math import logistic
from lstm_ir.ops.primitive.shape import concat
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.ops.tf import contract as tc
from lstm_ir.ops.tf import layout as tl
from lstm_ir.ops.tf.meaning import Array, widened
from lstm_ir.ops.tf.vjp import gru_block_cell


class GruBlockOperands(NamedTuple):
    """Types, arrays or values of the operands that both ops share, in TensorFlow's order."""

    x: Any
    h_prev: Any
    w_ru: Any
    w_c: Any
    b_ru: Any
    b_c: Any


OPERANDS = " ".join(GruBlockOperands._fields)
RESULTS = ("r", "u", "c", "h")
SAVED = ("r", "u", "c", "d_h")
GRADS = ("d_x", "d_h_prev", "d_c_bar", "d_r_bar_u_bar")


def _sizes(v: GruBlockOperands) -> tc.TfSizes:
    s = tc.sizes(v.x, v.h_prev, "h_prev", steps=False)
    tc.exactly("w_ru", v.w_ru, s.of(s.fan_in, 2 * s.C), "[I+C,2C]")
    tc.exactly("w_c", v.w_c, s.of(s.fan_in, s.C), "[I+C,C]")
    tc.exactly("b_ru", v.b_ru, s.of(2 * s.C), "[2C]")
    tc.exactly("b_c", v.b_c, s.of(s.C), "[C]")
    return s


def _types(*operands: TensorType) -> dict[str, TensorType]:
    return dict.fromkeys(RESULTS, _sizes(GruBlockOperands(*operands)).state)


def _numpy(*arrays: Array) -> tuple[Array, ...]:
    v = GruBlockOperands(*widened(*arrays))
    gates = logistic(np.concatenate([v.x, v.h_prev], axis=1) @ v.w_ru + v.b_ru)
    r, u = np.split(gates, 2, axis=1)
    c = np.tanh(np.concatenate([v.x, v.h_prev * r], axis=1) @ v.w_c + v.b_c)
    return r, u, c, u * (v.h_prev - c) + c


def _matrices(s: tc.TfSizes, v: GruBlockOperands) -> tuple[Value, Value]:
    """w_ih [1,3C,I] and w_hh [1,3C,C], gates r, z = u, n = c."""
    return tl.matrices(s, concat([v.w_ru, v.w_c], 1), None)


def _expand(*values: Value) -> dict[str, Value]:
    """`gru` over one step, the reset before the product."""
    v = GruBlockOperands(*values)
    s = tc.sizes(v.x.type, v.h_prev.type, "h_prev", steps=False)
    if s.C == 0:
        return tl.nothing(s, dict.fromkeys(RESULTS, s.state.shape))
    w_ih, w_hh = _matrices(s, v)
    b = tl.vector(concat([v.b_ru, v.b_c], 0), None)
    given = {"x": tl.one_step(v.x), "w_ih": w_ih, "w_hh": w_hh, "b": b, "h0": tl.one_step(v.h_prev)}
    out = tl.core("gru", given, reset_after=False, save=True)
    gates = tl.blocks(tl.dropped(tl.got(out, "gates")), RESULTS[:3])
    return gates | {"h": tl.dropped(tl.got(out, "y"))}


GRU_BLOCK_CELL = define(
    "tf.GRUBlockCell",
    OPERANDS,
    results=" ".join(RESULTS),
    types=_types,
    numpy=_numpy,
    vjp=gru_block_cell,
    expand=_expand,
    level=Level.composite,
)


def _grad_types(*operands: TensorType) -> dict[str, TensorType]:
    s = _sizes(GruBlockOperands(*operands[:6]))
    tc.all_exactly(SAVED, operands[6:], s.state, "[B,C]")
    shapes = (operands[0], s.state, s.state, s.of(s.B, 2 * s.C))
    return dict(zip(GRADS, shapes, strict=True))


def _grad_numpy(*arrays: Array) -> tuple[Array, ...]:
    v, (r, u, c, d_h) = GruBlockOperands(*widened(*arrays[:6])), widened(*arrays[6:])
    split = v.x.shape[1]
    d_c_bar = d_h * (1 - u) * (1 - c * c)
    d_u_bar = d_h * (v.h_prev - c) * u * (1 - u)
    q = d_c_bar @ v.w_c.T
    d_r_bar = q[:, split:] * v.h_prev * r * (1 - r)
    both = np.concatenate([d_r_bar, d_u_bar], axis=1)
    k = both @ v.w_ru.T
    d_h_prev = k[:, split:] + q[:, split:] * r + d_h * u
    return k[:, :split] + q[:, :split], d_h_prev, d_c_bar, both


def _grad_expand(*values: Value) -> dict[str, Value]:
    """`gru_grad` over one step, the gates' input projected: its gradient is d_r, d_u, d_c_bar."""
    v, (r, u, c, d_h) = GruBlockOperands(*values[:6]), values[6:]
    s = tc.sizes(v.x.type, v.h_prev.type, "h_prev", steps=False)
    if s.C == 0:
        shapes = (v.x.shape, s.state.shape, s.state.shape, s.state.shape)
        return tl.nothing(s, dict(zip(GRADS, shapes, strict=True)))
    w_ih, w_hh = _matrices(s, v)
    given = {"x": zeros((1, s.B, 3 * s.C), s.dtype), "w_hh": w_hh, "h0": tl.one_step(v.h_prev)}
    saved = {
        "y": tl.one_step(u * (v.h_prev - c) + c),
        "gates": tl.one_step(concat([r, u, c], 1)),
        "d_y": tl.one_step(d_h),
    }
    out = tl.core("gru_grad", given | saved, reset_after=False)
    d = tl.dropped(tl.got(out, "d_x"))
    return {
        "d_x": dot_general(d, tl.dropped(w_ih), ((1,), (0,))),
        "d_h_prev": tl.dropped(tl.got(out, "d_h0")),
        "d_c_bar": slice_axis(d, 1, 2 * s.C, 3 * s.C),
        "d_r_bar_u_bar": slice_axis(d, 1, 0, 2 * s.C),
    }


GRU_BLOCK_CELL_GRAD = define(
    "tf.GRUBlockCellGrad",
    f"{OPERANDS} {' '.join(SAVED)}",
    results=" ".join(GRADS),
    types=_grad_types,
    numpy=_grad_numpy,
    vjp=None,
    expand=_grad_expand,
    level=Level.composite,
)
