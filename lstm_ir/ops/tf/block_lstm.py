"""`tf.BlockLSTM` (blocks i, ci, f, o) and `tf.BlockLSTMV2` (i, f, ci, o): a whole sequence.

For t < seq_len_max, one step as in meaning.py from (cs_prev, h_prev); V2 has no forget bias.
Rows at and after seq_len_max are zero in every result: TensorFlow zeroes cs and h and leaves the
others uninitialised. Meaning, quirks and evidence: docs/tf-block-ops.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir.graph import Value
from lstm_ir.ir.opdef import Attr, Level, Op, define
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.tf import contract as tc
from lstm_ir.ops.tf import layout as tl
from lstm_ir.ops.tf.contract import ICFO, IFCO, TfOperands
from lstm_ir.ops.tf.meaning import Array, Order, StepResults, forward_step, widened
from lstm_ir.ops.tf.vjp import block_lstm

OPERANDS = f"seq_len_max:i64 {' '.join(TfOperands._fields)}"


def _types(count: TensorType, *operands: TensorType, **_: Any) -> dict[str, TensorType]:
    tc.scalar_count(count)
    s = tc.lstm_sizes(TfOperands(*operands), steps=True, exact=True)
    return {name: s.rows for name in StepResults._fields}


def _numpy(
    count: Array,
    arrays: tuple[Array, ...],
    order: Order,
    cell_clip: float,
    use_peephole: bool,
    forget_bias: float = 0.0,
) -> list[Array]:
    kind = DType.of(arrays[0].dtype)
    bias, limit = tc.forget(forget_bias, kind), tc.clip_limit(cell_clip, kind)
    v = TfOperands(*widened(*arrays))
    rows = [np.zeros((v.x.shape[0], *v.cs_prev.shape), v.x.dtype) for _ in StepResults._fields]
    now = v
    for t in range(int(count)):
        out = forward_step(now._replace(x=v.x[t]), order, use_peephole, bias, limit)
        for row, value in zip(rows, out, strict=True):
            row[t] = value
        now = now._replace(cs_prev=out.cs, h_prev=out.h)
    return rows


def _expand(
    count: Value,
    values: tuple[Value, ...],
    order: Order,
    cell_clip: float,
    use_peephole: bool,
    forget_bias: float = 0.0,
) -> dict[str, Value]:
    """`lstm` over `count` steps."""
    v = TfOperands(*values)
    s = tc.sizes(v.x.type, v.cs_prev.type, "cs_prev", steps=True)
    if s.C == 0:
        return tl.nothing(s, dict.fromkeys(StepResults._fields, s.rows.shape))
    return tl.forward(s, v, count, order, forget_bias, cell_clip, use_peephole)


def _define(name: str, order: Order, attrs: dict[str, Attr]) -> Op:
    return define(
        name,
        OPERANDS,
        attrs=attrs,
        results=" ".join(StepResults._fields),
        types=_types,
        numpy=lambda count, *arrays, **a: _numpy(count, arrays, order, **a),
        vjp=block_lstm,
        expand=lambda count, *values, **a: _expand(count, values, order, **a),
        level=Level.composite,
        ranges=tc.count_range,
    )


BLOCK_LSTM = _define(
    "tf.BlockLSTM",
    ICFO,
    {"forget_bias": Attr("float", 1.0), "cell_clip": Attr("float", 3.0), "use_peephole": Attr("bool", False)},
)
BLOCK_LSTM_V2 = _define("tf.BlockLSTMV2", IFCO, {"cell_clip": Attr("float", 0.0), "use_peephole": Attr("bool", False)})
