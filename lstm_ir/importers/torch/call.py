"""One node of an exported program as its handler sees it: arguments by the names of the op's schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lstm_ir.importers.known import Knowledge
from lstm_ir.importers.operands import Operands, Result
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.torch.tensors import dtype_of
from lstm_ir.ir.dims import Dim, Expr
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive.elementwise import convert
from lstm_ir.ops.primitive.size import size_value

# Where a tensor lies and in which order: nothing of it is left in a graph.
PLACES = {"device", "layout", "pin_memory", "memory_format", "non_blocking", "copy", "generator", "requires_grad"}


class Call(Operands):
    """Arguments by name: a value, a number, a dimension, a list of these. `types` are those that PyTorch gives the
    results, where they are tensors.
    """

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any],
        defaults: Mapping[str, Any],
        types: Sequence[TensorType | None],
        knowledge: Knowledge,
        context: WalkContext,
    ) -> None:
        self._arguments, self._defaults = dict(arguments), dict(defaults)
        self._places = {n: i for i, n in enumerate(self._arguments)}
        tensors = [v if isinstance(v, Value) else None for v in self._arguments.values()]
        super().__init__(name, tensors, knowledge)
        self.types, self.context = tuple(types), context
        self._read: set[str] = set()

    def with_inputs(self, inputs: Sequence[Result]) -> Call:
        """The same call over other operands."""
        named = {n: v if isinstance(v, Value) else self._arguments[n]
                 for n, v in zip(self._arguments, inputs, strict=True)}  # fmt: skip
        return Call(self.name, named, self._defaults, self.types, self._knowledge, self.context)

    def check_all_read(self) -> None:
        """Refuse an argument that the handler does not know, where it is not the default."""
        for name, v in self._arguments.items():
            if name in self._read or name in PLACES or v is None:
                continue
            if isinstance(v, Value) or v != self._defaults.get(name):
                raise NodeRefusedError(f"the argument {name} is not taken")

    @property
    def type(self) -> TensorType:
        """The type that PyTorch gives the first result."""
        found = self.types[0]
        if found is None:
            raise NodeRefusedError("its result is no tensor")
        return found

    @property
    def dtype(self) -> DType:
        """Element type of the first result."""
        return self.type.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Shape of the first result."""
        return self.type.shape

    def given(self, name: str) -> bool:
        """Whether the op has the argument, and it is not None."""
        return self._arguments.get(name) is not None

    def any(self, name: str, default: Any = None) -> Any:
        """An argument as it is."""
        self._read.add(name)
        found = self._arguments.get(name)
        return default if found is None else found

    def tensor(self, name: str) -> Value:
        """An argument that is a tensor."""
        found = self.any(name)
        if not isinstance(found, Value):
            raise NodeRefusedError(f"the argument {name} is no tensor")
        return found

    def optional(self, name: str) -> Value | None:
        """A tensor, or None."""
        return self.tensor(name) if self.given(name) else None

    def tensors(self, name: str) -> list[Value]:
        """A list of tensors."""
        found = self.any(name)
        if not isinstance(found, list) or not all(isinstance(v, Value) for v in found):
            raise NodeRefusedError(f"the argument {name} is no list of tensors")
        return found

    def operand(self, name: str, dtype: DType) -> Value:
        """A tensor or a number, as a tensor of an element type."""
        return as_value(self.any(name), dtype, name)

    def size(self, name: str, default: Dim | None = None) -> Dim:
        """An integer that may be a size."""
        found = self.any(name, default)
        if isinstance(found, bool) or not isinstance(found, (int, Expr)):
            raise NodeRefusedError(f"the argument {name} is no integer")
        return found

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer that does not depend on open sizes."""
        found = self.size(name, default)
        if not isinstance(found, int):
            raise NodeRefusedError(f"the argument {name} is {found}, a size that only a call knows")
        return found

    def integers(self, name: str, count: int | None = None) -> list[int]:
        """A list of integers; one is repeated `count` times."""
        found = self.any(name)
        found = [found] if isinstance(found, int) else found
        if not isinstance(found, list) or not all(isinstance(i, int) for i in found):
            raise NodeRefusedError(f"the argument {name} is {found!r:.80}, no list of numbers")
        return found * count if count is not None and len(found) == 1 else found

    def sizes(self, name: str) -> list[Dim]:
        """A list of integers that may be sizes."""
        found = self.any(name)
        found = [found] if isinstance(found, (int, Expr)) else found
        if not isinstance(found, list) or not all(isinstance(i, (int, Expr)) for i in found):
            raise NodeRefusedError(f"the argument {name} is {found!r:.80}, no list of sizes")
        return found

    def real(self, name: str, default: float | None = None) -> float:
        """A number."""
        found = self.any(name, default)
        if not isinstance(found, (int, float)):
            raise NodeRefusedError(f"the argument {name} is {found!r:.80}, no number")
        return float(found)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or False."""
        return bool(self.any(name, default))

    def word(self, name: str, default: str = "") -> str:
        """A word."""
        return str(self.any(name, default))

    def axis(self, name: str, rank: int, default: int | None = None) -> int:
        """An axis, counted from the start."""
        return self.axis_of(self.integer(name, default), max(rank, 1))

    def axes(self, name: str, rank: int) -> tuple[int, ...] | None:
        """Axes, counted from the start; None where none are given."""
        if not self.given(name):
            return None
        found = tuple(self.axis_of(a, max(rank, 1)) for a in self.integers(name))
        return found if found else None


class WalkContext:
    """What handlers may ask of the walk."""

    def __init__(
        self, inner: Callable[..., list[Value]], key: Callable[[], Value], in_example: Callable[[Value], Any]
    ) -> None:
        """in_example: the elements of a value in the call of the example; None where there is no example."""
        self.inner, self.key, self.in_example = inner, key, in_example


def as_value(argument: Any, dtype: DType, name: str = "") -> Value:
    """A value, a number or a size as a tensor of an element type."""
    if isinstance(argument, Value):
        return argument if argument.dtype is dtype else convert(argument, dtype)
    if isinstance(argument, Expr):
        value = size_value(argument, DType.i64)
        return value if dtype is DType.i64 else convert(value, dtype)
    if isinstance(argument, (bool, int, float)):
        return constant(np.asarray(argument).astype(dtype.numpy))
    raise NodeRefusedError(f"the argument {name} is {argument!r:.80}, neither a tensor nor a number")


def result_type(value: Any, symbols: Any) -> TensorType | None:
    """The type of a tensor without data."""
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return None
    return TensorType(symbols.shape(value), dtype_of(value.dtype))
