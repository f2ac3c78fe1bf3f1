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
from lstm_ir.ir.opdef import Attr, Level, define, need
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.core import sizes as rt
from lstm_ir.ops.core.build import layer_node
from lstm_ir.ops.core.meaning import Array, Layer, State, clip, start, wide

DEFAULT_ACTS = ("sigmoid", "sigmoid", "tanh")
OPERANDS = "x w_ih? w_hh b? b_hn? h0? lengths? count? recurrent_mask?"
ATTRS = {
    **rt.SHARED_ATTRS,
    "reset_after": Attr("bool", True),
    "flip_z": Attr("bool", False),
}


def check(
    x: TensorType,
    w_ih: rt.Maybe,
    w_hh: TensorType,
    b: rt.Maybe,
    b_hn: rt.Maybe,
    h0: rt.Maybe,
    lengths: rt.Maybe,
    count: rt.Maybe,
    recurrent_mask: rt.Maybe,
    **a: Any,
) -> rt.Sizes:
    """The sizes, every operand and attribute checked."""
    s = rt.sizes(x, w_ih, w_hh, 3, a["direction"], a["layout"])
    rt.exactly("b", b, s, (s.D, 3 * s.H))
    rt.exactly("b_hn", b_hn, s, (s.D, s.H))
    rt.exactly("h0", h0, s, (s.D, s.B, s.H))
    rt.check_masks(s, lengths, count, recurrent_mask)
    rt.one_of("padding", a["padding"], ("zero", "hold"))
    rt.clip_limit("gate_clip", a["gate_clip"])
    problem = "b_hn is the bias inside the product with r: it needs reset_after; add it to b"
    need(b_hn is None or a["reset_after"], problem)
    rt.acts(a["activations"], DEFAULT_ACTS, s.D)
    return s


def _types(*operands: Any, **a: Any) -> dict[str, TensorType | None]:
    s = check(*operands, **a)
    return {
        "y": s.rows(s.H),
        "h_n": s.state(s.H),
        "gates": s.rows(3 * s.H) if a["save"] else None,
        "inner": s.rows(s.H) if a["save"] and a["reset_after"] else None,
    }


def _numpy(
    x: Array,
    w_ih: Any,
    w_hh: Any,
    b: Any,
    b_hn: Any,
    h0: Any,
    lengths: Any,
    count: Any,
    recurrent_mask: Any,
    *,
    direction: str,
    layout: str,
    padding: str,
    **a: Any,
) -> list[Array]:
    wides = (wide(v) for v in (x, w_ih, w_hh, b, b_hn, h0, recurrent_mask))
    x, w_ih, w_hh, b, b_hn, h0, recurrent_mask = wides  # type: ignore[assignment]
    layer = Layer(x, lengths, count, direction=direction, layout=layout, padding=padding)
    D, G, H = w_hh.shape
    acts = rt.acts(a["activations"], DEFAULT_ACTS, D)
    for d in range(D):
        given = layer.inputs(d, w_ih, G)
        zeros = np.zeros(G, x.dtype)
        biases = (zeros if b is None else b[d], zeros[:H] if b_hn is None else b_hn[d])

        def step(
            t: int, alive: Array, state: State, d: int = d, biases: Any = biases, given: Any = given
        ) -> Any:
            (h,) = state
            hm = h if recurrent_mask is None else h * recurrent_mask[d]
            r, z, n, k = _cell(given(t, alive) + biases[0], hm, w_hh[d], biases[1], acts[d], a)
            h = (1 - z) * h + z * n if a["flip_z"] else z * h + (1 - z) * n
            inner = (k,) if a["reset_after"] else ()
            return (h,), (h, np.concatenate([r, z, n], axis=1), *inner)

        first = (start(h0, d, layer.B, H, x.dtype),)
        layer.run(d, first, (H, G, *((H,) if a["reset_after"] else ())), step)
    return layer.results(a["save"])


def _cell(pre: Array, hm: Array, R: Array, b_hn: Array, acts: Any, a: Any) -> tuple[Array, ...]:
    """r, z, n and what r multiplies."""
    ar, az, an = np.split(pre, 3, axis=1)
    Rr, Rz, Rn = np.split(R, 3)
    limit = a["gate_clip"]
    r = acts[0].numpy(clip(ar + hm @ Rr.T, limit))
    z = acts[1].numpy(clip(az + hm @ Rz.T, limit))
    k = hm @ Rn.T + b_hn
    recurrent = r * k if a["reset_after"] else (r * hm) @ Rn.T
    return r, z, acts[2].numpy(clip(an + recurrent, limit)), k


def _expand(*operands: Value | None, **a: Any) -> Any:
    from lstm_ir.ops.core.gru_scan import expand

    return expand(*operands, **a)


def _vjp(node: Any, cts: Any) -> Any:
    from lstm_ir.ops.core.gru_grad import gru_vjp

    return gru_vjp(node, cts)


GRU = define(
    "gru",
    OPERANDS,
    attrs=ATTRS,
    results="y h_n gates inner",
    types=_types,
    numpy=_numpy,
    vjp=_vjp,
    expand=_expand,
    level=Level.core,
    ranges=rt.ranges,
)


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
    h0 [D,B,H], lengths i32[B], count i32[], recurrent_mask [D,B,H]; the axis D may be left out when
    it is 1.
    """
    node = layer_node(
        GRU,
        (x, w_ih, w_hh, b, b_hn, h0, lengths, count, recurrent_mask),
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
