"""`tf.BlockLSTMGrad` (blocks i, ci, f, o) and `tf.BlockLSTMGradV2` (i, f, ci, o): backward.

    Gc = Gh = 0
    for t = seq_len_max-1 .. 0:
        c_in, h_in = (cs_prev, h_prev) if t == 0 else (cs[t-1], h[t-1])
        D, Gc = backward step with cs_grad[t] + Gc and h_grad[t] + Gh         (meaning.py)
        [x_grad[t] | Gh] = D @ w^T
        w_grad += [x[t] | h_in]^T @ D           b_grad += sum over the batch of D
        wci_grad += sum(di * c_in)              wcf_grad += sum(df * c_in)
        wco_grad += sum(do * cs[t])
    cs_prev_grad = Gc       h_prev_grad = Gh    x_grad[t >= seq_len_max] = 0

Rows at and after seq_len_max are never read. The clip is passed straight through. TensorFlow's
tape over BlockLSTMV2 calls BlockLSTMGrad, whose blocks stand in another order, and is wrong; the
gradient here is that of GradV2. Meaning, quirks and evidence: docs/tf-block-ops.md.
"""

from __future__ import annotations

import numpy as np

from lstm_ir.ir.graph import Value
from lstm_ir.ir.opdef import Attr, Level, Op, define
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.tf import contract as tc
from lstm_ir.ops.tf import layout as tl
from lstm_ir.ops.tf.block_lstm import OPERANDS
from lstm_ir.ops.tf.contract import ICFO, IFCO, TfOperands
from lstm_ir.ops.tf.meaning import Array, Order, backward_step, peephole_part, placed, widened

SAVED = ("i", "cs", "f", "o", "ci", "co", "h", "cs_grad", "h_grad")
GRADS = tuple(f"{name}_grad" for name in TfOperands._fields)


def _types(count: TensorType, *operands: TensorType, use_peephole: bool) -> dict[str, TensorType]:
    tc.scalar_count(count)
    v = TfOperands(*operands[:8])
    s = tc.lstm_sizes(v, steps=True, exact=use_peephole)
    tc.all_exactly(SAVED, operands[8:], s.rows, "[T,B,C]")
    return dict(zip(GRADS, v, strict=True))


def _numpy(count: Array, arrays: tuple[Array, ...], order: Order, use_peephole: bool) -> tuple[Array, ...]:
    v = TfOperands(*widened(*arrays[:8]))
    a = dict(zip(SAVED, widened(*arrays[8:]), strict=True))
    out = TfOperands(*(np.zeros_like(value) for value in v))
    Gc, Gh, split = np.zeros_like(v.cs_prev), np.zeros_like(v.h_prev), v.x.shape[2]
    peepholes = v.peepholes if use_peephole else None
    for t in reversed(range(int(count))):
        now = {n: rows[t] for n, rows in a.items()}
        c_in, h_in = (v.cs_prev, v.h_prev) if t == 0 else (a["cs"][t - 1], a["h"][t - 1])
        d = backward_step(now, c_in, now["cs_grad"] + Gc, now["h_grad"] + Gh, peepholes)
        D, Gc = placed(d, order), d.cs_prev
        back = D @ v.w.T
        out.x[t], Gh = back[:, :split], back[:, split:]
        np.add(out.w, np.concatenate([v.x[t], h_in], axis=1).T @ D, out=out.w)
        np.add(out.b, D.sum(0), out=out.b)
        if use_peephole:
            for total, part in zip(out.peepholes, peephole_part(d, c_in, now["cs"]), strict=True):
                np.add(total, part, out=total)
    return out._replace(cs_prev=Gc, h_prev=Gh)


def _expand(count: Value, values: tuple[Value, ...], order: Order, use_peephole: bool) -> dict[str, Value]:
    """`lstm_grad` over `count` steps, the saved values given."""
    v = TfOperands(*values[:8])
    a = dict(zip(SAVED, values[8:], strict=True))
    s = tc.sizes(v.x.type, v.cs_prev.type, "cs_prev", steps=True)
    if s.C == 0:
        return tl.nothing(s, {n: value.shape for n, value in zip(GRADS, v, strict=True)})
    w_ih, w_hh = tl.matrices(s, v.w, order)
    given = {"x": v.x, "w_ih": w_ih, "w_hh": w_hh, "b": tl.vector(v.b, order), "count": count}
    out = tl.core("lstm_grad", given | tl.backward(v, a, use_peephole))
    states = (tl.dropped(tl.got(out, n)) for n in ("d_c0", "d_h0"))
    w_grad = tl.from_matrices(tl.got(out, "d_w_ih"), tl.got(out, "d_w_hh"), order)
    peepholes = tl.peephole_grads(tl.maybe(out, "d_peephole"), v.peepholes)
    b_grad = tl.permuted(tl.dropped(tl.got(out, "d_b")), IFCO, order)
    found = (tl.got(out, "d_x"), *states, w_grad, *peepholes, b_grad)
    return dict(zip(GRADS, found, strict=True))


def _define(name: str, order: Order) -> Op:
    return define(
        name,
        f"{OPERANDS} {' '.join(SAVED)}",
        attrs={"use_peephole": Attr("bool")},
        results=" ".join(GRADS),
        types=_types,
        numpy=lambda count, *arrays, **a: _numpy(count, arrays, order, **a),
        vjp=None,
        expand=lambda count, *values, **a: _expand(count, values, order, **a),
        level=Level.composite,
        ranges=tc.count_range,
    )


BLOCK_LSTM_GRAD = _define("tf.BlockLSTMGrad", ICFO)
BLOCK_LSTM_GRAD_V2 = _define("tf.BlockLSTMGradV2", IFCO)
