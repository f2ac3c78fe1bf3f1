"""One node of the model as its handler sees it: operands, attributes, what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lstm_ir.importers.known import Knowledge
from lstm_ir.importers.lists import LoopList, TensorList
from lstm_ir.importers.onnx.narrow import Narrow
from lstm_ir.importers.operands import Operands, Result
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import SizeArray
from lstm_ir.ir.graph import Value

Inner = Callable[[Any, Sequence[Result]], list[Result]]
"""Runs a subgraph over values for its inputs."""


class Call(Operands):
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
        key: Callable[[int | None], Value],
    ) -> None:
        super().__init__(name, inputs, knowledge)
        self.opset, self.outputs, self.inner, self.key = opset, tuple(outputs), inner, key
        self._attributes = attributes
        self._read_attributes: set[str] = set()

    def with_inputs(self, inputs: Sequence[Result]) -> Call:
        """The same call over other operands."""
        return Call(
            self.name, self.opset, inputs, self.outputs, self._attributes, self._knowledge, self.inner, self.key
        )

    def raw(self, i: int) -> Value | SizeArray:
        """Operand i as it is, which is no sequence."""
        found: Any = super().raw(i)
        if isinstance(found, TensorList | LoopList):
            raise NodeRefusedError(f"operand {i} is a sequence, not a tensor")
        if isinstance(found, Narrow):
            raise NodeRefusedError(f"operand {i} has elements of type {found.kind}, which ops that convert alone read")
        return found  # type: ignore[no-any-return]

    def converts(self, i: int) -> Value | Narrow:
        """Operand i of an op that converts: a tensor, or elements of a type that no other op has."""
        found: Any = self.inputs[i] if i < len(self.inputs) else None
        if isinstance(found, Narrow):
            self._read_inputs.add(i)
            return found
        return self.value(i)

    def sequence(self, i: int) -> TensorList | LoopList:
        """Operand i, a sequence."""
        found: Any = super().raw(i)
        if not isinstance(found, TensorList | LoopList):
            raise NodeRefusedError(f"operand {i} is a tensor, not a sequence")
        return found

    def is_sequence(self, i: int) -> bool:
        """Whether operand i is a sequence."""
        return i < len(self.inputs) and isinstance(self.inputs[i], TensorList | LoopList)

    def check_all_read(self) -> None:
        """Refuse an operand or attribute that the handler does not know."""
        for i in self.unread:
            raise NodeRefusedError(f"operand {i} is not known to {self.name} in operator set {self.opset}")
        for name in self._attributes:
            if name not in self._read_attributes:
                raise NodeRefusedError(f"the attribute {name} is not known to {self.name} in operator set {self.opset}")

    def wants(self, i: int) -> bool:
        """Whether result i is used or named."""
        return i < len(self.outputs) and self.outputs[i]

    def axes(self, i: int, rank: int) -> tuple[int, ...] | None:
        """Axes from the attribute `axes`, or from operand i, counted from the start; None if absent."""
        given = (
            self.integers("axes") if self.has_attribute("axes") else self.numbers(i, "axes") if self.has(i) else None
        )
        return None if given is None else tuple(self.axis_of(a, rank) for a in given)

    def axis(self, rank: int, default: int | None = None) -> int:
        """The attribute `axis`, counted from the start."""
        return self.axis_of(self.integer("axis", default), rank)

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
            raise NodeRefusedError(f"{name} is {found}, not 0 or 1")
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
                raise NodeRefusedError(f"the attribute {name} is missing")
            return default
        if found.is_ref() or found.type.name != kind:
            raise NodeRefusedError(f"the attribute {name} is {found.type.name}, not {kind}")
        return found.value
