"""Layers that move, cut, repeat and pad elements."""

from __future__ import annotations

from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.keras.call import LayerCall
from lstm_ir.importers.keras.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value


@taken("Reshape", "target_shape")
def reshape(c: LayerCall) -> Value:
    """All axes but the batch in another shape; one size may be -1."""
    x = c.x
    return li.reshape(x, (x.shape[0], *resolved(x.shape[1:], c.get("target_shape"), "target_shape")))


def resolved(shape: tuple[Dim, ...], target: Any, name: str) -> tuple[Dim, ...]:
    """A shape that the argument `name` gives, with -1 as the size that is left."""
    if isinstance(target, int):
        target = (target,)
    if not isinstance(target, (list, tuple)) or any(isinstance(d, bool) or not isinstance(d, int) for d in target):
        raise NodeRefusedError(f"{name} is {target!r:.60}")
    if list(target).count(-1) > 1:
        raise NodeRefusedError(f"{name} has several sizes -1")
    if -1 not in target:
        return tuple(target)
    known = 1
    for d in target:
        known *= d if d != -1 else 1
    left: Dim = dims.product(shape)
    if known < 1:
        raise NodeRefusedError(f"{name} {list(target)} has a size of 0")
    whole = dims.floordiv(left, known) if known > 1 else left
    if dims.mul(whole, known) != left:
        raise NodeRefusedError(f"{left} elements do not fit {name} {list(target)}")
    return tuple(whole if d == -1 else d for d in target)


@taken("Flatten", "data_format")
def flatten(c: LayerCall) -> Value:
    """All axes but the batch as one."""
    x = c.x
    if not c.channels_last and x.rank > 2:
        x = li.transpose(x, (0, *range(2, x.rank), 1))
    return li.reshape(x, (x.shape[0], dims.product(x.shape[1:])))


@taken("Permute", "dims")
def permute(c: LayerCall) -> Value:
    """Axes in another order; the batch stays."""
    x, given = c.x, c.get("dims")
    if not isinstance(given, (list, tuple)) or sorted(given) != list(range(1, x.rank)):
        raise NodeRefusedError(f"dims is {given!r:.40}, the operand {x.type}")
    return li.transpose(x, (0, *given))


@taken("RepeatVector", "n")
def repeat_vector(c: LayerCall) -> Value:
    """[B,C] as [B,n,C]."""
    x = c.x
    if x.rank != 2:
        raise NodeRefusedError(f"the operand is {x.type}, expected [B,C]")
    return li.broadcast_in_dim(x, (x.shape[0], c.integer("n"), x.shape[1]), (0, 2))


def _pairs(c: LayerCall, name: str, axes: int) -> list[tuple[int, int]]:
    """(before, after) for each axis, from all the forms that Keras takes."""
    given: Any = c.get(name)
    if isinstance(given, int) and not isinstance(given, bool):
        return [(given, given)] * axes
    if axes == 1 and isinstance(given, (list, tuple)) and len(given) == 2:
        given = [given]
    if isinstance(given, (list, tuple)) and len(given) == axes:
        found = [(p, p) if isinstance(p, int) else tuple(p) if isinstance(p, (list, tuple)) else () for p in given]
        if all(len(p) == 2 and all(isinstance(k, int) and k >= 0 for k in p) for p in found):
            return [(p[0], p[1]) for p in found]
    raise NodeRefusedError(f"{name} is {given!r:.60}")


def _spatial(c: LayerCall, x: Value, axes: int) -> range:
    if x.rank != axes + 2:
        raise NodeRefusedError(f"the operand is {x.type}, expected {axes + 2} axes")
    return range(1, axes + 1) if c.get("data_format", "channels_last") != "channels_first" else range(2, axes + 2)


def edges(axes: int) -> None:
    """Register ZeroPadding and Cropping over so many axes."""

    @taken(f"ZeroPadding{axes}D", "padding data_format")
    def padding(c: LayerCall) -> Value:
        x = c.x
        low, high = [0] * x.rank, [0] * x.rank
        for k, (before, after) in zip(_spatial(c, x, axes), _pairs(c, "padding", axes), strict=True):
            low[k], high[k] = before, after
        return li.pad(x, tuple(low), tuple(high))

    @taken(f"Cropping{axes}D", "cropping data_format")
    def cropping(c: LayerCall) -> Value:
        x = c.x
        low, high = [0] * x.rank, [0] * x.rank
        for k, (before, after) in zip(_spatial(c, x, axes), _pairs(c, "cropping", axes), strict=True):
            low[k], high[k] = -before, -after
        return li.pad(x, tuple(low), tuple(high))


def upsampling(axes: int) -> None:
    """Register UpSampling over so many axes: each place several times."""

    @taken(f"UpSampling{axes}D", "size data_format interpolation", refused="" if axes == 1 else "interpolation")
    def build(c: LayerCall) -> Value:
        x = c.x
        if c.get("interpolation", "nearest") != "nearest":
            raise NodeRefusedError(f"interpolation is {c.get('interpolation')!r:.40}")
        for k, many in zip(_spatial(c, x, axes), c.integers("size", axes, 2), strict=True):
            shape = (*x.shape[: k + 1], many, *x.shape[k + 1 :])
            kept = tuple(i for i in range(x.rank + 1) if i != k + 1)
            wide = li.broadcast_in_dim(x, shape, kept)
            x = li.reshape(wide, (*x.shape[:k], dims.mul(x.shape[k], many), *x.shape[k + 1 :]))
        return x


for _axes in (1, 2):
    edges(_axes)
    upsampling(_axes)
