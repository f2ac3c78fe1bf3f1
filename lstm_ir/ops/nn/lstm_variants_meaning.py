"""The NumPy meanings of the LSTM layers with zoneout, recurrent dropout and layer norm (lstm_variants.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lstm_ir.ops.core.meaning import Array, LayerMeaning, start
from lstm_ir.ops.nn import threefry
from lstm_ir.ops.primitive.numpy_math import wide

Row = Callable[..., Any]
"""(d, t, x_t, h, c) -> (h', c')."""


def _sigmoid(a: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0, -a)), a.dtype)


def _gates(a: Array) -> tuple[Array, ...]:
    i, f, g, o = np.split(a, 4, axis=1)
    return _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)


def _loop(x: Array, w_hh: Array, h0: Any, c0: Any, lengths: Any, direction: str, row: Row) -> Any:
    """Every step of every direction; row(d, t, x_t, h, c) gives h and c."""
    layer = LayerMeaning(x, lengths, None, direction=direction, layout="time", padding="zero")
    H = w_hh.shape[2]
    for d in range(w_hh.shape[0]):

        def step(t: int, alive: Array, state: Any, d: int = d) -> Any:
            new = row(d, t, np.where(alive[:, None], layer.x[t], 0), *state)
            return new, new[:1]

        first = tuple(start(v, d, layer.B, H, x.dtype) for v in (h0, c0))
        layer.run(d, first, (H,), step)
    return layer.results(False)


def _wides(*arrays: Any) -> Any:
    return (wide(v) for v in arrays)


def _pre(w_ih: Array, w_hh: Array, b: Any, d: int, x: Array, h: Array) -> Array:
    a = x @ w_ih[d].T + h @ w_hh[d].T
    return np.asarray(a if b is None else a + b[d])


def zoneout(
    x: Array, w_ih: Any, w_hh: Any, b: Any, h0: Any, c0: Any, lengths: Any, key: Array, *,
    direction: str, training: bool, zoneout_c: float, zoneout_h: float,
) -> Any:  # fmt: skip
    """`zoneout_lstm`."""
    x, w_ih, w_hh, b, h0, c0 = _wides(x, w_ih, w_hh, b, h0, c0)
    D, _, H = w_hh.shape
    bits = threefry.THREEFRY.numpy(key, shape=(2, D, *x.shape[:2], H))

    def mixed(at: int, rate: float, d: int, t: int, old: Array, new: Array) -> Array:
        if training:
            return np.asarray(np.where(threefry.drawn(bits[at, d, t], rate), new, old))
        share = x.dtype.type(rate)
        return np.asarray(share * old + (1 - share) * new)

    def row(d: int, t: int, x_t: Array, h: Array, c: Array) -> Any:
        i, f, g, o = _gates(_pre(w_ih, w_hh, b, d, x_t, h))
        new = f * c + i * g
        out = o * np.tanh(new)
        return mixed(1, zoneout_h, d, t, h, out), mixed(0, zoneout_c, d, t, c, new)

    return _loop(x, w_hh, h0, c0, lengths, direction, row)


def recurrent_dropout(
    x: Array, w_ih: Any, w_hh: Any, b: Any, h0: Any, c0: Any, lengths: Any, key: Array, *,
    direction: str, training: bool, rate: float,
) -> Any:  # fmt: skip
    """`recurrent_dropout_lstm`."""
    x, w_ih, w_hh, b, h0, c0 = _wides(x, w_ih, w_hh, b, h0, c0)
    D, _, H = w_hh.shape
    bits = threefry.THREEFRY.numpy(key, shape=(D, *x.shape[:2], H))

    def row(d: int, t: int, x_t: Array, h: Array, c: Array) -> Any:
        i, f, g, o = _gates(_pre(w_ih, w_hh, b, d, x_t, h))
        if training:
            g = np.where(threefry.drawn(bits[d, t], rate), g / g.dtype.type(1 - rate), 0)
        new = f * c + i * g
        return o * np.tanh(new), new

    return _loop(x, w_hh, h0, c0, lengths, direction, row)


def layer_normed(
    x: Array, w_ih: Any, w_hh: Any, b: Any, h0: Any, c0: Any, lengths: Any, scale_x: Any,
    scale_h: Any, scale_c: Any, bias_c: Any, *, direction: str, epsilon: float,
) -> Any:  # fmt: skip
    """`layer_norm_lstm`."""
    x, w_ih, w_hh, b, h0, c0 = _wides(x, w_ih, w_hh, b, h0, c0)
    scale_x, scale_h, scale_c, bias_c = _wides(scale_x, scale_h, scale_c, bias_c)

    def norm(v: Array, scale: Any, d: int) -> Array:
        if not v.shape[1]:  # no mean, and nothing to give
            return v
        centred = v - v.mean(axis=1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(axis=1, keepdims=True) + v.dtype.type(epsilon))
        return np.asarray(centred / spread if scale is None else centred / spread * scale[d])

    def row(d: int, t: int, x_t: Array, h: Array, c: Array) -> Any:
        a = norm(x_t @ w_ih[d].T, scale_x, d) + norm(h @ w_hh[d].T, scale_h, d)
        i, f, g, o = _gates(a if b is None else a + b[d])
        new = f * c + i * g
        shown = norm(new, scale_c, d)
        return o * np.tanh(shown if bias_c is None else shown + bias_c[d]), new

    return _loop(x, w_hh, h0, c0, lengths, direction, row)
