"""`rnn`: a whole layer of one gate, one or two directions.

    a = W x[t] + R (recurrent_mask * h[t-1]) + b          h = act(a), a held inside ±gate_clip

Source: Elman 1990. docs/core-ops.md has the operand table, docs/gradients.md the backward
equations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lstm_ir.ir.graph import Value
from lstm_ir.ir.no_operand import several
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.core import sizes as layer_sizes
from lstm_ir.ops.core.build import layer_node
from lstm_ir.ops.core.cell import Cell
from lstm_ir.ops.core.frame import Alive, Consts, State, clipped
from lstm_ir.ops.core.grad import define_layer
from lstm_ir.ops.core.meaning import Array, LayerMeaning, clip, start
from lstm_ir.ops.core.operands import LayerPlan, masked
from lstm_ir.ops.primitive.numpy_math import wide


class RnnOperands(NamedTuple):
    """Types, arrays or values of the operands; None where one is absent."""

    x: Any
    w_ih: Any
    w_hh: Any
    b: Any
    h0: Any
    lengths: Any
    count: Any
    recurrent_mask: Any


CELL = Cell("rnn", RnnOperands, ("h",), ("tanh",))


def _sizes(v: RnnOperands, a: dict[str, Any]) -> layer_sizes.Sizes:
    """The sizes, every operand and attribute checked."""
    s = layer_sizes.sizes(CELL, v.x, v.w_ih, v.w_hh, a["direction"], a["layout"])
    layer_sizes.exactly("b", v.b, s, (s.D, s.H))
    layer_sizes.first_state("h0", v.h0, s, s.H, v.b)
    layer_sizes.check_masks(s, v.lengths, v.count, v.recurrent_mask)
    layer_sizes.one_of("padding", a["padding"], ("zero", "hold"))
    layer_sizes.clip_limit("gate_clip", a["gate_clip"])
    layer_sizes.acts(a["activations"], CELL.acts, s.D)
    return s


def _types(*operands: TensorType | None, **a: Any) -> dict[str, TensorType | None]:
    s = _sizes(RnnOperands(*operands), a)
    pre = s.rows(s.H) if a["save"] else None
    return {"y": s.rows(s.H), "h_n": s.state(s.H), "pre": pre}


def _numpy(*operands: Any, direction: str, layout: str, padding: str, **a: Any) -> list[Array]:
    v = RnnOperands(*map(wide, operands))
    layer = LayerMeaning(v.x, v.lengths, v.count, direction=direction, layout=layout, padding=padding)
    D, H, _ = v.w_hh.shape
    acts = layer_sizes.acts(a["activations"], CELL.acts, D)
    for d in range(D):
        inputs = layer.inputs(d, v.w_ih, H)

        def step(t: int, alive: Array, state: Any, d: int = d, inputs: Any = inputs) -> Any:
            (h,) = state
            hm = h if v.recurrent_mask is None else h * v.recurrent_mask[d]
            pre = inputs(t, alive) + hm @ v.w_hh[d].T
            if v.b is not None:
                pre = pre + v.b[d]
            h = acts[d][0].numpy(clip(pre, a["gate_clip"]))
            return (h,), (h, pre)

        layer.run(d, (start(v.h0, d, layer.B, H, layer.x.dtype),), (H, H), step)
    return layer.results(a["save"])


def _expand(*operands: Value | None, **a: Any) -> dict[str, Value]:
    """The results of `rnn` by one `scan`."""
    p = LayerPlan.of(CELL, operands, a)
    first = (p.f.state(p.v["h0"], p.H),)

    def cell(state: State, rows: State, c: Consts, alive: Alive) -> tuple[State, State]:
        (h,) = state
        w_hh = c["w_hh"]
        assert w_hh is not None
        pre = p.input_part(rows[0], c, alive) + p.f.dot(masked(h, c["recurrent_mask"]), w_hh)
        new = p.f.apply(p.act(0), clipped(pre, a["gate_clip"]))
        held = alive.choose(new, h)
        kept = (alive.choose(pre),) if a["save"] else ()
        return (held,), (p.hold_or_zero(alive, new, held), *kept)

    consts = p.inside("w_ih", "w_hh", "b", "recurrent_mask")
    final, out = p.f.loop(cell, first, [p.x_rows], consts, 2 if a["save"] else 1)
    results = {"y": p.result(p.y_rows(out[0], final[0], first[0])), "h_n": p.final(final[0])}
    return results | ({"pre": p.result(out[1])} if a["save"] else {})


RNN = define_layer(CELL, layer_sizes.SHARED_ATTRS, "y h_n pre", types=_types, numpy=_numpy, expand=_expand)


@several
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
    lengths [B], count [] (i32 or i64), recurrent_mask [D,B,H]; the axis D may be left out when it is 1.
    activations: one per direction.
    """
    node = layer_node(
        RNN,
        RnnOperands(x, w_ih, w_hh, b, h0, lengths, count, recurrent_mask),
        direction=direction,
        layout=layout,
        activations=activations,
        gate_clip=gate_clip,
        padding=padding,
        save=save,
    )
    return (SavedRNN if save else RNNResult)(*node.values)
