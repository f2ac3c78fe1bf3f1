"""`rnn`: a whole layer of one gate, one or two directions.

    a = W x[t] + R (recurrent_mask * h[t-1]) + b          h = act(a), a held inside ±gate_clip

Source: Elman 1990. docs/core-ops.md has the operand table, docs/gradients.md the backward
equations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lstm_ir.ir.graph import Value
from lstm_ir.ir.opdef import Level, define
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.core import sizes as rt
from lstm_ir.ops.core.build import layer_node
from lstm_ir.ops.core.meaning import Array, Layer, State, clip, start, wide

DEFAULT_ACTS = ("tanh",)
OPERANDS = "x w_ih? w_hh b? h0? lengths? count? recurrent_mask?"
ATTRS = {**rt.SHARED_ATTRS}


def check(
    x: TensorType,
    w_ih: rt.Maybe,
    w_hh: TensorType,
    b: rt.Maybe,
    h0: rt.Maybe,
    lengths: rt.Maybe,
    count: rt.Maybe,
    recurrent_mask: rt.Maybe,
    **a: Any,
) -> rt.Sizes:
    """The sizes, every operand and attribute checked."""
    s = rt.sizes(x, w_ih, w_hh, 1, a["direction"], a["layout"])
    rt.exactly("b", b, s, (s.D, s.H))
    rt.exactly("h0", h0, s, (s.D, s.B, s.H))
    rt.check_masks(s, lengths, count, recurrent_mask)
    rt.one_of("padding", a["padding"], ("zero", "hold"))
    rt.clip_limit("gate_clip", a["gate_clip"])
    rt.acts(a["activations"], DEFAULT_ACTS, s.D)
    return s


def _types(*operands: Any, **a: Any) -> dict[str, TensorType | None]:
    s = check(*operands, **a)
    pre = s.rows(s.H) if a["save"] else None
    return {"y": s.rows(s.H), "h_n": s.state(s.H), "pre": pre}


def _numpy(
    x: Array,
    w_ih: Any,
    w_hh: Any,
    b: Any,
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
    wides = (wide(v) for v in (x, w_ih, w_hh, b, h0, recurrent_mask))
    x, w_ih, w_hh, b, h0, recurrent_mask = wides  # type: ignore[assignment]
    layer = Layer(x, lengths, count, direction=direction, layout=layout, padding=padding)
    D, H, _ = w_hh.shape
    acts = rt.acts(a["activations"], DEFAULT_ACTS, D)
    for d in range(D):
        given = layer.inputs(d, w_ih, H)

        def step(t: int, alive: Array, state: State, d: int = d, given: Any = given) -> Any:
            (h,) = state
            hm = h if recurrent_mask is None else h * recurrent_mask[d]
            pre = given(t, alive) + hm @ w_hh[d].T
            if b is not None:
                pre = pre + b[d]
            h = acts[d][0].numpy(clip(pre, a["gate_clip"]))
            return (h,), (h, pre)

        layer.run(d, (start(h0, d, layer.B, H, x.dtype),), (H, H), step)
    return layer.results(a["save"])


def _expand(*operands: Value | None, **a: Any) -> Any:
    from lstm_ir.ops.core.rnn_scan import expand

    return expand(*operands, **a)


def _vjp(node: Any, cts: Any) -> Any:
    from lstm_ir.ops.core.rnn_grad import rnn_vjp

    return rnn_vjp(node, cts)


RNN = define(
    "rnn",
    OPERANDS,
    attrs=ATTRS,
    results="y h_n pre",
    types=_types,
    numpy=_numpy,
    vjp=_vjp,
    expand=_expand,
    level=Level.core,
    ranges=rt.ranges,
)


class RNNResult(NamedTuple):
    """y [T,B,D*H], h_n [D,B,H]."""

    y: Value
    h_n: Value


class SavedRNN(NamedTuple):
    """RNNResult and pre [T,B,D*H]."""

    y: Value
    h_n: Value
    pre: Value


def rnn(
    x: Any,
    w_ih: Any,
    w_hh: Any,
    b: Any = None,
    h0: Any = None,
    *,
    lengths: Any = None,
    count: Any = None,
    recurrent_mask: Any = None,
    direction: str = "forward",
    layout: str = "time",
    activations: tuple[str, ...] = (),
    gate_clip: float = 0.0,
    padding: str = "zero",
    save: bool = False,
) -> Any:
    """A layer of one gate: y [T,B,D*H], h_n [D,B,H]; with save=True also pre.

    x [T,B,I] (layout "batch": [B,T,I]), w_ih [D,H,I] or None, w_hh [D,H,H], b [D,H], h0 [D,B,H],
    lengths i32[B], count i32[], recurrent_mask [D,B,H]; the axis D may be left out when it is 1.
    activations: one per direction.
    """
    node = layer_node(
        RNN,
        (x, w_ih, w_hh, b, h0, lengths, count, recurrent_mask),
        direction=direction,
        layout=layout,
        activations=activations,
        gate_clip=gate_clip,
        padding=padding,
        save=save,
    )
    return (SavedRNN if save else RNNResult)(*node.values)
