"""`gru`: a whole layer, one or two directions.

Gates r, z, n lie in this order in blocks of H rows, as in cuDNN and PyTorch. Per direction and
step, with hm = recurrent_mask * h[t-1] and W x[t] + b in three blocks a_r, a_z, a_n:

    r = act_r(a_r + R_r hm)                 z = act_z(a_z + R_z hm)
    n = act_n(a_n + r * k),  k = R_n hm + b_hn              reset_after (cuDNN, PyTorch)
    n = act_n(a_n + R_n (r * hm))                           otherwise (the original)
    h = z * h[t-1] + (1 - z) * n            flip_z: h = (1 - z) * h[t-1] + z * n

gate_clip holds what goes into an activation inside its limit. h[t-1] in the last line is not
masked.

Sources: Cho et al. 2014 (arXiv 1406.1078, version 3 resets the state, version 1 the product).
docs/core-ops.md has the operand table, docs/gradients.md the backward equations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lstm_ir.ir.graph import Value
from lstm_ir.ir.no_operand import several
from lstm_ir.ir.opdef import Attr, need
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.core import sizes as layer_sizes
from lstm_ir.ops.core.build import layer_node
from lstm_ir.ops.core.cell import Cell
from lstm_ir.ops.core.frame import Alive, Consts, State, block, clipped
from lstm_ir.ops.core.grad import define_layer
from lstm_ir.ops.core.meaning import Array, LayerMeaning, clip, start
from lstm_ir.ops.core.operands import LayerPlan, masked
from lstm_ir.ops.primitive.numpy_math import wide
from lstm_ir.ops.primitive.shape import concat
from lstm_ir.ops.primitive.window import slice_axis


class GruOperands(NamedTuple):
    """Types, arrays or values of the operands; None where one is absent."""

    x: Any
    w_ih: Any
    w_hh: Any
    b: Any
    b_hn: Any
    h0: Any
    lengths: Any
    count: Any
    recurrent_mask: Any


CELL = Cell("gru", GruOperands, ("r", "z", "n"), ("sigmoid", "sigmoid", "tanh"))
ATTRS = {**layer_sizes.SHARED_ATTRS, "reset_after": Attr("bool", True), "flip_z": Attr("bool", False)}


def _sizes(v: GruOperands, a: dict[str, Any]) -> layer_sizes.Sizes:
    """The sizes, every operand and attribute checked."""
    s = layer_sizes.sizes(CELL, v.x, v.w_ih, v.w_hh, a["direction"], a["layout"])
    layer_sizes.exactly("b", v.b, s, (s.D, 3 * s.H))
    layer_sizes.exactly("b_hn", v.b_hn, s, (s.D, s.H))
    layer_sizes.first_state("h0", v.h0, s, s.H, v.b)
    layer_sizes.check_masks(s, v.lengths, v.count, v.recurrent_mask)
    layer_sizes.one_of("padding", a["padding"], ("zero", "hold"))
    layer_sizes.clip_limit("gate_clip", a["gate_clip"])
    problem = "b_hn is the bias inside the product with r: it needs reset_after; add it to b"
    need(v.b_hn is None or a["reset_after"], problem)
    layer_sizes.acts(a["activations"], CELL.acts, s.D)
    return s


def _types(*operands: TensorType | None, **a: Any) -> dict[str, TensorType | None]:
    s = _sizes(GruOperands(*operands), a)
    return {
        "y": s.rows(s.H),
        "h_n": s.state(s.H),
        "gates": s.rows(3 * s.H) if a["save"] else None,
        "inner": s.rows(s.H) if a["save"] and a["reset_after"] else None,
    }


def _numpy(*operands: Any, direction: str, layout: str, padding: str, **a: Any) -> list[Array]:
    v = GruOperands(*map(wide, operands))
    layer = LayerMeaning(v.x, v.lengths, v.count, direction=direction, layout=layout, padding=padding)
    (D, G, H), kind = v.w_hh.shape, layer.x.dtype
    acts = layer_sizes.acts(a["activations"], CELL.acts, D)
    for d in range(D):
        inputs = layer.inputs(d, v.w_ih, G)
        zeros = np.zeros(G, kind)
        biases = (zeros if v.b is None else v.b[d], zeros[:H] if v.b_hn is None else v.b_hn[d])

        def step(t: int, alive: Array, state: Any, d: int = d, biases: Any = biases, inputs: Any = inputs) -> Any:
            (h,) = state
            hm = h if v.recurrent_mask is None else h * v.recurrent_mask[d]
            pre = inputs(t, alive) + biases[0]
            r, z, n, k = _gate_arrays(pre, hm, v.w_hh[d], biases[1], acts[d], a)
            h = (1 - z) * h + z * n if a["flip_z"] else z * h + (1 - z) * n
            inner = (k,) if a["reset_after"] else ()
            return (h,), (h, np.concatenate([r, z, n], axis=1), *inner)

        first = (start(v.h0, d, layer.B, H, kind),)
        layer.run(d, first, (H, G, *((H,) if a["reset_after"] else ())), step)
    return layer.results(a["save"])


def _gate_arrays(pre: Array, hm: Array, R: Array, b_hn: Array, acts: Any, a: Any) -> tuple[Array, ...]:
    """r, z, n and what r multiplies."""
    ar, az, an = np.split(pre, 3, axis=1)
    Rr, Rz, Rn = np.split(R, 3)
    limit = a["gate_clip"]
    r = acts[0].numpy(clip(ar + hm @ Rr.T, limit))
    z = acts[1].numpy(clip(az + hm @ Rz.T, limit))
    k = hm @ Rn.T + b_hn
    recurrent = r * k if a["reset_after"] else (r * hm) @ Rn.T
    return r, z, acts[2].numpy(clip(an + recurrent, limit)), k


def _expand(*operands: Value | None, **a: Any) -> dict[str, Value]:
    """The results of `gru` by one `scan`."""
    p = LayerPlan.of(CELL, operands, a)
    first = (p.f.state(p.v["h0"], p.H),)
    extra = (2 if a["reset_after"] else 1) if a["save"] else 0

    def cell(state: State, rows: State, c: Consts, alive: Alive) -> tuple[State, State]:
        (h,) = state
        given = p.input_part(rows[0], c, alive)
        gates, k = _gates(p, given, masked(h, c["recurrent_mask"]), c)
        _, z, n = gates
        new = (1.0 - z) * h + z * n if a["flip_z"] else z * h + (1.0 - z) * n
        held = alive.choose(new, h)
        kept = [concat(list(gates), n.rank - 1), k][:extra]
        rows_out = (p.hold_or_zero(alive, new, held), *(alive.choose(v) for v in kept if v is not None))
        return (held,), rows_out

    consts = p.inside("w_ih", "b", "b_hn", "recurrent_mask") | recurrent_weights(p)
    final, out = p.f.loop(cell, first, [p.x_rows], consts, 1 + extra)
    results = {"y": p.result(p.y_rows(out[0], final[0], first[0])), "h_n": p.final(final[0])}
    return results | {n: p.result(r) for n, r in zip(("gates", "inner"), out[1:], strict=False)}


def recurrent_weights(p: LayerPlan) -> Consts:
    """w_hh whole where one product serves all gates; cut behind r and z where n waits for r."""
    w = p.f.inside(p.v["w_hh"])
    assert w is not None
    if p.a["reset_after"]:
        return {"w_hh": w}
    axis = w.rank - 2
    return {"w_rz": slice_axis(w, axis, 0, 2 * p.H), "w_n": slice_axis(w, axis, 2 * p.H, 3 * p.H)}


def _gates(p: LayerPlan, preactivations: Value, hm: Value, c: Consts) -> tuple[State, Value | None]:
    """(r, z, n) and, with reset_after, what r multiplies."""
    H, limit = p.H, p.a["gate_clip"]
    ar, az, an = (block(preactivations, k, H) for k in range(3))
    k: Value | None = None
    weights = c["w_hh"] if p.a["reset_after"] else c["w_rz"]
    assert weights is not None
    rec = p.f.dot(hm, weights)
    r = p.f.apply(p.act(0), clipped(ar + block(rec, 0, H), limit))
    z = p.f.apply(p.act(1), clipped(az + block(rec, 1, H), limit))
    if p.a["reset_after"]:
        k, b_hn = block(rec, 2, H), c["b_hn"]
        if b_hn is not None:
            k = k + p.f.columns(b_hn, k)
        n = an + r * k
    else:
        w_n = c["w_n"]
        assert w_n is not None
        n = an + p.f.dot(r * hm, w_n)
    return (r, z, p.f.apply(p.act(2), clipped(n, limit))), k


GRU = define_layer(CELL, ATTRS, "y h_n gates inner", types=_types, numpy=_numpy, expand=_expand)


@several
class GRUResult(NamedTuple):
    """y [T,B,D*H], h_n [D,B,H]."""

    y: Value
    h_n: Value


class SavedGRU(NamedTuple):
    """GRUResult, gates [T,B,D*3H], and inner [T,B,D*H] with reset_after, else None."""

    y: Value
    h_n: Value
    gates: Value
    inner: Value | None = None


def gru(
    x: Any,
    w_ih: Any,
    w_hh: Any,
    b: Any = None,
    h0: Any = None,
    *,
    b_hn: Any = None,
    lengths: Any = None,
    count: Any = None,
    recurrent_mask: Any = None,
    direction: str = "forward",
    layout: str = "time",
    activations: tuple[str, ...] = (),
    gate_clip: float = 0.0,
    padding: str = "zero",
    save: bool = False,
    reset_after: bool = True,
    flip_z: bool = False,
) -> Any:
    """A GRU layer: y [T,B,D*H], h_n [D,B,H]; with save=True also gates and inner.

    x [T,B,I] (layout "batch": [B,T,I]), w_ih [D,3H,I] or None, w_hh [D,3H,H], b [D,3H], b_hn [D,H],
    h0 [D,B,H], lengths [B], count [] (i32 or i64), recurrent_mask [D,B,H]; the axis D may be left out when
    it is 1.
    """
    node = layer_node(
        GRU,
        GruOperands(x, w_ih, w_hh, b, b_hn, h0, lengths, count, recurrent_mask),
        direction=direction,
        layout=layout,
        activations=activations,
        gate_clip=gate_clip,
        padding=padding,
        save=save,
        reset_after=reset_after,
        flip_z=flip_z,
    )
    return (SavedGRU if save else GRUResult)(*node.values)
