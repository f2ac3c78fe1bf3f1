"""Integers that are sizes: what Shape gives, followed through arithmetic to Reshape, Expand, Slice.

Their elements are dimension expressions. What only moves them (Gather, Concat, Slice, ...) is run
by the handler of the op itself, on the numbers of their places; arithmetic has a rule each, in
this file. Where neither decides, the sizes become a tensor of the graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim, Expr
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.elementwise import maximum
from lstm_ir.ops.primitive.shape import reshape, stack
from lstm_ir.ops.primitive.size import size_value

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Clamped:
    """max(size, 0), where neither is known to be the larger.

    As the size of an axis it is `size` itself: a call at which that is negative is refused.
    """

    size: Expr


@dataclass(frozen=True, eq=False)
class Computed:
    """An element of integers that only a call knows, beside sizes."""

    tensor: Value
    place: int


@dataclass(frozen=True, eq=False)
class SizeArray:
    """An array of ints, dimension expressions, Clamped and Computed, at least one of them no int."""

    array: Array
    dtype: DType

    @property
    def clamped(self) -> bool:
        """Whether an element is no dimension."""
        return any(isinstance(d, Clamped | Computed) for d in self.array.flat)

    def value(self) -> Value:
        """The sizes as a tensor that is computed at each call."""
        return reshape(stack([self._element(d) for d in self.array.flat]), self.array.shape)

    def _element(self, d: Dim | Clamped | Computed) -> Value:
        if isinstance(d, Computed):
            return reshape(d.tensor, (-1,))[d.place]
        if isinstance(d, Clamped):
            return maximum(self._element(d.size), constant(0, self.dtype))
        return size_value(d, self.dtype)


def folded(array: Array, dtype: DType) -> SizeArray | Value:
    """The array as a constant where no element is an expression."""
    if any(isinstance(d, Clamped | Computed | Expr) for d in array.flat):
        return SizeArray(array, dtype)
    try:
        return constant(array.astype(dtype.numpy))
    except OverflowError:
        raise NodeRefusedError(f"a size does not fit into {dtype}: {max(map(abs, array.flat))}") from None


def objects(elements: list[Any], shape: tuple[int, ...]) -> Array:
    """An array of Python objects."""
    out = np.empty(len(elements), object)
    out[:] = elements
    return out.reshape(shape)


class UndecidedError(Exception):
    """Raised where the answer depends on the values of the names."""


Rule: TypeAlias = Callable[..., Array]


def each(function: Callable[..., Any]) -> Rule:
    """The rule that applies `function` to the elements of arrays, which broadcast."""
    operands = len(inspect.signature(function).parameters)

    def rule(*arrays: Array) -> Array:
        if len(arrays) != operands:
            raise UndecidedError  # the op's handler says what is wrong
        try:
            wide = np.broadcast_arrays(*arrays)
        except ValueError:
            raise UndecidedError from None
        if any(isinstance(d, Clamped | Computed) for a in arrays for d in a.flat):
            raise UndecidedError
        columns = zip(*(a.flat for a in wide), strict=True)
        return objects([function(*column) for column in columns], wide[0].shape)

    return rule


def chained(function: Callable[[Any, Any], Any]) -> Rule:
    """The same of a function of two, from left to right over any number of arrays."""
    both = each(function)

    def rule(*arrays: Array) -> Array:
        out = arrays[0]
        for a in arrays[1:]:
            out = both(out, a)
        return out

    return rule


def minus(a: Dim, b: Dim) -> Dim:
    """a - b."""
    return dims.add(a, dims.mul(b, -1))


def divided(a: Dim, b: Dim) -> Dim:
    """a / b as integers divide in ONNX, toward zero."""
    if not isinstance(b, int) or b == 0:
        if a == b:
            return 1
        raise UndecidedError
    if isinstance(a, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if b < 0 or not dims.at_least(a, 0):
        raise UndecidedError
    return dims.floordiv(a, b)


def not_below(a: Dim, b: Dim) -> bool:
    """a >= b."""
    found = dims.at_least(minus(a, b), 0)
    if found is None:
        raise UndecidedError
    return found


def same(a: Dim, b: Dim) -> bool:
    """a == b."""
    difference = minus(a, b)
    if isinstance(difference, int):
        return difference == 0
    if dims.at_least(difference, 1) or dims.at_least(dims.mul(difference, -1), 1):
        return False
    raise UndecidedError


def larger(a: Dim, b: Dim) -> Dim:
    """The larger one."""
    return a if not_below(a, b) else b


def larger_or_clamped(a: Dim, b: Dim) -> Dim | Clamped:
    """The larger one, if need be of 0 and a size."""
    try:
        return larger(a, b)
    except UndecidedError:
        for one, other in ((a, b), (b, a)):
            if isinstance(one, Expr) and other == 0:
                return Clamped(one)
        raise


def smaller(a: Dim, b: Dim) -> Dim:
    """The smaller one."""
    return b if not_below(a, b) else a


def choice(pick: bool, a: Dim, b: Dim) -> Dim:
    """One of the two."""
    return a if pick else b
