"""Cases of elementwise builders and of those that rearrange."""

from __future__ import annotations

from typing import Any

import numpy as np
from builder_case import Case
from sample import FLOATS, INTS

import lstm_ir as li

Z: Any = li  # arguments of any kind
A, M = (3, 7), (5, 3, 7)


def one(name: str, build: Any, oracle: Any, **more: Any) -> Case:
    """A float function of one operand, with its special values."""
    return Case(name, build, (M,), oracle, **{"kind": "rounded", "special": True, **more})


ACTIVATIONS = [
    one("relu", li.relu, lambda t, x: t.relu(x), kinds=(*FLOATS, *INTS)),
    one("leaky_relu", li.leaky_relu, lambda t, x: t.nn.functional.leaky_relu(x)),
    one("leaky_relu 0.25", lambda x: li.leaky_relu(x, 0.25), lambda t, x: t.nn.functional.leaky_relu(x, 0.25)),
    one("elu", li.elu, lambda t, x: t.nn.functional.elu(x)),
    one("elu 1.5", lambda x: li.elu(x, 1.5), lambda t, x: t.nn.functional.elu(x, 1.5)),
    one("selu", li.selu, lambda t, x: t.selu(x)),
    one("celu 2", lambda x: li.celu(x, 2.0), lambda t, x: t.nn.functional.celu(x, 2.0)),
    one("sigmoid", li.sigmoid, lambda t, x: t.sigmoid(x)),
    one("hard_sigmoid", lambda x: li.hard_sigmoid(x, 1 / 6), lambda t, x: t.nn.functional.relu6(x + 3) / 6),
    one("hard_swish", li.hard_swish, lambda t, x: t.nn.functional.hardswish(x), special=False, smooth=False),
    one("softplus", li.softplus, lambda t, x: t.nn.functional.softplus(x)),
    one("softplus 0.5", lambda x: li.softplus(x, 0.5), lambda t, x: t.nn.functional.softplus(x, 0.5)),
    one("softsign", li.softsign, lambda t, x: t.nn.functional.softsign(x)),
    one("silu", li.silu, lambda t, x: t.nn.functional.silu(x)),
    one("silu 2", lambda x: li.silu(x, 2.0), lambda t, x: x * t.sigmoid(2 * x)),
    one("gelu", li.gelu, lambda t, x: t.nn.functional.gelu(x)),
    one("gelu tanh", lambda x: li.gelu(x, "tanh"), lambda t, x: t.nn.functional.gelu(x, approximate="tanh")),
    one("mish", li.mish, lambda t, x: t.nn.functional.mish(x)),
    one("log_sigmoid", li.log_sigmoid, lambda t, x: t.nn.functional.logsigmoid(x)),
    one(
        "thresholded_relu",
        lambda x: li.thresholded_relu(x, 0.75),
        lambda t, x: t.where(x > 0.75, x, 0 * x),
        special=False,
    ),
    Case("prelu", li.prelu, (M, (7,)), lambda t, x, s: t.where(x > 0, x, x * s), kind="rounded"),
]

CHOICES = [
    Case(
        "where",
        lambda x, y, c: li.where(c, x, y),
        (M, (3, 1)),
        lambda t, x, y, c: t.where(c, x, y),
        (*FLOATS, *INTS),
        (np.array([True, False, True, True, False, False, True]),),
    ),
    one("clip", lambda x: li.clip(x, -1.0, 2.0), lambda t, x: t.clamp(x, -1.0, 2.0)),
    one("clip of ints", lambda x: li.clip(x, 1, 3), lambda t, x: t.clamp(x, 1, 3), kinds=INTS, smooth=False),
    one("clip below", lambda x: li.clip(x, low=1.0), lambda t, x: t.clamp(x, min=1.0)),
    one("clip above", lambda x: li.clip(x, high=1.0), lambda t, x: t.clamp(x, max=1.0)),
    one("square", li.square, lambda t, x: t.square(x), special=False),
    one("reciprocal", li.reciprocal, lambda t, x: t.reciprocal(x), special=False, low=0.25),
    one("mod", lambda x: li.mod(x, 2.5), lambda t, x: t.remainder(x, 2.5), special=False, smooth=False),
    one("mod by a negative", lambda x: li.mod(x, -1.5), lambda t, x: t.remainder(x, -1.5), special=False, smooth=False),
    Case(
        "mod of ints",
        lambda x, y: li.mod(x, y * 2 + 1),
        (M, (7,)),
        lambda t, x, y: t.remainder(x, y * 2 + 1),
        INTS,
        kind="exact",
        smooth=False,
    ),
    one(
        "floor_divide",
        lambda x: li.floor_divide(x, -1.5),
        lambda t, x: t.div(x, -1.5, rounding_mode="floor"),
        special=False,
        smooth=False,
    ),
    Case(
        "floor_divide of ints",
        lambda x, y: x // (y * 2 + 1),
        (M, (7,)),
        lambda t, x, y: t.div(x, y * 2 + 1, rounding_mode="floor"),
        INTS,
        kind="exact",
        smooth=False,
    ),
    one("nan_to_num", lambda x: li.nan_to_num(x, 0.5, 7.0, -8.0), lambda t, x: t.nan_to_num(x, 0.5, 7.0, -8.0)),
    one("is_nan", li.is_nan, lambda t, x: t.isnan(x), smooth=False),
    one("is_inf", li.is_inf, lambda t, x: t.isinf(x), smooth=False),
    one("is_inf below", lambda x: li.is_inf(x, positive=False), lambda t, x: t.isneginf(x), smooth=False),
]


