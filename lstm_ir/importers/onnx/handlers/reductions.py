"""Ops that reduce along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import Rule, SizeArray, UndecidedError, chained, folded, objects
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

Reduce = Callable[[Value, Sequence[int]], Value]


def _mean(x: Value, axes: Sequence[int]) -> Value:
    if not x.dtype.is_float:
        raise NodeRefusedError(f"the mean of {x.dtype} is not taken")
    return li.mean(x, axes)


def _reduction(
    name: str, versions: tuple[int, ...], reduce: Reduce, axes_operand_since: int, rule: Rule | None = None,
    refused: str = "",
) -> None:  # fmt: skip
    def build(c: Call) -> Value | SizeArray:
        sizes = c.raw(0)
        keep = c.flag("keepdims", True)
        alone = c.opset >= axes_operand_since and c.flag("noop_with_empty_axes")  # without axes none is reduced
        if isinstance(sizes, SizeArray) and rule is not None and sizes.array.ndim == 1:
            if not c.axes(1, 1) and alone:
                return sizes
            with suppress(UndecidedError):  # then it is computed at each call
                out = rule(*(objects([d], ()) for d in sizes.array))
                return folded(out.reshape((1,) if keep else ()), sizes.dtype)
        x = c.value(0)
        axes = c.axes(1, x.rank) if c.opset >= axes_operand_since or c.has_attribute("axes") else None
        if not axes:
            axes = () if alone else tuple(range(x.rank))
        y = reduce(x, axes)  # along no axis each element is reduced by itself: squared, or its size taken
        return li.expand_dims(y, axes) if keep and axes else y

    taken(name, *versions, refused=refused)(build)


_reduction("ReduceSum", (1, 11, 13), lambda x, a: li.sum(x, a), 13, chained(dims.add))
_reduction("ReduceMean", (1, 11, 13, 18), _mean, 18, refused="integers")
_reduction("ReduceProd", (1, 11, 13, 18), lambda x, a: li.prod(x, a), 18, chained(dims.mul))


_reduction("ReduceL1", (1, 11, 13, 18), lambda x, a: li.norm(x, 1, a), 18)
_reduction("ReduceL2", (1, 11, 13, 18), lambda x, a: li.norm(x, 2, a), 18)
_reduction("ReduceSumSquare", (1, 11, 13, 18), lambda x, a: li.sum(x * x, a), 18)
_reduction("ReduceLogSum", (1, 11, 13, 18, 28), lambda x, a: li.log(li.sum(x, a)), 18)


_reduction("ReduceLogSumExp", (1, 11, 13, 18, 28), lambda x, a: li.logsumexp(x, a), 18)


def _extreme(pick: Callable[[Value, Sequence[int]], Value]) -> Reduce:
    def reduce(x: Value, axes: Sequence[int]) -> Value:
        if x.dtype is DType.i1:  # since operator set 20: false is below true
            return li.greater(pick(li.convert(x, DType.i32), axes), 0)
        return pick(x, axes)

    return reduce


_reduction("ReduceMax", (1, 11, 12, 13, 18, 20), _extreme(lambda x, a: li.max(x, a)), 18)
_reduction("ReduceMin", (1, 11, 12, 13, 18, 20), _extreme(lambda x, a: li.min(x, a)), 18)


def _place(name: str, place_of: Callable[[Value, int], Value]) -> None:
    """Register the op that says where the largest or the least stands: the first of equal ones, or the last."""

    @taken(name, 1, 11, 12, 13)
    def build(c: Call) -> Value:
        x = c.value(0)
        axis, keep = c.axis(x.rank, 0), c.flag("keepdims", True)
        last = c.flag("select_last_index") if c.opset >= 12 else False
        place = place_of(li.flip(x, axis) if last else x, axis)
        if last:
            place = li.size(dims.add(x.shape[axis], -1)) - place
        place = li.convert(place, DType.i64)
        return li.expand_dims(place, axis) if keep else place


_place("ArgMax", li.argmax)
_place("ArgMin", li.argmin)
