"""Normalisations, each by the axes and epsilon of its config."""

from __future__ import annotations

import numpy as np

from lstm_ir import ops as li
from lstm_ir.importers.keras.call import LayerCall, Tensor
from lstm_ir.importers.keras.config import layer_spec
from lstm_ir.importers.keras.older import LEAST_NORM
from lstm_ir.importers.keras.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.data import Data
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ops.nn.normalisation import normalised

_SCALED = "epsilon center scale beta_initializer gamma_initializer beta_regularizer gamma_regularizer beta_constraint "
_SCALED += "gamma_constraint"


def _axes(c: LayerCall, x: Value) -> tuple[int, ...]:
    given = c.get("axis", -1)
    found = given if isinstance(given, list) else [given]
    if any(isinstance(a, bool) or not isinstance(a, int) for a in found):
        raise NodeRefusedError(f"axis is {given!r:.40}")
    return tuple(sorted(c.axis_of(a, x.rank) for a in found))


def _along(v: Value, x: Value, axes: tuple[int, ...]) -> Value:
    """v, whose axes are these of x, so that it broadcasts."""
    return li.reshape(v, tuple(d if k in axes else 1 for k, d in enumerate(x.shape)))


def _affine(c: LayerCall, y: Value, x: Value, axes: tuple[int, ...]) -> Value:
    w = c.weights()
    for name, function in (("gamma", li.multiply), ("beta", li.add)):
        if name in w:
            y = function(y, _along(li.convert(w[name], y.dtype), x, axes))
    return li.convert(y, x.dtype)


_RUNNING = (
    "axis momentum moving_mean_initializer moving_variance_initializer synchronized renorm "
    "renorm_clipping renorm_momentum virtual_batch_size fused"
)
_LIVE = "training mode, where it is not frozen"


@taken("BatchNormalization", f"{_RUNNING} {_SCALED}", masks=True, refused=_LIVE)
def batch_normalization(c: LayerCall) -> Value:
    """By the running mean and variance."""
    if c.training and c.spec.config.get("trainable", True):
        raise NodeRefusedError("with training=True it normalises by the batch, and its running statistics change")
    x, w = c.x, c.weights()
    (axis,) = _axes(c, x)
    mean, variance = (_along(w[n], x, (axis,)) for n in ("moving_mean", "moving_variance"))
    return _affine(c, (x - mean) * li.rsqrt(variance + c.real("epsilon", 1e-3)), x, (axis,))


@taken("LayerNormalization", f"axis rms_scaling {_SCALED}", masks=True)
def layer_normalization(c: LayerCall) -> Value:
    """By the mean and variance over the axes, in f32."""
    x = c.x
    axes, epsilon = _axes(c, x), c.real("epsilon", 1e-3)
    wide = li.convert(x, x.dtype.compute_dtype)
    if c.flag("rms_scaling"):
        return _affine(c, wide * li.rsqrt(li.var(wide, axes, keepdims=True) + epsilon), x, axes)
    return _affine(c, normalised(wide, axes, epsilon).y, x, axes)


@taken("RMSNormalization", "axis epsilon", masks=True)
def rms_normalization(c: LayerCall) -> Value:
    """By the root of the mean of squares over the axes."""
    x = c.x
    axes = _axes(c, x)
    wide = li.convert(x, x.dtype.compute_dtype)
    y = wide * li.rsqrt(li.mean(wide * wide, axes, keepdims=True) + c.real("epsilon", 1e-6))
    return li.convert(y * _along(li.convert(c.weights()["scale"], wide.dtype), x, axes), x.dtype)


@taken("GroupNormalization", f"groups axis {_SCALED}", masks=True)
def group_normalization(c: LayerCall) -> Value:
    """By the mean and variance of each group of channels and all other axes but the batch."""
    x = c.x
    (axis,) = _axes(c, x)
    channels = x.shape[axis]
    groups = c.integer("groups", 32)
    if not isinstance(channels, int):
        raise NodeRefusedError(f"the operand is {x.type}, of open channels")
    groups = channels if groups == -1 else groups
    if groups < 1 or channels % groups:
        raise NodeRefusedError(f"{channels} channels are not {groups} groups of one size")
    apart = li.reshape(x, (*x.shape[:axis], groups, channels // groups, *x.shape[axis + 1 :]))
    over = tuple(k for k in range(1, apart.rank) if k != axis)
    wide = li.convert(apart, x.dtype.compute_dtype)
    y = li.reshape(normalised(wide, over, c.real("epsilon", 1e-3)).y, x.shape)
    return _affine(c, y, x, (axis,))


@taken("UnitNormalization", f"axis {LEAST_NORM}", masks=True)
def unit_normalization(c: LayerCall) -> Value:
    """By the root of the sum of squares over the axes."""
    return by_norm(c.x, _axes(c, c.x), c.real(LEAST_NORM, 1e-12))


def by_norm(x: Value, axes: tuple[int, ...], least: float) -> Value:
    """x by the root of its sum of squares over the axes, or by `least` where that root is smaller."""
    squares = li.maximum(li.sum(x * x, axes, keepdims=True), least * least)  # before the root, whose slope at 0 is none
    return x * li.rsqrt(squares)


@taken("Normalization", "axis mean variance invert input_mean input_variance")
def normalization(c: LayerCall) -> Value:
    """By the mean and variance that were given or adapted, or back again. Keras' epsilon is 1e-7."""
    x = c.x
    given = c.get("axis", -1)
    given = [] if given is None else [given] if isinstance(given, int) else list(given)
    if any(isinstance(a, bool) or not isinstance(a, int) for a in given):
        raise NodeRefusedError(f"axis is {c.get('axis')!r:.40}")
    axes = tuple(sorted(c.axis_of(a, x.rank) for a in given))
    mean, variance = (_statistics(c, name, x, axes) for name in ("mean", "variance"))
    deviation = li.maximum(li.sqrt(variance), 1e-7)
    return mean + x * deviation if c.flag("invert") else (x - mean) / deviation


def _statistics(c: LayerCall, name: str, x: Value, axes: tuple[int, ...]) -> Value:
    """The mean or the variance, so that it broadcasts: of the config, or a variable with the axes that are kept."""
    given = c.get(name)
    if given is None:
        return li.convert(_along(c.weights()[name], x, axes), x.dtype)
    found = np.asarray(given)
    kept = [x.shape[a] for a in axes]
    if found.dtype.kind not in "if" or found.ndim > len(axes):
        raise NodeRefusedError(f"{name} is {given!r:.40}")
    if any(n not in (1, d) for n, d in zip(found.shape[::-1], kept[::-1], strict=False)):
        raise NodeRefusedError(f"{name} has the shape {found.shape}, the axes have the sizes {kept}")
    shape = [1] * x.rank
    for a, n in zip(axes[::-1], found.shape[::-1], strict=False):
        shape[a] = n
    return constant(Data.of(found.reshape(shape).astype(np.float64).astype(x.dtype.numpy), x.dtype))


@taken("SpectralNormalization", "layer power_iterations", refused="training mode")
def spectral_normalization(c: LayerCall) -> Value:
    """Its layer, whose kernel is what training made of it."""
    if c.training:
        raise NodeRefusedError("with training=True its weights change")
    spec = layer_spec(c.get("layer"))
    found = c.walk.apply(spec, c.holding.child("layer", spec), [Tensor(c.x)], {})
    if len(found) != 1:
        raise NodeRefusedError(f"its layer {spec.kind} has {len(found)} results")
    y = found[0].value
    return li.convert(y, c.x.dtype) if c.x.dtype.is_float else y
