"""The LSTM layers with zoneout, recurrent dropout and layer norm as `scan` (equations: lstm_variants.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ops.core import sizes as layer_sizes
from lstm_ir.ops.core.lstm import lstm
from lstm_ir.ops.nn import threefry
from lstm_ir.ops.nn.layers import dense, layer_norm
from lstm_ir.ops.nn.lengths import exists, zeros_behind
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.fill import zeros
from lstm_ir.ops.primitive.indexing import index
from lstm_ir.ops.primitive.precision import in_compute_dtype
from lstm_ir.ops.primitive.shape import concat, stack
from lstm_ir.ops.scan.builder import scan

Maybe = Value | None
Row = Callable[..., Any]
"""(x_t, h, c, *drawn_t, consts of this direction) -> (h', c')."""


def _scanned(
    x: Value, consts: dict[str, Maybe], h0: Maybe, c0: Maybe, lengths: Maybe, direction: str,
    project: Callable[[int, Value], Value], cell: Row,
    drawn: Callable[[int], tuple[Value, ...]] = lambda d: (),
) -> dict[str, Value]:  # fmt: skip
    """One scan per direction over project(d, x) [T,B,4H] and what was drawn for it [T,B,H].

    consts [D,...], w_hh among them, are all that a cell reads: it would look through other values.
    """
    w_hh = consts["w_hh"]
    assert w_hh is not None
    H = w_hh.shape[2]
    kept = x if lengths is None else zeros_behind(x, exists(lengths, x.shape[0]))
    parts = []
    for d, reverse in enumerate(layer_sizes.DIRECTIONS[direction]):
        first = tuple(zeros((x.shape[1], H), x.dtype) if v is None else index(v, d) for v in (h0, c0))

        def step(state: Any, rows: Any, w: Any) -> Any:
            new = cell(rows[0], *state, *rows[1:], w)
            return new, new[0]

        rows = (project(d, kept), *drawn(d))
        w = {n: _at(v, d) for n, v in consts.items()}
        (h, c), y = scan(step, first, rows, (w,), reverse=reverse, lengths=lengths, name="lstm")
        parts.append((y, h, c))
    ys, hs, cs = zip(*parts, strict=True)
    y = ys[0] if len(ys) == 1 else concat(list(ys), 2)
    return {"y": y, "h_n": stack(list(hs)), "c_n": stack(list(cs))}


def _blocks(a: Value) -> tuple[Value, ...]:
    H = a.shape[1]
    assert isinstance(H, int)
    i, f, g, o = (a[:, k * (H // 4) : (k + 1) * (H // 4)] for k in range(4))
    return e.logistic(i), e.logistic(f), e.tanh(g), e.logistic(o)


def _at(v: Maybe, d: int) -> Maybe:
    return None if v is None else index(v, d)


def _in_f32(*values: Maybe) -> list[Any]:
    """16-bit floats as f32, as every recurrent op computes."""
    return [None if v is None else in_compute_dtype(v) for v in values]


def _back(results: dict[str, Value], like: Value) -> dict[str, Value]:
    return {n: v if v.dtype is like.dtype else e.convert(v, like.dtype) for n, v in results.items()}


def zoneout(
    x: Value, w_ih: Value, w_hh: Value, b: Maybe, h0: Maybe, c0: Maybe,
    lengths: Maybe, key: Value, *, direction: str, training: bool, zoneout_c: float,
    zoneout_h: float,
) -> dict[str, Value]:  # fmt: skip
    """`zoneout_lstm`."""
    like, (D, _, H) = x, w_hh.shape
    x, w_ih, w_hh, b, h0, c0 = _in_f32(x, w_ih, w_hh, b, h0, c0)
    bits = threefry.random_bits(key, (2, D, *x.shape[:2], H)) if training else None

    def drawn(d: int) -> tuple[Value, ...]:
        if bits is None:
            return ()
        rates = (zoneout_c, zoneout_h)
        return tuple(threefry.drawn(index(index(bits, k), d), r) for k, r in enumerate(rates))

    def mixed(rate: float, old: Value, new: Value, keep: Maybe) -> Value:
        if keep is not None:
            return e.select(keep, new, old)
        return old * rate + new * (1.0 - rate)

    def cell(x_t: Value, h: Value, c: Value, *rest: Any) -> Any:
        keep_c, keep_h = rest[:2] if training else (None, None)
        i, f, g, o = _blocks(x_t + dense(h, rest[-1]["w_hh"]))
        new = f * c + i * g
        out = o * e.tanh(new)
        return mixed(zoneout_h, h, out, keep_h), mixed(zoneout_c, c, new, keep_c)

    def project(d: int, rows: Value) -> Value:
        return dense(rows, index(w_ih, d), _at(b, d))

    consts: dict[str, Maybe] = {"w_hh": w_hh}
    return _back(_scanned(x, consts, h0, c0, lengths, direction, project, cell, drawn), like)


def recurrent_dropout(
    x: Value, w_ih: Value, w_hh: Value, b: Maybe, h0: Maybe, c0: Maybe,
    lengths: Maybe, key: Value, *, direction: str, training: bool, rate: float,
) -> dict[str, Value]:  # fmt: skip
    """`recurrent_dropout_lstm`."""
    if not training:
        return dict(lstm(x, w_ih, w_hh, b, h0, c0, lengths=lengths, direction=direction)._asdict())
    like, (D, _, H) = x, w_hh.shape
    x, w_ih, w_hh, b, h0, c0 = _in_f32(x, w_ih, w_hh, b, h0, c0)
    keep = threefry.drawn(threefry.random_bits(key, (D, *x.shape[:2], H)), rate)
    scale = e.select(keep, constant(1.0 / (1.0 - rate), x.dtype), constant(0, x.dtype))

    def cell(x_t: Value, h: Value, c: Value, drop: Value, w: Any) -> Any:
        i, f, g, o = _blocks(x_t + dense(h, w["w_hh"]))
        new = f * c + i * (g * drop)
        return o * e.tanh(new), new

    def project(d: int, rows: Value) -> Value:
        return dense(rows, index(w_ih, d), _at(b, d))

    def drawn(d: int) -> tuple[Value, ...]:
        return (index(scale, d),)

    consts: dict[str, Maybe] = {"w_hh": w_hh}
    return _back(_scanned(x, consts, h0, c0, lengths, direction, project, cell, drawn), like)


def layer_normed(
    x: Value, w_ih: Value, w_hh: Value, b: Maybe, h0: Maybe, c0: Maybe,
    lengths: Maybe, scale_x: Maybe, scale_h: Maybe, scale_c: Maybe,
    bias_c: Maybe, *, direction: str, epsilon: float,
) -> dict[str, Value]:  # fmt: skip
    """`layer_norm_lstm`."""
    like = x
    x, w_ih, w_hh, b, h0, c0 = _in_f32(x, w_ih, w_hh, b, h0, c0)
    scale_x, scale_h, scale_c, bias_c = _in_f32(scale_x, scale_h, scale_c, bias_c)

    def cell(x_t: Value, h: Value, c: Value, w: Any) -> Any:
        product = layer_norm(dense(h, w["w_hh"]), w["scale_h"], epsilon=epsilon)
        i, f, g, o = _blocks(x_t + product)
        new = f * c + i * g
        shown = layer_norm(new, w["scale_c"], w["bias_c"], epsilon=epsilon)
        return o * e.tanh(shown), new

    def project(d: int, rows: Value) -> Value:
        return layer_norm(dense(rows, index(w_ih, d)), _at(scale_x, d), _at(b, d), epsilon=epsilon)

    consts = {"w_hh": w_hh, "scale_h": scale_h, "scale_c": scale_c, "bias_c": bias_c}
    return _back(_scanned(x, consts, h0, c0, lengths, direction, project, cell), like)
