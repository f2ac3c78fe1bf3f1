"""Ops that reduce along axes, and that run along them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.torch.call import Call
from lstm_ir.importers.torch.handlers.arithmetic import overloads
from lstm_ir.importers.torch.table import taken
from lstm_ir.importers.truths import truth_of
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.reduce import count_of
from lstm_ir.ops.primitive.statistics import flat_root

Axes = tuple[int, ...]


def _reduction(names: list[str], reduce: Callable[[Value, Axes, bool], Value]) -> None:
    @taken(*names)
    def build(c: Call) -> Value:
        c.any("dtype")
        x = c.operand("self", c.dtype)
        axes = c.axes("dim", x.rank) or tuple(range(x.rank))
        c.any("dim")
        return reduce(x, axes, c.flag("keepdim")) if x.rank else x


_reduction(overloads("sum", "default", "dim_IntList"), lambda x, a, k: li.sum(x, a, keepdims=k))
_reduction(overloads("mean", "default", "dim"), lambda x, a, k: li.mean(x, a, keepdims=k))
_reduction(overloads("prod", "default", "dim_int"), lambda x, a, k: li.prod(x, a, keepdims=k))
_reduction(["aten.amax.default", "aten.max.default"], lambda x, a, k: _extreme(li.max, x, a, k))
_reduction(["aten.amin.default", "aten.min.default"], lambda x, a, k: _extreme(li.min, x, a, k))
_reduction(["aten.logsumexp.default"], lambda x, a, k: li.logsumexp(x, a, keepdims=k))


def _extreme(pick: Callable[..., Value], x: Value, axes: Axes, keep: bool) -> Value:
    if x.dtype is DType.i1:
        return li.greater(pick(li.convert(x, DType.i32), axes, keepdims=keep), 0)
    return pick(x, axes, keepdims=keep)


def _with_place(name: str, pick: Callable[..., Value], place: Callable[[Value, int], Value]) -> None:
    @taken(f"aten.{name}.dim")
    def both(c: Call) -> list[Value]:
        x = c.tensor("self")
        axis, keep = c.axis("dim", x.rank), c.flag("keepdim")
        at = li.convert(place(x, axis), DType.i64)
        if not x.dtype.is_float:
            return [_extreme(pick, x, (axis,), keep), li.expand_dims(at, axis) if keep else at]
        # The gradient goes to the place alone, not to all that are equal.
        value = li.take_along_axis(x, li.expand_dims(at, axis), axis)
        return [value, li.expand_dims(at, axis)] if keep else [li.squeeze(value, axis), at]

    @taken(f"aten.arg{name}.default")
    def where(c: Call) -> Value:
        x = c.tensor("self")
        if not c.given("dim"):
            c.flag("keepdim")
            return li.convert(place(li.reshape(x, (-1,)), 0), DType.i64)
        axis = c.axis("dim", x.rank)
        at = li.convert(place(x, axis), DType.i64)
        return li.expand_dims(at, axis) if c.flag("keepdim") else at


_with_place("max", li.max, li.argmax)
_with_place("min", li.min, li.argmin)
taken(*overloads("max", "other"))(lambda c: li.maximum(c.operand("self", c.dtype), c.operand("other", c.dtype)))
taken(*overloads("min", "other"))(lambda c: li.minimum(c.operand("self", c.dtype), c.operand("other", c.dtype)))


def _truths(name: str, all_of: bool) -> None:
    @taken(*overloads(name, "default", "dim", "dims"))
    def build(c: Call) -> Value:
        x = li.convert(truth_of(c.tensor("self")), DType.i32)
        axes = c.axes("dim", x.rank) or tuple(range(x.rank))
        c.any("dim")
        found = (li.min if all_of else li.max)(x, axes, keepdims=c.flag("keepdim")) if x.rank else x
        return li.convert(li.greater(found, 0), c.dtype)


_truths("any", False)
_truths("all", True)


def _spread(name: str, finish: Callable[[Value, Value], Any]) -> None:
    """Variance and relatives: the sum of squared distances by the count less a correction."""

    @taken(*overloads(name, "default", "dim", "correction"))
    def build(c: Call) -> Any:
        x = c.tensor("self")
        axes, keep = c.axes("dim", x.rank) or tuple(range(x.rank)), c.flag("keepdim")
        c.any("dim")
        less = c.real("correction", 1.0) if c.name.endswith("correction") else float(c.flag("unbiased", True))
        middle = li.mean(x, axes, keepdims=True)
        centred = x - middle
        total = li.sum(centred * centred, axes, keepdims=keep)
        count = li.maximum(count_of(x, axes, x.dtype) - less, 0.0)
        return finish(total / count, middle if keep else li.squeeze(middle, axes))


_spread("var", lambda v, m: v)
_spread("std", lambda v, m: flat_root(v))
_spread("var_mean", lambda v, m: [v, m])
_spread("std_mean", lambda v, m: [flat_root(v), m])


@taken(*overloads("norm", "Scalar", "ScalarOpt_dim"), *overloads("linalg_vector_norm", "default"),
       refused="orders other than 0, 1, 2 and infinity")  # fmt: skip
def norm(c: Call) -> Value:
    """The norm along axes."""
    x = c.tensor("self")
    order = c.real("ord" if c.name.startswith("aten.linalg") else "p", 2.0)
    axes, keep = c.axes("dim", x.rank) or tuple(range(x.rank)), c.flag("keepdim")
    c.any("dim")
    if order == 0.0:
        return li.sum(li.convert(li.not_equal(x, 0.0), x.dtype), axes, keepdims=keep)
    if order not in (1.0, 2.0, math.inf):
        raise NodeRefusedError(f"the norm of order {order:g} is not taken")
    return li.norm(x, order, axes, keepdims=keep)


@taken("aten.cumsum.default")
def cumsum(c: Call) -> Value:
    """Running sums along an axis."""
    c.any("dtype")
    x = c.operand("self", c.dtype)
    return li.cumsum(x, c.axis("dim", x.rank)) if x.rank else x


@taken("aten.cumprod.default")
def cumprod(c: Call) -> Value:
    """Running products along an axis."""
    c.any("dtype")
    x = c.operand("self", c.dtype)
    return li.cumprod(x, c.axis("dim", x.rank)) if x.rank else x


@taken("aten.diff.default", refused="more than one difference; prepend and append")
def diff(c: Call) -> Value:
    """Each element less the one before it."""
    x = c.tensor("self")
    if c.integer("n", 1) != 1 or c.given("prepend") or c.given("append"):
        raise NodeRefusedError("n other than 1, prepend and append are not taken")
    axis = c.axis("dim", x.rank, -1)
    low: list[Any] = [0] * x.rank
    high, last = list(x.shape), list(x.shape)
    first = list(low)
    first[axis], last[axis] = 1, c.shape[axis]
    return li.slice(x, first, high) - li.slice(x, low, last)


@taken("aten.cosine_similarity.default")
def cosine_similarity(c: Call) -> Value:
    """The product by both norms along an axis."""
    a, b, small = c.tensor("x1"), c.tensor("x2"), c.real("eps", 1e-8)
    axis = c.axis("dim", max(a.rank, b.rank), 1)
    norms = [li.maximum(li.norm(v, 2, axis, keepdims=True), small) for v in (a, b)]
    return li.sum((a / norms[0]) * (b / norms[1]), axis)
