"""Carries into the scratch that steps read, and out of it; zeros in rows of steps that did not run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from lstm_ir.backends.kernels.body.access import Access
from lstm_ir.backends.kernels.body.atoms import MemorySource
from lstm_ir.backends.kernels.body.plan import Component, LoopPlan
from lstm_ir.backends.kernels.text.memory import (
    ElementPlace,
    Memory,
    indices,
    load_scalar,
    load_vector,
    store_scalar,
    store_vector,
)
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.text import Text, stored_dtype
from lstm_ir.ir.graph import Value


class There(NamedTuple):
    """A memory, and the indices before those of rows and columns."""

    memory: Memory
    first: tuple[TextOperand, ...] = ()


class Element(NamedTuple):
    """One element, or the lanes of a vector that the mask of its place has."""

    access: Access
    place: ElementPlace
    wide: bool

    def load(self, t: Text, there: There) -> TextOperand:
        """As it is stored."""
        at = [*there.first, *indices(t, self.access, self.place, there.memory)]
        if self.wide:
            return load_vector(t, there.memory, at, self.place.mask)
        return load_scalar(t, there.memory, at)

    def store(self, t: Text, v: TextOperand, there: There) -> None:
        """What `load` gives."""
        at = [*there.first, *indices(t, self.access, self.place, there.memory)]
        if self.wide:
            store_vector(t, v, there.memory, at, self.place.mask)
        else:
            store_scalar(t, v, there.memory, at)


@dataclass
class Carries(ABC):
    """Of one component."""

    t: Text
    plan: LoopPlan
    memories: Mapping[MemorySource, Memory]
    component: Component

    @abstractmethod
    def elements(self, v: Value, access: Access) -> AbstractContextManager[Element]:
        """What is written inside is done to every element of a carry's rows."""

    def begin(self, init: Sequence[Memory | float]) -> None:
        """The first values, where the first step reads them."""
        for i, static in self.component.carries:
            v, first = self.plan.carries[i], init[i]
            to = There(self.memories[MemorySource("carry", i)], (self.t.index(0),))
            if isinstance(first, Memory):
                self._copy(v, static, There(first), to)
            else:
                self._fill(v, static, first, to)

    def end(self, finals: Sequence[Memory | None], steps: TextOperand) -> None:
        """The last values, where they are wanted; which half of the scratch has them, `steps` says."""
        parity = self.t.binary("remui", steps, self.t.index(2))
        for i, static in self.component.carries:
            scratch = There(self.memories[MemorySource("carry", i)], (parity,))
            to = finals[i]
            if to is not None:
                self._copy(self.plan.carries[i], static, scratch, There(to))

    def zero_rest(self, steps: TextOperand, length: TextOperand) -> None:
        """Stacked rows of the steps from `steps` to `length`."""
        roots = [r for s in self.component.sweeps for r in s.roots]
        stacked = {(r.dest.index, r.static) for r in roots if r.dest.kind == "stack"}
        for k, static in sorted(stacked):
            m = self.memories[MemorySource("stack", k)]
            with self.t.loop(steps, length, self.t.index(1)) as s:
                self._fill(self.plan.stacked[k], static, 0, There(m, (s,)))

    def _copy(self, v: Value, static: tuple[int, ...], source: There, to: There) -> None:
        with self.elements(v, self.plan.access(v, static)) as element:
            element.store(self.t, element.load(self.t, source), to)

    def _fill(self, v: Value, static: tuple[int, ...], number: float, to: There) -> None:
        stored = stored_dtype(v.dtype)
        with self.elements(v, self.plan.access(v, static)) as element:
            element.store(self.t, self.t.number(number, stored, element.wide), to)
