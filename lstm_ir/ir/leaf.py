"""Where values come from: inputs, weights, literals, and sizes as values."""

from __future__ import annotations

from typing import Any

from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value, make
from lstm_ir.ir.location import here
from lstm_ir.ir.no_operand import refuse_what_is_none
from lstm_ir.ir.opdef import Attr, Trait, define
from lstm_ir.ir.options import is_int
from lstm_ir.ir.printable import is_text
from lstm_ir.ir.types import DimLike, DType, DTypeLike, TensorType, shape_of


def _no_numpy(**_: Any) -> Any:
    raise IRError("a parameter has no value of its own; the interpreter binds it")


def _leaf_vjp(_node: Any, _cts: Any) -> tuple[()]:
    return ()


PARAMETER = define(
    "parameter", "", attrs={"name": Attr("str"), "shape": Attr("dims"), "dtype": Attr("dtype")},
    types=lambda *, name, shape, dtype: TensorType(shape, dtype),
    numpy=_no_numpy, vjp=_leaf_vjp, traits=(Trait.leaf,),
)  # fmt: skip
WEIGHT = define(
    "weight", "", attrs={"name": Attr("str"), "value": Attr("data")},
    types=lambda *, name, value: value.type,
    numpy=lambda *, name, value: value.array, vjp=_leaf_vjp, traits=(Trait.leaf,),
)  # fmt: skip
CONSTANT = define(
    "constant", "", attrs={"value": Attr("data")},
    types=lambda *, value: value.type,
    numpy=lambda *, value: value.array, vjp=_leaf_vjp, traits=(Trait.leaf,),
)  # fmt: skip


def input(name: str, shape: tuple[DimLike, ...], dtype: DTypeLike = "f32") -> Value:
    """An input of a graph; a size is an int, a name or an expression: `("T", "2*B", 64)`.

    Raises IRError, which calls it an input, for a name, a shape or a dtype that is none.
    """
    if isinstance(name, str) and not name:
        raise IRError("an input needs a name")
    try:
        if not isinstance(name, str) or not is_text(name):
            raise IRError(f"the name is {name!r:.80}; expected text")
        if isinstance(shape, str):
            raise IRError(f'the shape is {shape!r:.80}; expected a list of sizes, such as ("T", "B", 64)')
        sizes, kind = shape_of(shape), DType.of(dtype)
        total = TensorType(sizes, kind)
    except IRError as e:
        which = f"input {name!r:.80}" if isinstance(name, str) else "input"
        raise IRError(message(which, str(e), (), here())) from None
    return parameter(name, total)


def parameter(name: str, type: TensorType) -> Value:
    """An input of the given type."""
    return make(PARAMETER, name=name, shape=type.shape, dtype=type.dtype).values[0]


def weight(name: str, array: Any, dtype: DTypeLike | None = None) -> Value:
    """A named array, kept under its name in modules and packages; differentiable and trainable.

    Python floats are f32 and ints i32 unless `dtype` says otherwise, as in `constant`.
    """
    if isinstance(name, str) and not name:
        raise IRError("a weight needs a name")
    if not isinstance(name, str):
        problem = f"the name is {type(name).__name__}; expected text first: li.weight(name, array)"
        raise IRError(message("weight", problem, (), here()))
    if dtype is None and isinstance(array, tuple) and array and all(map(is_int, array)):
        shape, numbers = f"{array!r:.80}", f"{list(array)!r:.80}"
        problem = f"the array is {shape}, a shape? Write np.zeros({shape}, 'f4'), or {numbers} for these numbers"
        raise IRError(message(f"weight {name!r:.80}", problem, (), here()))
    return make(WEIGHT, name=name, value=literal(f"weight {name!r:.80}", array, dtype)).values[0]


def constant(array: Any, dtype: DTypeLike | None = None) -> Value:
    """A literal; Python floats are f32 and ints i32 unless `dtype` says otherwise."""
    return make(CONSTANT, value=literal("constant", array, dtype)).values[0]


def operand(op: str, array: Any, dtype: DType) -> Value:
    """A literal among the operands of `op`, which errors name."""
    return make(CONSTANT, value=literal(op, array, dtype)).values[0]


def literal(op: str, array: Any, dtype: DTypeLike | None) -> Data:
    """`array` as data; numbers of Python, which have no dtype, as f32, i32 (i64 where one needs it) or i1,
    or as `dtype` where one is given. IRError, which names `op`, for what is none.
    """
    if isinstance(array, Data):
        return array
    refuse_what_is_none(op, array)
    kind = None if dtype is None else DType.of(dtype)
    if kind is None and not hasattr(array, "dtype"):
        flat = _elements(op, array, None).array
        kind = {"f": DType.f32, "i": DType.i32, "b": DType.i1}.get(flat.dtype.kind)
        if kind is DType.i32 and flat.size and not -(2**31) <= flat.min() <= flat.max() < 2**31:
            kind = DType.i64
    return _elements(op, array, kind)


def _elements(op: str, array: Any, kind: DType | None) -> Data:
    try:
        return Data.of(array, kind)
    except IRError as e:
        raise IRError(message(op, str(e), (), here())) from e.__cause__
