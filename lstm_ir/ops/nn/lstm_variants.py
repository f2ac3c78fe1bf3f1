"""Three LSTM layers that are no core op: with zoneout, with recurrent dropout, with layer norm.

Gates i, f, g, o in blocks of H rows as in `lstm`; s is the logistic function. All expand to `scan`, one
per direction, and have the gradient of their expansion. Per step, over h and c of the step before:

zoneout_lstm              i, f, g, o from W x + R h + b;  C = s(f) c + s(i) tanh(g);  H = s(o) tanh(C)
    training              c' = c where the bits of (0,d,t,b,k) are below zoneout_c 2^32, else C
                          h' = h where those of (1,d,t,b,k) are below zoneout_h 2^32, else H
    inference             c' = zoneout_c c + (1 - zoneout_c) C,  h' likewise: the expectation over the bits
    Source: Krueger et al., "Zoneout: regularizing RNNs by randomly preserving hidden activations",
    ICLR 2017, equations 4 and 5. H is made of C, not of c'.

recurrent_dropout_lstm    c' = s(f) c + s(i) drop(tanh(g));  h' = s(o) tanh(c')
    training              drop(v) = v / (1 - rate) where the bits of (d,t,b,k) are not below rate 2^32, else 0
    inference             drop(v) = v, the plain `lstm`
    Source: Semeniuta, Severyn & Barth, "Recurrent dropout without memory loss", COLING 2016, equation 15.

layer_norm_lstm           i, f, g, o from LN(W x; scale_x) + LN(R h; scale_h) + b
                          c' = s(f) c + s(i) tanh(g);  h' = s(o) tanh(LN(c'; scale_c) + bias_c)
    LN(v; a) = (v - mean(v)) / sqrt(var(v) + epsilon) a over the columns of a row, var divides by their number
    Source: Ba, Kiros & Hinton, "Layer normalization", 2016, equations 20 to 22; one b for both products.

The bits are those of `threefry` under `key`, of shape [2,D,T,B,H] or [D,T,B,H]: the same on every target.
Dropout with one mask for all steps (Gal & Ghahramani 2016) is `recurrent_mask` of `lstm`, given a dropped
row of ones.
"""

from __future__ import annotations

from typing import Any

from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.opdef import Attr, Level, Range, define, need
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.core import sizes as layer_sizes
from lstm_ir.ops.core.build import layer_node
from lstm_ir.ops.core.lstm import CELL, LSTMResult
from lstm_ir.ops.nn import lstm_variants_meaning as meaning
from lstm_ir.ops.nn import lstm_variants_scan as scans
from lstm_ir.ops.nn.dropout import need_key, need_rate

LAYER = "x w_ih w_hh b? h0? c0? lengths?"
TRAINING = {"direction": Attr("str", "forward"), "training": Attr("bool", True)}


def _sizes(
    direction: str, x: TensorType, w_ih: TensorType, w_hh: TensorType, b: layer_sizes.Maybe, h0: layer_sizes.Maybe,
    c0: layer_sizes.Maybe, lengths: layer_sizes.Maybe,
) -> layer_sizes.Sizes:  # fmt: skip
    s = layer_sizes.sizes(CELL, x, w_ih, w_hh, direction, "time")
    layer_sizes.exactly("b", b, s, (s.D, 4 * s.H))
    layer_sizes.first_state("h0", h0, s, s.H, b)
    layer_sizes.exactly("c0", c0, s, (s.D, s.B, s.H))
    layer_sizes.check_masks(s, lengths, None, None)
    return s


def _results(s: layer_sizes.Sizes) -> dict[str, TensorType]:
    return {"y": s.rows(s.H), "h_n": s.state(s.H), "c_n": s.state(s.H)}


def _ranges(node: Node) -> tuple[Range, ...]:
    x = node.args[0]
    assert isinstance(x, Value)
    return () if node.arg("lengths") is None else (Range("lengths", 0, x.shape[0]),)


def _zoneout_types(*operands: Any, direction: str, training: bool, zoneout_c: float,
                   zoneout_h: float) -> Any:  # fmt: skip
    *layer, key = operands
    need_key(key)
    need_rate("zoneout_c", zoneout_c)
    need_rate("zoneout_h", zoneout_h)
    return _results(_sizes(direction, *layer))


def _dropout_types(*operands: Any, direction: str, training: bool, rate: float) -> Any:
    *layer, key = operands
    need_key(key)
    need_rate("rate", rate)
    return _results(_sizes(direction, *layer))


