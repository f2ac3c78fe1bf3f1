"""The operands of one op of a foreign model, as its handler sees them: values, and what is known of them at import."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from lstm_ir.importers.known import Knowledge
from lstm_ir.importers.refusals import NodeRefusedError, UnifiedError, UnknownError, Wanted
from lstm_ir.importers.sizes import Clamped, Computed, SizeArray, minus
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim, Expr
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

Array = np.ndarray[Any, Any]
MAX_LISTED = 2**20  # integers that are looked at one by one
Result: TypeAlias = Value | SizeArray | None
"""What a handler gives for one result."""


class Operands(ABC):
    """Operands by position. `unread` are those that no handler asked for: what is not known is refused."""

    def __init__(self, name: str, inputs: Sequence[Result], knowledge: Knowledge) -> None:
        self.name, self.inputs = name, tuple(inputs)
        self._knowledge = knowledge
        self._read_inputs: set[int] = set()

    @property
    def unread(self) -> list[int]:
        """Places of the operands that are given and were not asked for."""
        return [i for i, v in enumerate(self.inputs) if v is not None and i not in self._read_inputs]

    @abstractmethod
    def with_inputs(self, inputs: Sequence[Result]) -> Any:
        """The same op over other operands."""

    @abstractmethod
    def check_all_read(self) -> None:
        """Refuse an operand or attribute that the handler does not know."""

    def has(self, i: int) -> bool:
        """Whether operand i is given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def raw(self, i: int) -> Value | SizeArray:
        """Operand i as it is."""
        self._read_inputs.add(i)
        v = self.inputs[i] if i < len(self.inputs) else None
        if v is None:
            raise NodeRefusedError(f"operand {i} is missing")
        return v

    def value(self, i: int) -> Value:
        """Operand i as a tensor."""
        v = self.raw(i)
        return v.value() if isinstance(v, SizeArray) else v

    def maybe(self, i: int) -> Value | None:
        """Operand i as a tensor; None where it is absent."""
        return self.value(i) if self.has(i) else None

    def values(self, start: int = 0) -> list[Value]:
        """All operands from `start` on."""
        return [self.value(i) for i in range(start, len(self.inputs))]

    def known(self, i: int) -> Array | None:
        """The elements of operand i where they are known at import."""
        v = self.raw(i)
        return None if isinstance(v, SizeArray) else self._knowledge.array(v)

    def is_zero(self, v: Value) -> bool:
        """Whether all elements of `v` are known to be 0."""
        return self._knowledge.is_zero(v)

    def unknown(self, i: int, what: str) -> UnknownError:
        """The refusal of operand i, which is not known: what it depends on, which the caller may fix."""
        inputs, names = self._knowledge.depends_on(self.value(i))
        parts = [f"the input {n} (constants=, --constant)" for n in inputs] + [
            f"the size {n} (sizes=, --size)" for n in names
        ]
        compared = self._knowledge.compared(self.value(i))
        wanted = [Wanted(n, compared.get(n, ())) for n in inputs]
        words = " and ".join(parts or ["values that only a call knows"])
        return UnknownError(f"{what} depends on {words}", wanted, names)

    def number(self, i: int, what: str) -> Any:
        """The one element of operand i, which has to be known."""
        array = self.known(i)
        if array is None or array.size != 1:
            raise NodeRefusedError(f"{what} is not one number that is known at import")
        return array.reshape(-1)[0].item()

    def elements(self, i: int, clamped: bool = False) -> Array | None:
        """Operand i as ints and dimension expressions; None where they are not known. clamped: or Clamped, Computed."""
        return self.elements_of(self.raw(i), clamped)

    def elements_of(self, v: Result, clamped: bool = False) -> Array | None:
        """The same of any value."""
        if isinstance(v, SizeArray):
            return None if v.clamped and not clamped else v.array
        integers = v is not None and (v.dtype.is_int or v.dtype is DType.i1)
        array = self._knowledge.array(v) if v is not None and integers else None
        return None if array is None or array.size > MAX_LISTED else array.astype(object)

    def axis_sizes(self, i: int, what: str, left: bool = False) -> list[Dim]:
        """Operand i, sizes of axes: of max(size, 0) the size, since a call at which it is negative is refused.

        left: one that only a call knows is -1, the size that is left.
        """
        found = self._listed(i, what, clamped=True)
        computed = [d for d in found if isinstance(d, Computed)]
        if len(computed) > left or (computed and -1 in found):
            raise self._of_a_call(i, what)
        return [-1 if isinstance(d, Computed) else d.size if isinstance(d, Clamped) else d for d in found]

    def dims(self, i: int, what: str) -> list[Dim]:
        """Operand i, a list of sizes and differences of sizes."""
        return self._listed(i, what, clamped=False)

    def _listed(self, i: int, what: str, clamped: bool) -> list[Any]:
        array = self.elements(i, clamped)
        if array is None:
            raise self._of_a_call(i, what)
        if array.ndim > 1:
            raise NodeRefusedError(f"{what} has {array.ndim} axes, not one")
        return list(array.reshape(-1))

    def _of_a_call(self, i: int, what: str) -> NodeRefusedError:
        return NodeRefusedError(f"{what} depends on values that only a call knows{_larger(self.inputs[i])}")

    def axis_size(self, i: int, what: str) -> Dim:
        """Operand i, the size of an axis, as `axis_sizes` has them."""
        return self._one(self.axis_sizes(i, what), what)

    def dim(self, i: int, what: str) -> Dim:
        """Operand i, one size or difference of sizes."""
        return self._one(self.dims(i, what), what)

    def _one(self, found: list[Dim], what: str) -> Dim:
        if len(found) != 1:
            raise NodeRefusedError(f"{what} has {len(found)} elements, not one")
        return found[0]

    def numbers(self, i: int, what: str) -> list[int]:
        """Operand i, a list of ints."""
        found = self.dims(i, what)
        if any(isinstance(d, Expr) for d in found):
            raise NodeRefusedError(f"{what} depends on sizes that only a call knows")
        return [int(d) for d in found if isinstance(d, int)]

    def axis_of(self, axis: int, rank: int) -> int:
        """An axis counted from either end, counted from the start."""
        if not -rank <= axis < rank:
            raise NodeRefusedError(f"axis {axis} is outside {-rank}..{rank - 1}")
        return axis % rank

    def agree(self, what: str, a: Dim, b: Dim) -> None:
        """Two sizes that the specification demands to be equal: names that differ become one."""
        if a == b:
            return
        if isinstance(minus(a, b), int):
            raise NodeRefusedError(f"{what}: {a} and {b} differ")
        for size, by in ((b, a), (a, b)):
            if (name := plain(size)) is not None:
                raise UnifiedError(name, by)
        raise NodeRefusedError(f"{what}: {a} and {b} cannot be decided to be equal")

    def agree_all(self, what: str, pairs: Iterable[tuple[Dim, Dim]]) -> None:
        """Many pairs of sizes at once: each name that becomes another one costs a new walk over the model."""
        found: dict[str, Dim] = {}
        used: set[str] = set()
        for a, b in pairs:
            try:
                self.agree(what, a, b)
            except UnifiedError as e:
                if e.name in used or found.keys() & {e.name, *dims.names(e.by)}:
                    break  # it may say something else once the others are one
                found[e.name] = e.by
                used |= dims.names(e.by)
        if found:
            (name, by), *more = found.items()
            raise UnifiedError(name, by, more)


def plain(d: Dim) -> str | None:
    """The name, if `d` is nothing but a name."""
    if isinstance(d, Expr) and len(d.terms) == 1:
        (mono, k), *_ = d.terms
        if k == 1 and len(mono) == 1 and isinstance(mono[0], str):
            return mono[0]
    return None


def _larger(operand: object) -> str:
    """What to write where an operand is the larger or smaller of two sizes, and neither always is."""
    clamped = isinstance(operand, SizeArray) and any(isinstance(d, Clamped) for d in operand.array.flat)
    op = operand.op if isinstance(operand, Value) else "maximum" if clamped else ""
    if op not in ("maximum", "minimum"):
        return ""
    word = {"maximum": "larger", "minimum": "smaller"}[op]
    return (
        f": it is the {word} of two, and which depends on an open size; sizes (--size) may say of what form that is, "
        "as T=step*N+length for a signal of whole frames"
    )
