"""`DynamicQuantizeLSTM` as onnxruntime computes it on one thread, from the equations, in NumPy.

Before each matrix product the left operand becomes u8 by the range of all its elements and 0. The product is of
integers; its scales are that of the left operand and those of the weight's columns. A number near the middle between
two integers may become either, as what went before was rounded: the margin is the least distance to such a middle.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

F = np.float32


class Quantized:
    """Products with dynamic quantisation, and the least distance of any number to a tie."""

    def __init__(self) -> None:
        self.margin = 1.0

    def product(self, a: Any, w: Any, scale: Any, zero: Any) -> Any:
        """a [M,K] f32 times the weight w [K,N] of integers."""
        low, high = min(a.min(initial=0), F(0)), max(a.max(initial=0), F(0))
        step = F((high - low) / F(255)) or F(1)
        ratio = np.concatenate([a.reshape(-1) / step, [-low / step]])
        self.margin = min(self.margin, float(np.abs(ratio - np.floor(ratio) - 0.5).min(initial=1)))
        middle = np.clip(np.rint(-low / step), 0, 255)
        u, m, z = np.clip(np.rint(a / step) + middle, 0, 255).astype(np.int64), np.int64(middle), zero.astype(np.int64)
        columns, rows = w.sum(0, dtype=np.int64), u.sum(1, keepdims=True)
        whole = self.sums(u, w) - m * columns - rows * z + m * z * len(w)
        return whole.astype(F) * (step * scale)

    def sums(self, u: Any, w: Any) -> Any:
        """u [M,K] of u8 times w [K,N] of bytes."""
        return u @ w.astype(np.int64)


class InPairs(Quantized):
    """The same where u8 times i8 is summed as x86-64 does it without VNNI: each two products in 16 bits, saturated."""

    def sums(self, u: Any, w: Any) -> Any:
        """u [M,K] of u8 times w [K,N] of bytes."""
        if w.dtype == np.uint8:
            return super().sums(u, w)
        products = u[:, :, None] * w.astype(np.int64)
        return np.add.reduceat(products, range(0, len(w), 2), 1).clip(-(2**15), 2**15 - 1).sum(1)


@cache
def of_onnxruntime() -> type[Quantized]:
    """The products of onnxruntime on this processor."""
    import onnx_models as om

    node = om.node("MatMulInteger", ["u", "w"], ["y"])
    w = np.full((2, 1), 127, np.int8)
    (found,) = om.run(
        om.model([node], {"u": ([1, 2], np.uint8)}, ["y"], {"w": w}), {"u": np.full((1, 2), 255, np.uint8)}
    )
    return Quantized if found.item() == 2 * 255 * 127 else InPairs


class EachRow(Quantized):
    """The same products where each row, and each column of the weight, is int8 by its own largest size."""

    def product(self, a: Any, w: Any, scale: Any, zero: Any) -> Any:
        """a [M,K] f32 times the weight w [K,N] of integers."""
        wide = (w.astype(F) - zero.astype(F)) * scale
        q, of_column = self._int8(wide, 0)
        p, of_row = self._int8(a, 1)
        return (p.astype(np.int64) @ q.astype(np.int64)).astype(F) * of_row * of_column

    def _int8(self, a: Any, axis: int) -> tuple[Any, Any]:
        largest = np.abs(a).max(axis, keepdims=True, initial=0)
        step = np.where(largest == 0, F(1), largest / F(127))
        ratio = a / step
        self.margin = min(self.margin, float(np.abs(ratio - np.floor(ratio) - 0.5).min(initial=1)))
        return np.rint(ratio), step


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def run(
    arrays: Mapping[str, Any], attrs: Mapping[str, Any], products: type[Quantized] = Quantized
) -> tuple[list[Any], float]:
    """Y [T,D,B,H], Y_h and Y_c [D,B,H], and the margin. Activations are sigmoid and tanh."""
    x = arrays["X"]
    T, B, _ = x.shape
    D = len(arrays["R"])
    lengths = arrays.get("sequence_lens", np.full(B, T))
    made, numbers = [], products()
    for d in range(D):
        backward = attrs.get("direction") == "reverse" or d == 1
        made.append(_direction(x, arrays, attrs, d, backward, lengths, numbers))
    y, h, c = (np.stack(parts, axis) for parts, axis in zip(zip(*made, strict=True), (1, 0, 0), strict=True))
    return [y, h, c], numbers.margin


def _direction(
    x: Any,
    arrays: Mapping[str, Any],
    attrs: Mapping[str, Any],
    d: int,
    backward: bool,
    lengths: Any,
    numbers: Quantized,
) -> tuple[Any, Any, Any]:
    T, B, _ = x.shape
    H = arrays["R"].shape[1]
    order = np.tile(np.arange(T)[:, None], (1, B))
    if backward:
        order = np.where(order < lengths, lengths - 1 - order, order)
    rows = np.take_along_axis(x, order[:, :, None], 0)
    steps = int(lengths.max(initial=0))
    params = [arrays[f"{n}_{k}"][d] for n in "WR" for k in ("scale", "zero_point")]
    z = numbers.product(rows[:steps].reshape(steps * B, -1), arrays["W"][d], *params[:2]).reshape(steps, B, 4 * H)
    bias = arrays["B"][d, : 4 * H] + arrays["B"][d, 4 * H :] if "B" in arrays else np.zeros(4 * H, F)
    p_i, p_o, p_f = np.split(arrays["P"][d], 3) if "P" in arrays else [np.zeros(H, F)] * 3
    h = arrays["initial_h"][d] if "initial_h" in arrays else np.zeros((B, H), F)
    c = arrays["initial_c"][d] if "initial_c" in arrays else np.zeros((B, H), F)
    y = np.zeros((T, B, H), F)
    last_h, last_c = h, c
    limit = attrs.get("clip", np.inf)
    for t in range(steps):
        live = (t < lengths)[:, None]
        gates = z[t] + numbers.product(h, arrays["R"][d], *params[2:])
        i, o, f, g = np.split(gates, 4, 1)
        b_i, b_o, b_f, b_g = np.split(bias, 4)
        i = sigmoid(np.clip(i + p_i * c + b_i, -limit, limit))
        f = 1 - i if attrs.get("input_forget") else sigmoid(np.clip(f + p_f * c + b_f, -limit, limit))
        new = f * c + i * np.tanh(np.clip(g + b_g, -limit, limit))
        o = sigmoid(np.clip(o + p_o * new + b_o, -limit, limit))
        c = np.where(live, new, c)
        h = np.where(live, o * np.tanh(new), 0)  # of a row that ended 0 goes into the range
        last_h, last_c = np.where(live, h, last_h), np.where(live, c, last_c)
        y[t] = h
    y = np.take_along_axis(y, order[:, :, None], 0)
    return y, last_h, last_c
