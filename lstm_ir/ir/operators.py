"""Python operators of `Value`: NumPy's broadcasting, written out as explicit nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from lstm_ir.ir.graph import Value


def _ops() -> Any:
    import lstm_ir.ops

    return lstm_ir.ops


class Operators:
    """Mixed into `Value`; each method is the builder of the same name."""

    __slots__ = ()
    __array_ufunc__ = None  # an array on the left leaves the operator to the value

    def __add__(self, other: Any) -> Value:
        return cast("Value", _ops().add(self, other))

    def __radd__(self, other: Any) -> Value:
        return cast("Value", _ops().add(other, self))

    def __sub__(self, other: Any) -> Value:
        return cast("Value", _ops().subtract(self, other))

    def __rsub__(self, other: Any) -> Value:
        return cast("Value", _ops().subtract(other, self))

    def __mul__(self, other: Any) -> Value:
        return cast("Value", _ops().multiply(self, other))

    def __rmul__(self, other: Any) -> Value:
        return cast("Value", _ops().multiply(other, self))

    def __truediv__(self, other: Any) -> Value:
        return cast("Value", _ops().divide(self, other))

    def __rtruediv__(self, other: Any) -> Value:
        return cast("Value", _ops().divide(other, self))

    def __mod__(self, other: Any) -> Value:
        return cast("Value", _ops().remainder(self, other))

    def __rmod__(self, other: Any) -> Value:
        return cast("Value", _ops().remainder(other, self))

    def __rpow__(self, other: Any) -> Value:
        return cast("Value", _ops().power(other, self))

    def __pow__(self, other: Any) -> Value:
        return cast("Value", _ops().power(self, other))

    def __matmul__(self, other: Any) -> Value:
        return cast("Value", _ops().matmul(self, other))

    def __rmatmul__(self, other: Any) -> Value:
        return cast("Value", _ops().matmul(other, self))

    def __neg__(self) -> Value:
        return cast("Value", _ops().negate(self))

    def __abs__(self) -> Value:
        return cast("Value", _ops().abs(self))

    def __and__(self, other: Any) -> Value:
        return cast("Value", _ops().logical_and(self, other))

    def __or__(self, other: Any) -> Value:
        return cast("Value", _ops().logical_or(self, other))

    def __xor__(self, other: Any) -> Value:
        return cast("Value", _ops().logical_xor(self, other))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Value:
        return cast("Value", _ops().logical_not(self))

    def __lt__(self, other: Any) -> Value:
        return cast("Value", _ops().less(self, other))

    def __le__(self, other: Any) -> Value:
        return cast("Value", _ops().less_equal(self, other))

    def __gt__(self, other: Any) -> Value:
        return cast("Value", _ops().greater(self, other))

    def __ge__(self, other: Any) -> Value:
        return cast("Value", _ops().greater_equal(self, other))

    def __getitem__(self, key: Any) -> Value:
        return cast("Value", _ops().index(self, key))

    @property
    def T(self) -> Value:  # noqa: N802  NumPy's name
        """Axes reversed."""
        return cast("Value", _ops().transpose(self))

    def astype(self, dtype: Any) -> Value:
        """Elements converted to `dtype`."""
        return cast("Value", _ops().convert(self, dtype))

    def reshape(self, *shape: Any) -> Value:
        """The same elements in another shape."""
        return cast(
            "Value",
            _ops().reshape(
                self, shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
            ),
        )

    def __bool__(self) -> bool:
        raise TypeError("a value of a graph has no truth value; use li.select, or compare types")

    def __iter__(self) -> Any:
        raise TypeError("a value of a graph cannot be iterated; slice it, or use li.scan")
