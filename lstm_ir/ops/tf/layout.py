"""Between TensorFlow's layout of block ops and that of the core ops, as ops of the graph.

TensorFlow has w [I+C,4C] with output units as columns; the core ops have w_ih [4C,I], w_hh [4C,C]
with output units as rows and gates in the order i, f, g, o. A permuted weight is derived from its
weight once, outside any loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Arg, Node, Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.opdef import OPS
from lstm_ir.ops.primitive.broadcast import broadcast_to
from lstm_ir.ops.primitive.fill import zeros
from lstm_ir.ops.primitive.shape import concat, expand_dims, reshape, transpose
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.ops.tf.contract import IFCO, TfOperands, TfSizes, as_float32, clip_limit, forget

Order = tuple[str, ...]


def core(name: str, operands: Mapping[str, Arg], **attrs: Any) -> Node:
    """A node of the core op `name`, operands by name."""
    op = OPS[name]
    unknown = set(operands) - {o.name for o in op.operands}
    if unknown:
        raise KeyError(f"{name} has no operand {', '.join(sorted(unknown))}")
    args = tuple(operands.get(o.name) for o in op.operands)
    return make(op, *args, **attrs)


def blocks(v: Value, order: Order) -> dict[str, Value]:
    """The equal blocks of the last axis, by name."""
    width = v.shape[-1] // len(order)
    last = v.rank - 1
    return {n: slice_axis(v, last, k * width, (k + 1) * width) for k, n in enumerate(order)}


def permuted(v: Value, order: Order, to: Order) -> Value:
    """The blocks of the last axis in another order; `v` itself if it is the same."""
    if order == to:
        return v
    parts = blocks(v, order)
    return concat([parts[n] for n in to], v.rank - 1)


def matrices(s: TfSizes, w: Value, order: Order | None) -> tuple[Value, Value]:
    """w [I+C,N] as w_ih [1,N,I] and w_hh [1,N,C]; blocks brought to the core op's order."""
    rows = w if order is None else permuted(w, order, IFCO)
    rows = transpose(rows)
    parts = slice_axis(rows, 1, 0, s.I), slice_axis(rows, 1, s.I, s.fan_in)
    return expand_dims(parts[0], 0), expand_dims(parts[1], 0)


def from_matrices(w_ih: Value, w_hh: Value, order: Order | None) -> Value:
    """The opposite of `matrices`, for gradients."""
    rows = concat([reshape(v, v.shape[1:]) for v in (w_ih, w_hh)], 1)
    columns = transpose(rows)
    return columns if order is None else permuted(columns, IFCO, order)


def vector(b: Value, order: Order | None) -> Value:
    """b [N] as [1,N] in the core op's order."""
    return expand_dims(b if order is None else permuted(b, order, IFCO), 0)


def peephole_grads(d: Value | None, like: Sequence[Value]) -> tuple[Value, Value, Value]:
    """Gradients of wci, wcf, wco from [1,3C]; zeros where peepholes are off."""
    if d is None:
        i, f, o = (zeros(v.shape, v.dtype) for v in like)
        return i, f, o
    parts = blocks(reshape(d, d.shape[1:]), ("i", "f", "o"))
    return parts["i"], parts["f"], parts["o"]


def one_step(v: Value) -> Value:
    """[B,N] as [1,B,N]: a cell is a sequence of one step, and a state has one direction."""
    return expand_dims(v, 0)


def dropped(v: Value) -> Value:
    """[1,...] without its first axis."""
    return reshape(v, v.shape[1:])


def nothing(s: TfSizes, shapes: dict[str, tuple[Dim, ...]]) -> dict[str, Value]:
    """Results of an op without units (C = 0): empty, or zeros that nothing was added to."""
    return {n: zeros(shape, s.dtype) for n, shape in shapes.items()}


def clip_attr(cell_clip: float, s: TfSizes) -> float:
    """cell_clip as the core op's attribute, where 0 is off.

    A limit that rounds to 0 in the tensors' type forces cs to 0; the core op computes these types
    in f32 and rounds its results, so the unrounded limit does the same. Infinity never acts.
    """
    limit = clip_limit(cell_clip, s.dtype)
    if limit is None or np.isinf(limit):
        return 0.0
    return limit if limit > 0 else float(as_float32(cell_clip))


def biased(s: TfSizes, b: Value, order: Order, forget_bias: float) -> tuple[Value, float]:
    """b [1,4C] for the core op, and its forget_bias; one that is not finite is added to b."""
    value = forget(forget_bias, s.dtype)
    row = vector(b, order)
    if np.isfinite(value):
        return row, value
    extra = np.zeros(4, s.dtype.numpy)
    extra[1] = value
    tiled = broadcast_to(expand_dims(constant(extra), 1), (4, s.C))
    return row + reshape(tiled, (1, 4 * s.C)), 0.0


def got(node: Node, name: str) -> Value:
    """A result that this node has."""
    v = node.by_name[name]
    assert isinstance(v, Value)
    return v


def forward(
    s: TfSizes,
    v: TfOperands,
    count: Value | None,
    order: Order,
    forget_bias: float,
    cell_clip: float,
    use_peephole: bool,
) -> dict[str, Value]:
    """i, cs, f, o, ci, co, h of `lstm` over v.x [T,B,I]."""
    w_ih, w_hh = matrices(s, v.w, order)
    b, extra = biased(s, v.b, order, forget_bias)
    given = {"x": v.x, "w_ih": w_ih, "w_hh": w_hh, "b": b, "count": count}
    node = core(
        "lstm",
        given | states(v, use_peephole),
        forget_bias=extra,
        cell_clip=clip_attr(cell_clip, s),
        clip_gradient="straight_through",
        save=True,
    )
    out = blocks(got(node, "gates"), IFCO)
    out |= {"cs": got(node, "cells"), "co": got(node, "activated"), "h": got(node, "y")}
    return {name: out[name] for name in ("i", "cs", "f", "o", "ci", "co", "h")}


def states(v: TfOperands, use_peephole: bool) -> dict[str, Arg]:
    """First states and peepholes as operands of the core ops; peepholes only where read."""
    joined = expand_dims(concat(v.peepholes, 0), 0) if use_peephole else None
    return {"h0": one_step(v.h_prev), "c0": one_step(v.cs_prev), "peephole": joined}


def backward(v: TfOperands, saved: dict[str, Value], use_peephole: bool) -> dict[str, Arg]:
    """States, saved values and arriving gradients as operands of `lstm_grad`."""
    return states(v, use_peephole) | {
        "y": saved.get("h"),
        "gates": concat([saved[n] for n in IFCO], 2),
        "cells": saved["cs"],
        "activated": saved["co"],
        "d_cells": saved["cs_grad"],
        "d_y": saved["h_grad"],
    }


def maybe(node: Node, name: str) -> Value | None:
    """A result that this node may have."""
    return got(node, name) if name in node.by_name else None
