"""One node of the model as its handler sees it: operands, attributes, what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lstm_ir.importers.onnx.known import Knowledge
from lstm_ir.importers.onnx.sizes import Sizes, minus
from lstm_ir.ir.dims import Dim, Expr
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

Array = np.ndarray[Any, Any]
Result: TypeAlias = Value | Sizes | None
"""What a handler gives for one output."""
Inner = Callable[[Any, Sequence[Result]], list[Result]]
"""Runs a subgraph over values for its inputs."""


class RefusedError(Exception):
    """Why a node is not taken; the importer adds which one it is."""


@dataclass(frozen=True)
class Wanted:
    """An input that is to be a constant, and the numbers that the model compares it with."""

    input: str
    values: tuple[int | float | bool, ...]


class UnknownError(RefusedError):
    """An operand that has to be known at import: constants and numbers for sizes would say it."""

    def __init__(self, reason: str, wanted: Sequence[Wanted], sizes: Sequence[str]) -> None:
        super().__init__(reason)
        self.wanted, self.sizes = tuple(wanted), tuple(sizes)


class UnifiedError(Exception):
    """Two sizes that the specification demands to be equal: `name` is to be `by`."""

    def __init__(self, name: str, by: Dim) -> None:
        super().__init__(name, by)
        self.name, self.by = name, by


class Call:
    """Operands by position and attributes by name; what nobody asks for is refused afterwards."""

    def __init__(
        self,
        name: str,
        opset: int,
        inputs: Sequence[Result],
        outputs: Sequence[bool],
        attributes: Mapping[str, Any],
        knowledge: Knowledge,
        inner: Inner,
    ) -> None:
        self.name, self.opset = name, opset
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.inner = inner
        self._attributes, self._knowledge = attributes, knowledge
        self._read_inputs: set[int] = set()
        self._read_attributes: set[str] = set()

    def with_inputs(self, inputs: Sequence[Result]) -> Call:
        """The same call over other operands."""
        return Call(self.name, self.opset, inputs, self.outputs, self._attributes, self._knowledge, self.inner)

    def check_all_read(self) -> None:
        """Refuse an operand or attribute that the handler does not know."""
        for i, v in enumerate(self.inputs):
            if v is not None and i not in self._read_inputs:
                raise RefusedError(f"operand {i} is not known to {self.name} in operator set {self.opset}")
        for name in self._attributes:
            if name not in self._read_attributes:
                raise RefusedError(f"the attribute {name} is not known to {self.name} in operator set {self.opset}")

    # operands

    def has(self, i: int) -> bool:
        """Whether operand i is given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def wants(self, i: int) -> bool:
        """Whether result i is used or named."""
        return i < len(self.outputs) and self.outputs[i]

    def raw(self, i: int) -> Value | Sizes:
        """Operand i as it is."""
        self._read_inputs.add(i)
        v = self.inputs[i] if i < len(self.inputs) else None
        if v is None:
            raise RefusedError(f"operand {i} is missing")
        return v

    def value(self, i: int) -> Value:
        """Operand i as a tensor."""
        v = self.raw(i)
        return v.value() if isinstance(v, Sizes) else v

    def maybe(self, i: int) -> Value | None:
        """Operand i as a tensor; None where it is absent."""
        return self.value(i) if self.has(i) else None

    def values(self, start: int = 0) -> list[Value]:
        """All operands from `start` on."""
        return [self.value(i) for i in range(start, len(self.inputs))]

    def known(self, i: int) -> Array | None:
        """The elements of operand i where they are known at import."""
        v = self.raw(i)
        return None if isinstance(v, Sizes) else self._knowledge.array(v)

    def is_zero(self, v: Value) -> bool:
        """Whether all elements of `v` are known to be 0."""
        return self._knowledge.is_zero(v)

    def unknown(self, i: int, what: str) -> UnknownError:
        """The refusal of operand i, which is not known: what it depends on, which the caller may fix."""
        inputs, names = self._knowledge.depends_on(self.value(i))
        parts = [f"the input {n} (constants=)" for n in inputs] + [f"the size {n} (sizes=)" for n in names]
        compared = self._knowledge.compared(self.value(i))
        wanted = [Wanted(n, compared.get(n, ())) for n in inputs]
        words = " and ".join(parts or ["values that only a call knows"])
        return UnknownError(f"{what} depends on {words}", wanted, names)

    def number(self, i: int, what: str) -> Any:
        """The one element of operand i, which has to be known."""
        array = self.known(i)
        if array is None or array.size != 1:
            raise RefusedError(f"{what} is not one number that is known at import")
        return array.reshape(-1)[0].item()

    def elements(self, i: int) -> Array | None:
        """Operand i as ints and dimension expressions; None where they are not known."""
        return self.elements_of(self.raw(i))

    def elements_of(self, v: Result) -> Array | None:
        """The same of any value."""
        if isinstance(v, Sizes):
            return v.array
        integers = v is not None and (v.dtype.is_int or v.dtype is DType.i1)
        array = self._knowledge.array(v) if v is not None and integers else None
        return None if array is None else array.astype(object)

    def dims(self, i: int, what: str) -> list[Dim]:
        """Operand i, a list of sizes."""
        array = self.elements(i)
        if array is None:
            raise RefusedError(f"{what} depends on values that only a call knows")
        if array.ndim > 1:
            raise RefusedError(f"{what} has {array.ndim} axes, not one")
        return list(array.reshape(-1))

    def dim(self, i: int, what: str) -> Dim:
        """Operand i, one size."""
        found = self.dims(i, what)
        if len(found) != 1:
            raise RefusedError(f"{what} has {len(found)} elements, not one")
        return found[0]

    def numbers(self, i: int, what: str) -> list[int]:
        """Operand i, a list of ints."""
        found = self.dims(i, what)
        if any(isinstance(d, Expr) for d in found):
            raise RefusedError(f"{what} depends on sizes that only a call knows")
        return [int(d) for d in found if isinstance(d, int)]

    def axes(self, i: int, rank: int) -> tuple[int, ...] | None:
        """Axes from the attribute `axes`, or from operand i, counted from the start; None if absent."""
        given = (
            self.integers("axes") if self.has_attribute("axes") else self.numbers(i, "axes") if self.has(i) else None
        )
        return None if given is None else tuple(self.axis_of(a, rank) for a in given)

    def axis(self, rank: int, default: int | None = None) -> int:
        """The attribute `axis`, counted from the start."""
        return self.axis_of(self.integer("axis", default), rank)

    def axis_of(self, axis: int, rank: int) -> int:
        """An axis counted from either end, counted from the start."""
        if not -rank <= axis < rank:
            raise RefusedError(f"axis {axis} is outside {-rank}..{rank - 1}")
        return axis % rank

    def agree(self, what: str, a: Dim, b: Dim) -> None:
        """Two sizes that the specification demands to be equal: names that differ become one."""
        if a == b:
            return
        if isinstance(minus(a, b), int):
            raise RefusedError(f"{what}: {a} and {b} differ")
        for size, by in ((b, a), (a, b)):
            if (name := plain(size)) is not None:
                raise UnifiedError(name, by)
        raise RefusedError(f"{what}: {a} and {b} cannot be decided to be equal")

    # attributes

    def has_attribute(self, name: str) -> bool:
        """Whether the attribute is given."""
        return name in self._attributes

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer attribute."""
        return int(self._attribute(name, "INT", default))

    def flag(self, name: str, default: bool = False) -> bool:
        """An attribute that is 0 or 1."""
        found = self.integer(name, int(default))
        if found not in (0, 1):
            raise RefusedError(f"{name} is {found}, not 0 or 1")
        return bool(found)

    def integers(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """A list of integers."""
        return [int(v) for v in self._attribute(name, "INTS", default)]

    def real(self, name: str, default: float | None = None) -> float:
        """A number, which in ONNX is an f32; a default is rounded to one too."""
        return float(np.float32(self._attribute(name, "FLOAT", default)))

    def reals(self, name: str, default: Sequence[float] | None = None) -> list[float]:
        """A list of numbers, each an f32."""
        return [float(np.float32(v)) for v in self._attribute(name, "FLOATS", default)]

    def word(self, name: str, default: str | None = None) -> str:
        """A word."""
        return str(self._attribute(name, "STRING", default))

    def words(self, name: str, default: Sequence[str] | None = None) -> list[str]:
        """A list of words."""
        return [str(v) for v in self._attribute(name, "STRINGS", default)]

    def tensor(self, name: str) -> Any:
        """A tensor of the library."""
        return self._attribute(name, "TENSOR", None)

    def graph(self, name: str) -> Any:
        """A subgraph of the library."""
        return self._attribute(name, "GRAPH", None)

    def _attribute(self, name: str, kind: str, default: Any) -> Any:
        self._read_attributes.add(name)
        found = self._attributes.get(name)
        if found is None:
            if default is None:
                raise RefusedError(f"the attribute {name} is missing")
            return default
        if found.is_ref() or found.type.name != kind:
            raise RefusedError(f"the attribute {name} is {found.type.name}, not {kind}")
        return found.value


def plain(d: Dim) -> str | None:
    """The name, if `d` is nothing but a name."""
    if isinstance(d, Expr) and len(d.terms) == 1:
        (mono, k), *_ = d.terms
        if k == 1 and len(mono) == 1 and isinstance(mono[0], str):
            return mono[0]
    return None
