"""Python operators of `Value`: NumPy's broadcasting, written out as explicit nodes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.location import here
from lstm_ir.ir.opdef import FAMILIES

if TYPE_CHECKING:
    from lstm_ir.ir.graph import Value


class ForeignWords(Protocol):
    """What messages say about names of other libraries."""

    def of_value(self, name: str, builders: Mapping[str, Callable[..., Any]]) -> str | None:
        """What to write for a member that values do not have."""

    def of_numpy(self, name: str, builders: Mapping[str, Callable[..., Any]]) -> str:
        """What to write for a function of NumPy."""


_BUILDERS: dict[str, Callable[..., Value]] = {}
_WORDS: list[ForeignWords] = []
_OF_ARRAYS = {
    **dict.fromkeys(
        ("add", "subtract", "multiply", "divide", "floor_divide", "power", "matmul", "equal", "not_equal",
         "less", "less_equal", "greater", "greater_equal"), ""
    ),
    "remainder": "mod", "bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor",
}  # fmt: skip
"""Operators of arrays by NumPy's name of them, and the builder where it has another name."""
_TRUTH = "& | ~ for and, or, not, li.where(c, x, y) for x if c else y, li.any(c) or li.all(c) for one of all elements"
_WRITTEN_INTO = (
    "li.where(mask, new, x), li.put_along_axis(x, places, new, axis), "
    "or li.dynamic_update_slice(x, part, start) for a part of it"
)


def bind(builders: Mapping[str, Callable[..., Any]], words: ForeignWords) -> None:
    """Give the operators the builders, by name, and messages their words; `lstm_ir.ops` does so when it is imported."""
    _BUILDERS.update(builders)
    _WORDS.append(words)


def _builder(name: str) -> Callable[..., Value]:
    if not _BUILDERS:
        importlib.import_module(FAMILIES)
    return _BUILDERS[name]


def _unary(name: str) -> Callable[[Any], Value]:
    return lambda x: _builder(name)(x)


def _binary(name: str) -> Callable[[Any, Any], Value]:
    return lambda a, b: _builder(name)(a, b)


def _reflected(name: str) -> Callable[[Any, Any], Value]:
    return lambda a, b: _builder(name)(b, a)


def _method(name: str) -> Callable[..., Value]:
    def method(self: Value, *args: Any, **named: Any) -> Value:
        return _builder(name)(self, *args, **named)

    method.__name__ = name
    method.__doc__ = f"`li.{name}` of this value."
    return method


def comparable(other: object) -> bool:
    """Whether `value == other` compares elements: with numbers, arrays and lists of numbers, as `<` does."""
    if isinstance(other, (list, tuple)):
        return not any(isinstance(v, Operators) for v in other)
    return isinstance(other, (bool, int, float)) or hasattr(other, "__array__") or hasattr(other, "__dlpack__")


def compared(builder: str, a: Value, b: object) -> Value:
    """The builder's value."""
    return _builder(builder)(a, b)


def _of_numpy(name: str) -> IRError:
    _builder("sum")
    problem = f"numpy takes arrays, not values of a graph{_WORDS[0].of_numpy(name, _BUILDERS)}"
    return IRError(message(f"numpy.{name}", problem, (), here()))


class Operators:
    """Mixed into `Value`; each method is the builder of that name."""

    __slots__ = ()

    def __array_ufunc__(self, function: Any, method: str, *operands: Any, **named: Any) -> Value:
        """An array on the left leaves the operator to the value; other functions of NumPy are refused."""
        name = function.__name__
        if name not in _OF_ARRAYS or method != "__call__" or named:
            raise _of_numpy(name if method == "__call__" else f"{name}.{method}")
        return _builder(_OF_ARRAYS[name] or name)(*operands)

    def __array_function__(self, function: Any, types: Any, operands: Any, named: Any) -> Value:
        """Functions of NumPy are refused."""
        raise _of_numpy(function.__name__)

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("subtract"), _reflected("subtract")
    __mul__, __rmul__ = _binary("multiply"), _reflected("multiply")
    __truediv__, __rtruediv__ = _binary("divide"), _reflected("divide")
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _reflected("floor_divide")
    __mod__, __rmod__ = _binary("mod"), _reflected("mod")
    __pow__, __rpow__ = _binary("power"), _reflected("power")
    __matmul__, __rmatmul__ = _binary("matmul"), _reflected("matmul")
    __and__ = __rand__ = _binary("logical_and")
    __or__ = __ror__ = _binary("logical_or")
    __xor__ = __rxor__ = _binary("logical_xor")
    __lshift__, __rlshift__ = _binary("shift_left"), _reflected("shift_left")
    __neg__, __abs__, __invert__ = _unary("negate"), _unary("abs"), _unary("logical_not")
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __getitem__ = _binary("index")

    @property
    def T(self) -> Value:  # noqa: N802  NumPy's name
        """Axes reversed."""
        return _builder("transpose")(self)

    def astype(self, dtype: Any) -> Value:
        """Elements converted to `dtype`."""
        return _builder("convert")(self, dtype)

    def reshape(self, *shape: Any) -> Value:
        """The same elements in another shape."""
        one = len(shape) == 1 and isinstance(shape[0], (tuple, list))
        return _builder("reshape")(self, shape[0] if one else shape)

    sum, mean, prod = _method("sum"), _method("mean"), _method("prod")
    max, min, std, var = _method("max"), _method("min"), _method("std"), _method("var")
    any, all, argmax, argmin = _method("any"), _method("all"), _method("argmax"), _method("argmin")
    cumsum, clip, round = _method("cumsum"), _method("clip"), _method("round")
    squeeze, swapaxes = _method("squeeze"), _method("swapaxes")

    def transpose(self, *axes: Any) -> Value:
        """Axes in this order, reversed without one."""
        one = len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list)))
        return _builder("transpose")(self, axes[0] if one else axes or None)

    def __getattr__(self, name: str) -> Any:
        said = None
        if not name.startswith("_"):
            _builder("sum")  # they are bound by now
            said = _WORDS[0].of_value(name, _BUILDERS)
        problem = f"a value of a graph has no attribute {name!r}"
        raise AttributeError(problem if said is None else f"{problem}; {said}", name=name)

    def __pos__(self) -> Operators:
        return self

    def __divmod__(self, other: Any) -> tuple[Value, Value]:
        return _builder("floor_divide")(self, other), _builder("mod")(self, other)

    def __rdivmod__(self, other: Any) -> tuple[Value, Value]:
        return _builder("floor_divide")(other, self), _builder("mod")(other, self)

    def __len__(self) -> int:
        raise TypeError("a value of a graph has no length; x.shape[0] is its first size, which may be a name")

    def __bool__(self) -> bool:
        raise TypeError(f"a value of a graph has no truth value before a call; write {_TRUTH}")

    def __float__(self) -> float:
        raise TypeError("a value of a graph has no numbers before a call; float(x) is x.astype('f32')")

    def __int__(self) -> int:
        raise TypeError("a value of a graph has no numbers before a call; int(x) is x.astype('i32')")

    def __setitem__(self, at: Any, new: Any) -> None:
        raise TypeError(f"a value of a graph is not written into; another one is made: {_WRITTEN_INTO}")

    def __iter__(self) -> Any:
        raise TypeError("a value of a graph cannot be iterated; slice it, or use li.scan")
