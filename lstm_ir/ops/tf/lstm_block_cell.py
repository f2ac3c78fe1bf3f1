"""`tf.LSTMBlockCell` and `tf.LSTMBlockCellGrad`: one step, gate blocks i, ci, f, o.

Equations: meaning.py. Meaning, quirks and evidence: docs/tf-block-ops.md. Where this differs
from TensorFlow:

* Its API text names the blocks i, f, ci, o; its kernel, and this op, have i, ci, f, o.
* Its Grad kernel may zero wci, wcf, wco before it reads them, and its CUDA kernel adds the peephole
  terms to cs_prev_grad twice; here they are read, and added once.
* It registers no gradient for LSTMBlockCell; here it is that of the Grad op for cs and h.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir.graph import Value
from lstm_ir.ir.opdef import Attr, Level, define
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive.fill import zeros
from lstm_ir.ops.tf import contract as tc
from lstm_ir.ops.tf import layout as tl
from lstm_ir.ops.tf.contract import ICFO, IFCO, TfOperands
from lstm_ir.ops.tf.meaning import Array, StepResults, backward_step, forward_step, peephole_part, placed, widened
from lstm_ir.ops.tf.vjp import lstm_block_cell

OPERANDS = " ".join(TfOperands._fields)
SAVED = ("i", "cs", "f", "o", "ci", "co", "cs_grad", "h_grad")
GRADS = ("cs_prev_grad", "dicfo", "wci_grad", "wcf_grad", "wco_grad")


def _types(*operands: TensorType, use_peephole: bool, **_: Any) -> dict[str, TensorType]:
    s = tc.lstm_sizes(TfOperands(*operands), steps=False, exact=use_peephole)
    tc.not_empty(s)
    return {name: s.state for name in StepResults._fields}


def _numpy(*arrays: Array, forget_bias: float, cell_clip: float, use_peephole: bool) -> StepResults:
    kind = DType.of(arrays[0].dtype)
    bias, limit = tc.forget(forget_bias, kind), tc.clip_limit(cell_clip, kind)
    return forward_step(TfOperands(*widened(*arrays)), ICFO, use_peephole, bias, limit)


def _expand(*values: Value, forget_bias: float, cell_clip: float, use_peephole: bool) -> dict[str, Value]:
    """`lstm` over one step."""
    v = TfOperands(*values)
    s = tc.sizes(v.x.type, v.cs_prev.type, "cs_prev", steps=False)
    row = v._replace(x=tl.one_step(v.x))
    out = tl.forward(s, row, None, ICFO, forget_bias, cell_clip, use_peephole)
    return {n: tl.dropped(a) for n, a in out.items()}


LSTM_BLOCK_CELL = define(
    "tf.LSTMBlockCell",
    OPERANDS,
    attrs={"forget_bias": Attr("float", 1.0), "cell_clip": Attr("float", 3.0), "use_peephole": Attr("bool", False)},
    results=" ".join(StepResults._fields),
    types=_types,
    numpy=_numpy,
    vjp=lstm_block_cell,
    expand=_expand,
    level=Level.composite,
)


def _grad_types(*operands: TensorType, use_peephole: bool) -> dict[str, TensorType]:
    v = TfOperands(*operands[:8])
    s = tc.lstm_sizes(v, steps=False, exact=use_peephole)
    tc.all_exactly(SAVED, operands[8:], s.state, "[B,C]")
    return dict(zip(GRADS, (s.state, s.of(s.B, 4 * s.C), *v.peepholes), strict=True))


def _grad_numpy(*arrays: Array, use_peephole: bool) -> tuple[Array, ...]:
    v = TfOperands(*widened(*arrays[:8]))
    a = dict(zip(SAVED, widened(*arrays[8:]), strict=True))
    peepholes = v.peepholes if use_peephole else None
    d = backward_step(a, v.cs_prev, a["cs_grad"], a["h_grad"], peepholes)
    if use_peephole:
        parts = tuple(peephole_part(d, v.cs_prev, a["cs"]))
    else:
        parts = tuple(np.zeros_like(p) for p in v.peepholes)
    return (d.cs_prev, placed(d, ICFO), *parts)


def _grad_expand(*values: Value, use_peephole: bool) -> dict[str, Value]:
    """`lstm_grad` over one step, the gates' input projected: the gradient of that is `dicfo`."""
    v = TfOperands(*values[:8])
    a = dict(zip(SAVED, map(tl.one_step, values[8:]), strict=True))
    s = tc.sizes(v.x.type, v.cs_prev.type, "cs_prev", steps=False)
    if s.C == 0:
        shapes = (s.state.shape, s.state.shape, *(p.shape for p in v.peepholes))
        return tl.nothing(s, dict(zip(GRADS, shapes, strict=True)))
    projected = zeros((1, s.B, 4 * s.C), s.dtype)
    _, w_hh = tl.matrices(s, v.w, ICFO)
    given = tl.backward(v, a, use_peephole) | {"x": projected, "w_hh": w_hh}
    out = tl.core("lstm_grad", given)
    dicfo = tl.permuted(tl.dropped(tl.got(out, "d_x")), IFCO, ICFO)
    peepholes = tl.peephole_grads(tl.maybe(out, "d_peephole"), v.peepholes)
    return dict(zip(GRADS, (tl.dropped(tl.got(out, "d_c0")), dicfo, *peepholes), strict=True))


LSTM_BLOCK_CELL_GRAD = define(
    "tf.LSTMBlockCellGrad",
    f"{OPERANDS} {' '.join(SAVED)}",
    attrs={"use_peephole": Attr("bool")},
    results=" ".join(GRADS),
    types=_grad_types,
    numpy=_grad_numpy,
    vjp=None,
    expand=_grad_expand,
    level=Level.composite,
)
