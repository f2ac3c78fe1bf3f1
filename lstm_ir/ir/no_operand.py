"""What is no operand: results of layers, lists of values, sizes, other objects; messages say what to write instead."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from lstm_ir.ir.dims import Expr
from lstm_ir.ir.errors import ArgumentError, IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.location import here

_OPERATORS = (
    "mul", "rmul", "sub", "rsub", "radd", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod", "pow", "rpow",
    "matmul", "rmatmul", "neg", "abs", "invert", "and", "or", "xor",
)  # fmt: skip
"""Of numbers; `+` and comparisons tuples have themselves."""
Results = TypeVar("Results", bound=type[tuple[Any, ...]])


def not_an_array(x: Any) -> str | None:
    """What `x` is and what to write instead, the end of a sentence; None where it may be an array or a number."""
    if isinstance(x, Value):
        return "a value of the graph, not numbers; use it as it is"
    if isinstance(x, Expr):
        return f"the size {x}; li.size({str(x)!r}) is its value, i32[]"
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return f"{type(x).__name__}, several results; take one of its values: {', '.join(x._fields)}"
    if isinstance(x, (list, tuple)) and any(isinstance(v, (Value, Expr)) for v in x):
        if not any(isinstance(v, Value) for v in x):
            return f"a {type(x).__name__} of sizes; li.stack of their values, such as li.size('T'), is one value"
        return f"a {type(x).__name__} of values of the graph; li.stack or li.concat makes one value of them"
    if x is None or isinstance(x, (dict, set, type)) or type(x) is object:
        return f"{type(x).__name__}, not a value or a number"
    return None


def refuse_what_is_none(op: str, x: Any) -> None:
    """IRError at the user's line for what is known not to be an array or a number."""
    if (said := not_an_array(x)) is not None:
        raise IRError(message(op, f"an operand is {said}", (), here()))


def several(results: Results) -> Results:
    """A named tuple of a builder, whose operators say that one of its values is meant."""
    methods = dict.fromkeys((f"__{name}__" for name in _OPERATORS), _refused)
    # NumPy's arrays leave the operator to what has no __array_ufunc__
    for name, method in (methods | {"__add__": _joined, "__array_ufunc__": None}).items():
        setattr(results, name, method)
    return results


def _refused(self: Any, *_: Any) -> NoReturn:
    raise ArgumentError(message("operator", f"an operand is {not_an_array(self)}", (), here()))


def _joined(self: Any, other: Any) -> Any:
    return tuple(self) + other if isinstance(other, tuple) else _refused(self)
