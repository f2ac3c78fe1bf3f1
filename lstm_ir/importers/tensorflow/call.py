"""One node of the model as its handler sees it: operands, attributes, what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from lstm_ir.importers.complex_numbers import Complex
from lstm_ir.importers.known import Knowledge
from lstm_ir.importers.operands import Operands, Result
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import SizeArray
from lstm_ir.importers.tensorflow.tensors import COMPLEX, dtype_of, shape_of
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

T = TypeVar("T")
Inner = Callable[[str, Sequence[Any]], list[Any]]
"""Runs a function of the model over values for its arguments."""
IGNORED = ("swap_memory", "parallel_iterations", "container", "allow_soft_placement", "clear_after_read",
           "tensor_array_name", "identical_element_shapes", "use_cudnn_on_gpu", "output_shapes",
           "config", "config_proto", "executor_type", "validate_indices", "validate_shape", "use_locking",
           "debug_name", "allowed_devices", "maximum_iterations", "bad_indices_policy", "grad_a", "grad_b")  # fmt: skip
"""Attributes that change nothing about the numbers: names, hints for memory, checks."""


class Inputs(tuple[Any, ...]):
    """Operands of a node; one that is missing is a refusal."""

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, int) and i >= len(self):
            raise NodeRefusedError(f"it has {len(self)} operands; operand {i} is missing")
        return super().__getitem__(i)


class Call(Operands):
    """Operands by position and attributes by name; what nobody asks for is refused afterwards.

    Operands may be variables and lists too, which are no tensors: `thing` gives them.
    """

    def __init__(
        self, name: str, node: str, inputs: Sequence[Any], attributes: Mapping[str, Any], knowledge: Knowledge,
        inner: Inner,
    ) -> None:  # fmt: skip
        super().__init__(name, [v if isinstance(v, Value | SizeArray) else None for v in inputs], knowledge)
        self.node, self.inner, self._things = node, inner, Inputs(inputs)
        self._attributes = attributes
        self._read_attributes: set[str] = set()

    def with_inputs(self, inputs: Sequence[Result]) -> Call:
        """The same call over other operands."""
        return Call(self.name, self.node, inputs, self._attributes, self._knowledge, self.inner)

    def thing(self, i: int, kind: type[T]) -> T:
        """Operand i, which is no tensor."""
        self._read_inputs.add(i)
        found = self._things[i] if i < len(self._things) else None
        if not isinstance(found, kind):
            raise NodeRefusedError(f"operand {i} is not {kind.__doc__ or kind.__name__}".split(":")[0].split(".")[0])
        return found

    def complex(self, i: int) -> Complex | None:
        """Operand i where it is complex."""
        found = self._things[i] if i < len(self._things) else None
        return found if isinstance(found, Complex) else None

    @property
    def things(self) -> tuple[Any, ...]:
        """All operands."""
        self._read_inputs.update(range(len(self._things)))
        return self._things

    def check_all_read(self) -> None:
        """Refuse an operand or attribute that the handler does not know."""
        for i in self.unread:
            raise NodeRefusedError(f"operand {i} is not known to {self.name}")
        for name, value in self._attributes.items():
            implied = value.WhichOneof("value") == "type" or (
                value.WhichOneof("value") == "list" and value.list.type and not value.list.i
            )
            if not (name in self._read_attributes or implied or name.startswith("_") or name in IGNORED):
                if name.startswith("T") or name == "N" or name.startswith("Nin"):
                    continue  # types and numbers of operands
                raise NodeRefusedError(f"the attribute {name} is not known to {self.name}")

    def axes(self, i: int, rank: int) -> tuple[int, ...]:
        """Axes from operand i, counted from the start."""
        return tuple(self.axis_of(a, rank) for a in self.numbers(i, "the axes"))

    def axis(self, i: int, rank: int) -> int:
        """One axis from operand i, counted from the start."""
        found = self.numbers(i, "the axis")
        if len(found) != 1:
            raise NodeRefusedError(f"the axis has {len(found)} elements, not one")
        return self.axis_of(found[0], rank)

    def has_attribute(self, name: str) -> bool:
        """Whether the attribute is given."""
        return name in self._attributes

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer attribute."""
        return int(self._attribute(name, "i", default))

    def flag(self, name: str, default: bool = False) -> bool:
        """An attribute that is true or false."""
        return bool(self._attribute(name, "b", default))

    def real(self, name: str, default: float | None = None) -> float:
        """A number."""
        return float(self._attribute(name, "f", default))

    def word(self, name: str, default: str | None = None) -> str:
        """A word."""
        found = self._attribute(name, "s", default)
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)

    def integers(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """A list of integers."""
        found = self._attribute(name, "list", default)
        return [int(v) for v in (found.i if hasattr(found, "i") else found)]

    def dtype(self, name: str) -> DType:
        """An element type."""
        return dtype_of(self._attribute(name, "type", None))

    def parts(self, name: str) -> DType | None:
        """The type of the parts of complex elements; None for another element type."""
        return COMPLEX.get(self._attribute(name, "type", None))

    def shape(self, name: str) -> tuple[int | None, ...] | None:
        """A shape; None where its rank is not known, or where it is absent."""
        if not self.has_attribute(name):
            return None
        return shape_of(self._attribute(name, "shape", None))

    def tensor(self, name: str) -> Any:
        """A tensor of the file."""
        return self._attribute(name, "tensor", None)

    def function(self, name: str) -> str:
        """The name of a function."""
        return str(self._attribute(name, "func", None).name)

    def _attribute(self, name: str, kind: str, default: Any) -> Any:
        self._read_attributes.add(name)
        found = self._attributes.get(name)
        if found is None:
            if default is None:
                raise NodeRefusedError(f"the attribute {name} is missing")
            return default
        which = found.WhichOneof("value")
        if which != kind:
            raise NodeRefusedError(f"the attribute {name} is {which or 'empty'}, not {kind}")
        return getattr(found, kind)