def moved(name: str, build: Any, oracle: Any, shapes: Any = (M,), kinds: Any = (*FLOATS, *INTS), **more: Any) -> Case:
    """One that only moves elements."""
    return Case(name, build, shapes, oracle, kinds, kind="exact", **more)


def blocks(t: Any, x: Any) -> Any:
    """ONNX's DCR: the place in a block before the channel."""
    return t.nn.functional.pixel_shuffle(x.reshape(1, 4, 2, 3, 5).transpose(1, 2).reshape(1, 8, 3, 5), 2)


def unblocked(t: Any, x: Any) -> Any:
    """Channels of PyTorch's unshuffle, the place in a block before the channel."""
    y = t.nn.functional.pixel_unshuffle(x, 2)
    return y.reshape(2, 3, 4, 2, 3).transpose(1, 2).reshape(2, 12, 2, 3)


MOVES = [
    moved("depth_to_space", lambda x: li.depth_to_space(x, 2), blocks, ((1, 8, 3, 5),), numbers=(8,)),
    moved(
        "depth_to_space CRD",
        lambda x: li.depth_to_space(x, 2, "CRD"),
        lambda t, x: t.nn.functional.pixel_shuffle(x, 2),
        ((1, 8, 3, 5),),
        numbers=(8,),
    ),
    moved("space_to_depth", lambda x: li.space_to_depth(x, 2), unblocked, ((2, 3, 4, 6),), numbers=(4, 6)),
    moved(
        "space_to_depth CRD",
        lambda x: li.space_to_depth(x, 2, "CRD"),
        lambda t, x: t.nn.functional.pixel_unshuffle(x, 2),
        ((2, 3, 4, 6),),
        numbers=(4, 6),
    ),
    moved(
        "hardmax",
        lambda x: li.hardmax(x, 1),
        lambda t, x: t.nn.functional.one_hot(t.argmax(x, 1), 3).transpose(1, 2).to(x.dtype),
        smooth=False,
        kinds=(*FLOATS, "i32"),
    ),
    moved("split at places", lambda x: li.split(x, [1, 2], 1), lambda t, x: t.tensor_split(x, [1, 2], 1)),
    moved("split at a negative place", lambda x: li.split(x, [-2], -1), lambda t, x: t.tensor_split(x, [-2], 2)),
    moved("split in equal parts", lambda x: li.split(li.concat([x, x], 2), 2, 2), lambda t, x: (x, x)),
    moved("tile", lambda x: li.tile(x, (2, 1, 3)), lambda t, x: t.tile(x, (2, 1, 3))),
    moved("tile by a number", lambda x: li.tile(x, 2), lambda t, x: t.tile(x, (2,))),
    moved("tile with more axes", lambda x: li.tile(x, (2, 1, 1, 2)), lambda t, x: t.tile(x, (2, 1, 1, 2))),
    moved("repeat", lambda x: li.repeat(x, 3, 1), lambda t, x: t.repeat_interleave(x, 3, 1)),
    moved("repeat of one row", lambda x: li.repeat(x, 2), lambda t, x: t.repeat_interleave(x, 2)),
    moved("flip", lambda x: li.flip(x, (0, -1)), lambda t, x: t.flip(x, (0, 2))),
    moved("flip of all", li.flip, lambda t, x: t.flip(x, (0, 1, 2))),
    moved("roll", lambda x: li.roll(x, 2, -1), lambda t, x: t.roll(x, 2, 2)),
    moved("roll far", lambda x: li.roll(x, (-9, 16), (0, 2)), lambda t, x: t.roll(x, (-9, 16), (0, 2))),
    moved("roll of one row", lambda x: li.roll(x, 4), lambda t, x: t.roll(x, 4)),
    moved(
        "roll by a value",
        lambda x, s: li.roll(x, li.reshape(s[:1], ()), 1),
        lambda t, x, s: t.roll(x, -5, 1),
        more=(np.array([-5, 0], np.int32),),
    ),
    moved("tril", li.tril, lambda t, x: t.tril(x)),
    moved("tril 2", lambda x: li.tril(x, 2), lambda t, x: t.tril(x, 2)),
    moved("triu -1", lambda x: li.triu(x, -1), lambda t, x: t.triu(x, -1)),
    Case(
        "eye",
        lambda x: x * li.eye(x.shape[0], x.shape[1], 1),
        (A,),
        lambda t, x: x * t.ones_like(x).triu(1).tril(1),
        ("f32",),
    ),
    *(
        moved(
            f"pad {mode}",
            lambda x, m=mode: li.pad(x, (0, 2, 3), (0, 1, 4), mode=m),
            lambda t, x, m=mode: t.nn.functional.pad(
                x.reshape(1, *x.shape), (3, 4, 2, 1, 0, 0), mode={"edge": "replicate", "wrap": "circular"}.get(m, m)
            ).reshape(5, 6, 14),
            kinds=FLOATS,
        )
        for mode in ("reflect", "edge", "wrap")
    ),
]
