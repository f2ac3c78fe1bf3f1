"""Layers that normalise: by the mean and the variance of a group, of a batch, of rows.

    y = (x - mean) / sqrt(variance + epsilon) * scale + bias

16-bit floats are normalised in f32. scale, bias, mean and var are of x's type, or of f32 where x has 16 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lstm_ir.ir import options
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.location import here
from lstm_ir.ir.no_operand import several
from lstm_ir.ir.opdef import Attr, Level, define, need
from lstm_ir.ir.pullback import Cts
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.precision import floats
from lstm_ir.ops.primitive.reduce import count_of, mean, sum
from lstm_ir.ops.primitive.shape import axes_of, reshape


@several
class BatchNorm(NamedTuple):
    """Results of `batch_norm`: y as x, mean and var [C]."""

    y: Value
    mean: Value
    var: Value


class Normalised(NamedTuple):
    """x less its mean times `inverse`, which is 1 / sqrt(variance + epsilon); both keep the axes with size 1."""

    y: Value
    mean: Value
    inverse: Value


def normalised(x: Value, axes: int | tuple[int, ...], epsilon: float) -> Normalised:
    """x normalised over axes, in its own type."""
    middle = mean(x, axes, keepdims=True)
    centred = x - middle
    inverse = e.rsqrt(mean(centred * centred, axes, keepdims=True) + epsilon)
    return Normalised(centred * inverse, middle, inverse)


def need_epsilon(op: str, epsilon: Any) -> float:
    """A number that is at least 0."""
    found = options.real(op, "epsilon", epsilon)
    if found < 0:
        raise options.refuse(op, "epsilon", epsilon, "a number that is at least 0")
    return found


def weight(op: str, x: Value, v: Any, name: str) -> Value:
    """v of x's type; f32 stays where x has 16 bits."""
    _, w = as_values(op, x, v)
    if w.dtype not in (x.dtype, x.dtype.compute_dtype):
        kinds = " or ".join(dict.fromkeys(k.name for k in (x.dtype, x.dtype.compute_dtype)))
        problem = f'{name} is {w.type}, x has {x.dtype} elements: {name} is of {kinds}; li.convert({name}, "{x.dtype}")'
        raise IRError(message(op, f"{problem} converts", [("x", x.type), (name, w.type)], here()))
    return w


def like_axes(op: str, x: Value, v: Any, name: str, axes: tuple[int, ...]) -> Value | None:
    """v as `weight`, with x's sizes on these axes, so that nothing is repeated along what is normalised."""
    if v is None:
        return None
    w = weight(op, x, v, name)
    behind = {a - x.rank: x.shape[a] for a in axes}
    if w.rank > x.rank or any(a < -w.rank or w.shape[a] != n for a, n in behind.items()):
        sizes = ", ".join(str(x.shape[a]) for a in sorted(axes))
        problem = f"{name} is {w.type}; the normalised axes have {sizes} elements, and it has one number for each"
        raise IRError(message(op, problem, [("x", x.type), (name, w.type)], here()))
    return w


def affine(y: Value, scale: Any, bias: Any, dtype: DType | None = None) -> Value:
    """y * scale + bias, where they are given, in y's type; then in `dtype`."""
    s, b = (None if w is None else e.convert(as_values("multiply", y, w)[1], y.dtype) for w in (scale, bias))
    y = y if s is None else e.multiply(y, s)
    y = y if b is None else e.add(y, b)
    return y if dtype is None else e.convert(y, dtype)


def _factors(op: str, x: Value, scale: Any, bias: Any) -> tuple[Value | None, Value | None]:
    return _per_channel(op, x, scale, "scale"), _per_channel(op, x, bias, "bias")


def _per_channel(op: str, x: Value, v: Any, name: str) -> Value | None:
    """[C] so that it broadcasts along axis 1 of x."""
    if v is None:
        return None
    w = weight(op, x, v, name)
    if w.shape != x.shape[1:2]:
        raise IRError(message(op, f"{name} is [C], axis 1 of x", [("x", x.type), (name, w.type)], here()))
    return reshape(w, (w.shape[0], *(1,) * (x.rank - 2)))