def _norm_types(*operands: Any, direction: str, epsilon: float) -> Any:
    s = _sizes(direction, *operands[:7])
    widths = {"scale_x": 4, "scale_h": 4, "scale_c": 1, "bias_c": 1}
    for (name, k), t in zip(widths.items(), operands[7:], strict=True):
        layer_sizes.exactly(name, t, s, (s.D, k * s.H))
    need(epsilon >= 0, f"epsilon is {epsilon}; it is at least 0")
    return _results(s)


ZONEOUT = define(
    "zoneout_lstm", f"{LAYER} key", results="y h_n c_n",
    attrs={**TRAINING, "zoneout_c": Attr("float"), "zoneout_h": Attr("float")},
    types=_zoneout_types, numpy=meaning.zoneout, vjp=None, expand=scans.zoneout,
    level=Level.composite, ranges=_ranges, training="training",
)  # fmt: skip
DROPOUT = define(
    "recurrent_dropout_lstm", f"{LAYER} key", results="y h_n c_n",
    attrs={**TRAINING, "rate": Attr("float")},
    types=_dropout_types, numpy=meaning.recurrent_dropout, vjp=None, expand=scans.recurrent_dropout,
    level=Level.composite, ranges=_ranges, training="training",
)  # fmt: skip
LAYER_NORM = define(
    "layer_norm_lstm", f"{LAYER} scale_x? scale_h? scale_c? bias_c?", results="y h_n c_n",
    attrs={"direction": Attr("str", "forward"), "epsilon": Attr("float", 1e-5)},
    types=_norm_types, numpy=meaning.layer_normed, vjp=None, expand=scans.layer_normed,
    level=Level.composite, ranges=_ranges,
)  # fmt: skip


def zoneout_lstm(
    x: Any, w_ih: Any, w_hh: Any, b: Any = None, h0: Any = None, c0: Any = None, *, key: Value,
    zoneout_c: float, zoneout_h: float, lengths: Any = None, direction: str = "forward",
    training: bool = True,
) -> LSTMResult:  # fmt: skip
    """An LSTM layer whose cells and outputs keep their value of the step before, each with a probability.

    Operands and results are those of `lstm`; `key` u32[2] is that of `random_key`. training=False: the
    expectation instead of draws; `train_step` sets it where it infers. Krueger et al., ICLR 2017.
    """
    node = layer_node(
        ZONEOUT, (x, w_ih, w_hh, b, h0, c0, lengths, key), direction=direction, training=training,
        zoneout_c=zoneout_c, zoneout_h=zoneout_h,
    )  # fmt: skip
    return LSTMResult(*node.values)


def recurrent_dropout_lstm(
    x: Any, w_ih: Any, w_hh: Any, b: Any = None, h0: Any = None, c0: Any = None, *, key: Value,
    rate: float, lengths: Any = None, direction: str = "forward", training: bool = True,
) -> LSTMResult:  # fmt: skip
    """An LSTM layer that drops the share `rate` of what enters its cells, anew at every step.

    Operands and results are those of `lstm`; `key` u32[2] is that of `random_key`. training=False: the
    plain layer; `train_step` sets it where it infers. Semeniuta, Severyn & Barth, COLING 2016.
    """
    node = layer_node(
        DROPOUT, (x, w_ih, w_hh, b, h0, c0, lengths, key), direction=direction, training=training,
        rate=rate,
    )  # fmt: skip
    return LSTMResult(*node.values)


def layer_norm_lstm(
    x: Any, w_ih: Any, w_hh: Any, b: Any = None, h0: Any = None, c0: Any = None, *,
    scale_x: Any = None, scale_h: Any = None, scale_c: Any = None, bias_c: Any = None,
    lengths: Any = None, direction: str = "forward", epsilon: float = 1e-5,
) -> LSTMResult:  # fmt: skip
    """An LSTM layer with both products, and the cell on its way to the output, normalised per row.

    Operands and results are those of `lstm`; scale_x and scale_h [D,4H], scale_c and bias_c [D,H];
    an absent scale is ones, an absent bias zeros. Ba, Kiros & Hinton 2016.
    """
    node = layer_node(
        LAYER_NORM, (x, w_ih, w_hh, b, h0, c0, lengths, scale_x, scale_h, scale_c, bias_c),
        direction=direction, epsilon=epsilon,
    )  # fmt: skip
    return LSTMResult(*node.values)
