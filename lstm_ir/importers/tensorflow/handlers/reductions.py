"""Ops that reduce along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import Rule, SizeArray, UndecidedError, chained, folded, larger, objects, smaller
from lstm_ir.importers.tensorflow.call import Call
from lstm_ir.importers.tensorflow.table import taken
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

Reduce = Callable[[Value, Sequence[int]], Value]


def _reduction(name: str, reduce: Reduce, rule: Rule | None = None) -> None:
    @taken(name)
    def build(c: Call) -> Value | SizeArray:
        sizes, keep = c.raw(0), c.flag("keep_dims")
        known = c.elements(0) if rule is not None and sizes.dtype.is_int else None
        if known is not None and rule is not None and known.ndim == 1 and known.size and c.axes(1, 1):
            with suppress(UndecidedError):  # then it is computed at each call
                out = rule(*(objects([d], ()) for d in known))
                return folded(out.reshape((1,) if keep else ()), sizes.dtype)
        x = c.value(0)
        axes = tuple(dict.fromkeys(c.axes(1, x.rank)))
        y = reduce(x, axes) if axes else x
        return li.expand_dims(y, tuple(sorted(axes))) if keep and axes else y


def _mean(x: Value, axes: Sequence[int]) -> Value:
    if not x.dtype.is_float:
        raise NodeRefusedError(f"the mean of {x.dtype} is not taken")
    return li.mean(x, axes)


_reduction("Sum", lambda x, a: li.sum(x, a), chained(dims.add))
_reduction("Prod", lambda x, a: li.prod(x, a), chained(dims.mul))
_reduction("Mean", _mean)
_reduction("Max", lambda x, a: li.max(x, a), chained(larger))
_reduction("Min", lambda x, a: li.min(x, a), chained(smaller))
_reduction("All", li.all)
_reduction("Any", li.any)
_reduction("EuclideanNorm", lambda x, a: li.norm(x, 2, a))


def _place(name: str, place_of: Callable[[Value, int], Value]) -> None:
    @taken(name)
    def build(c: Call) -> Value:
        """Where the largest or the least stands along an axis; the first of equal ones."""
        x = c.value(0)
        kind = c.dtype("output_type") if c.has_attribute("output_type") else DType.i64
        return li.convert(place_of(x, c.axis(1, x.rank)), kind)


_place("ArgMax", li.argmax)
_place("ArgMin", li.argmin)