def _channels(op: str, x: Any, rank: int) -> Value:
    v = floats(op, x)
    if v.rank < rank:
        raise IRError(message(op, f"x has {v.rank} axes, it needs {rank}: [N, C, ...]", [("x", v.type)], here()))
    return v


def group_norm(x: Any, groups: int, scale: Any = None, bias: Any = None, *, epsilon: float = 1e-5) -> Value:
    """x [N,C,...] normalised over the C / groups channels of a group and the axes after them; scale and bias [C].

    Source: Wu & He, "Group normalization", 2018.
    """
    v, small = _channels("group_norm", x, 2), need_epsilon("group_norm", epsilon)
    count, channels = options.integer("group_norm", "groups", groups), v.shape[1]
    if count < 1 or not isinstance(channels, int) or channels % count:
        raise options.refuse("group_norm", "groups", groups, f"a divisor of the number of channels, {channels}")
    factors = _factors("group_norm", v, scale, bias)
    parts = (v.shape[0], count, channels // count, *v.shape[2:])
    split = reshape(e.convert(v, v.dtype.compute_dtype), parts)
    y = normalised(split, tuple(range(2, split.rank)), small).y
    return affine(reshape(y, v.shape), *factors, v.dtype)


def instance_norm(x: Any, scale: Any = None, bias: Any = None, *, epsilon: float = 1e-5) -> Value:
    """x [N,C,...] normalised over the axes after the channels, each row and channel by itself; scale and bias [C]."""
    v, small = _channels("instance_norm", x, 3), need_epsilon("instance_norm", epsilon)
    factors = _factors("instance_norm", v, scale, bias)
    y = normalised(e.convert(v, v.dtype.compute_dtype), tuple(range(2, v.rank)), small).y
    return affine(y, *factors, v.dtype)


def rms_norm(x: Any, scale: Any = None, *, axis: int | tuple[int, ...] = -1, epsilon: float = 1e-5) -> Value:
    """x / sqrt(mean(x^2) + epsilon) * scale over `axis`, along which scale has x's sizes; elsewhere it broadcasts.

    Source: Zhang & Sennrich, "Root mean square layer normalization", 2019.
    """
    v, small = floats("rms_norm", x), need_epsilon("rms_norm", epsilon)
    over = axes_of("rms_norm", v, axis)
    w = e.convert(v, v.dtype.compute_dtype)
    factor = like_axes("rms_norm", v, scale, "scale", over)
    return affine(w * e.rsqrt(mean(w * w, over, keepdims=True) + small), factor, None, v.dtype)


def batch_norm(
    x: Any, mean: Any, var: Any, scale: Any = None, bias: Any = None, *, training: bool = False,
    momentum: float = 0.1, epsilon: float = 1e-5, mask: Any = None,
) -> BatchNorm:  # fmt: skip
    """x [N,C,...] normalised by each channel's mean and variance [C]: a named tuple (y, mean, var).

    In inference by the given (running) mean and var, which are given back. In training by those of x, and mean and var
    come back moved towards them by `momentum`, var by that which divides by n - 1, as PyTorch does (by 1 for a single
    element). `train_step` keeps the moved ones where mean and var are weights, and infers by them.
    mask: i1 [N,...], false where x is padding, which is in no statistic and 0 in y; without one place that counts, mean
    and var stay. scale and bias [C]. Source: Ioffe & Szegedy, "Batch normalization", 2015.
    """
    v, small = _channels("batch_norm", x, 2), need_epsilon("batch_norm", epsilon)
    learns, share = options.flag("batch_norm", "training", training), options.real("batch_norm", "momentum", momentum)
    kind = v.dtype.compute_dtype
    given = [_statistic(v, w, n) for w, n in ((mean, "mean"), (var, "var"))]
    factors = _factors("batch_norm", v, scale, bias)
    counts = None if mask is None else _places(v, mask)
    v = _where(counts, v)
    held = _where(counts, affine(_by_running(v, given, kind, small), *factors, v.dtype))
    if not learns:
        return BatchNorm(held, *given)
    over = (0, *range(2, v.rank))
    wide = e.convert(v, kind)
    count = count_of(wide, over, kind) if counts is None else sum(e.convert(counts, kind), over, keepdims=True)
    least = count if counts is None else e.maximum(count, 1.0)
    centre = sum(wide, over, keepdims=True) / least
    centred = _where(counts, wide - centre)
    total = sum(centred * centred, over, keepdims=True)
    y = centred * e.rsqrt(total / least + small)
    seen = centre, total / e.maximum(count - 1.0, 1.0)
    moved = [
        e.convert(e.convert(w, kind) * (1.0 - share) + reshape(s, w.shape) * share, w.dtype)
        for w, s in zip(given, seen, strict=True)
    ]
    if counts is not None:
        moved = [e.select(reshape(count, ()) > 0.0, m, w) for m, w in zip(moved, given, strict=True)]
    both = (_where(counts, affine(y, *factors, v.dtype)), *moved, held, *given)
    return BatchNorm(*make(BATCH_NORM_RESULTS, *both).values)


def _places(x: Value, mask: Any) -> Value:
    """mask [N,...] as [N,1,...]."""
    (m,) = as_values("batch_norm", mask)
    wanted = (x.shape[0], *x.shape[2:])
    if m.dtype is not DType.i1 or m.shape != wanted:
        problem = f"mask is i1[{','.join(map(str, wanted))}], the axes of x without that of the channels"
        raise IRError(message("batch_norm", problem, [("x", x.type), ("mask", m.type)], here()))
    return reshape(m, (x.shape[0], 1, *x.shape[2:]))


def _where(counts: Value | None, x: Value) -> Value:
    """x, 0 at places that do not count."""
    return x if counts is None else e.select(counts, x, 0.0)


def _by_running(x: Value, statistics: Sequence[Value], kind: DType, small: float) -> Value:
    middle, spread = (reshape(e.convert(w, kind), (w.shape[0], *(1,) * (x.rank - 2))) for w in statistics)
    return (e.convert(x, kind) - middle) * e.rsqrt(spread + small)


def _chosen_types(
    y: TensorType, mean: TensorType, var: TensorType, held_y: TensorType, held_mean: TensorType, held_var: TensorType,
    *, training: bool,
) -> dict[str, TensorType]:  # fmt: skip
    for name, a, b in (("y", y, held_y), ("mean", mean, held_mean), ("var", var, held_var)):
        need(a == b, f"held_{name} is {b}, {name} is {a}")
        need(a.dtype.is_float, f"takes floats, got {name} {a}")
    return {"y": y, "mean": mean, "var": var}


def _chosen_vjp(node: Node, cts: Cts) -> Cts:
    zeros = (None,) * 3
    return (*cts, *zeros) if node.attrs["training"] else (*zeros, *cts)


BATCH_NORM_RESULTS = define(
    "batch_norm_results", "y mean var held_y held_mean held_var", attrs={"training": Attr("bool", True)},
    results="y mean var", types=_chosen_types, numpy=lambda *a, training: a[:3] if training else a[3:],
    vjp=_chosen_vjp, level=Level.composite, training="training",
    expand=lambda *v, training: dict(zip(("y", "mean", "var"), v[:3] if training else v[3:], strict=True)),
)  # fmt: skip
"""Results of a batch norm in training, or, after it, by the running mean and variance, which stay: `train_step` finds
here what it keeps, and turns `training` off where it infers."""


def _statistic(x: Value, v: Any, name: str) -> Value:
    w = weight("batch_norm", x, v, name)
    if w.shape != x.shape[1:2]:
        problem = f"{name} is [C], axis 1 of x"
        raise IRError(message("batch_norm", problem, [("x", x.type), (name, w.type)], here()))
    return w
