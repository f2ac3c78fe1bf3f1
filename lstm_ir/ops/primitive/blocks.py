"""Channels as blocks of places, and back: what sub-pixel convolutions use (Shi et al., 2016)."""

from __future__ import annotations

from typing import Any

from lstm_ir.ir import dims, options
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.location import here
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.shape import reshape, transpose

_MODES = ("DCR", "CRD")


def _image(op: str, x: Any, block: Any) -> tuple[Value, int]:
    (v,) = as_values(op, x)
    k = options.integer(op, "block", block)
    if k < 1:
        raise options.refuse(op, "block", block, "1 or more")
    if v.rank != 4:
        raise _refused(op, v, "takes [N, C, H, W]")
    return v, k


def _refused(op: str, x: Value, problem: str) -> IRError:
    return IRError(message(op, problem, [("x", x.type)], here()))


def depth_to_space(x: Any, block: int, mode: str = "DCR") -> Value:
    """Channels of x [N, C, H, W] as blocks of places: [N, C / block^2, H block, W block].

    The channels are [place, place, C'] with mode DCR, as in ONNX and TensorFlow, or [C', place, place] with CRD, as in
    PyTorch's pixel_shuffle.
    """
    v, k = _image("depth_to_space", x, block)
    n, channels, h, w = v.shape
    options.choice("depth_to_space", "mode", mode, _MODES)
    d = dims.floordiv(channels, k * k)
    if dims.mul(d, k * k) != channels:
        raise _refused("depth_to_space", v, f"{channels} channels are not known to divide by {k * k}")
    split, order = ((k, k, d), (0, 3, 4, 1, 5, 2)) if mode == "DCR" else ((d, k, k), (0, 1, 4, 2, 5, 3))
    parts = transpose(reshape(v, (n, *split, h, w)), order)
    return reshape(parts, (n, d, dims.mul(h, k), dims.mul(w, k)))


def space_to_depth(x: Any, block: int, mode: str = "DCR") -> Value:
    """Blocks of places of x [N, C, H, W] as channels: [N, C block^2, H / block, W / block]; the other way."""
    v, k = _image("space_to_depth", x, block)
    n, d, h, w = v.shape
    options.choice("space_to_depth", "mode", mode, _MODES)
    low, wide = dims.floordiv(h, k), dims.floordiv(w, k)
    if (dims.mul(low, k), dims.mul(wide, k)) != (h, w):
        raise _refused("space_to_depth", v, f"{h} and {w} are not known to divide into blocks of {k}")
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    parts = transpose(reshape(v, (n, d, low, k, wide, k)), order)
    return reshape(parts, (n, dims.product((k, k, d)), low, wide))
