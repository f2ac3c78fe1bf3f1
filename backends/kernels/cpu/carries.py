"""Carries into the scratch that steps read, and out of it; zeros in rows of steps that did not run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from lstm_ir.backends.kernels.body.access import Access, Col, Row
from lstm_ir.backends.kernels.body.atoms import Source
from lstm_ir.backends.kernels.body.plan import Component, Plan
from lstm_ir.backends.kernels.text.memory import (
    Memory,
    Place,
    indices,
    load_scalar,
    load_vector,
    store_scalar,
    store_vector,
)
from lstm_ir.backends.kernels.text.text import Text
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType


class There(NamedTuple):
    """A memory, and the indices before those of rows and columns."""

    memory: Memory
    first: tuple[str, ...] = ()


class Element(NamedTuple):
    """One element, or the lanes of a vector that `mask` has: all of them without one."""

    at: list[str]
    wide: bool
    mask: str | None

    def load(self, t: Text, there: There) -> str:
        """As it is stored."""
        at = [*there.first, *self.at]
        if self.wide:
            return load_vector(t, there.memory, at, self.mask)
        return load_scalar(t, there.memory, at)

    def store(self, t: Text, v: str, there: There) -> None:
        """What `load` gives."""
        at = [*there.first, *self.at]
        if self.wide:
            store_vector(t, v, there.memory, at, self.mask)
        else:
            store_scalar(t, v, there.memory, at)


@dataclass
class Carries:
    """Of one component and its rows low .. high."""

    t: Text
    plan: Plan
    memories: dict[Source, Memory]
    component: Component
    low: str
    high: str

    def begin(self, init: list[Memory | float]) -> None:
        """The first values, where the first step reads them."""
        for i, static in self.component.carries:
            v, first = self.plan.carries[i], init[i]
            to = There(self.memories[Source("carry", i)], (self.t.index(0),))
            if isinstance(first, Memory):
                self._copy(v, static, There(first), to)
            else:
                self._fill(v, static, first, to)

    def end(self, finals: list[Memory | None], steps: str) -> None:
        """The last values, where they are wanted; which half of the scratch has them, `steps` says."""
        parity = self.t.op(f"arith.remui {steps}, {self.t.index(2)} : index")
        for i, static in self.component.carries:
            scratch = There(self.memories[Source("carry", i)], (parity,))
            to = finals[i]
            if to is not None:
                self._copy(self.plan.carries[i], static, scratch, There(to))

    def zero_rest(self, steps: str, length: str) -> None:
        """Stacked rows of the steps from `steps` to `length`."""
        roots = [r for s in self.component.sweeps for r in s.roots]
        stacked = {(r.dest.index, r.static) for r in roots if r.dest.kind == "stack"}
        for k, static in sorted(stacked):
            m = self.memories[Source("stack", k)]
            with self.t.loop(steps, length, self.t.index(1)) as s:
                self._fill(self.plan.stacked[k], static, 0, There(m, (s,)))

    def _copy(self, v: Value, static: tuple[int, ...], source: There, to: There) -> None:
        with self._elements(v, self.plan.access(v, static)) as element:
            element.store(self.t, element.load(self.t, source), to)

    def _fill(self, v: Value, static: tuple[int, ...], number: float, to: There) -> None:
        stored = DType.i8 if v.dtype is DType.i1 else v.dtype
        with self._elements(v, self.plan.access(v, static)) as element:
            element.store(self.t, self.t.number(number, stored, element.wide), to)

    @contextmanager
    def _elements(self, v: Value, access: Access) -> Iterator[Element]:
        """Every element of the rows."""
        t = self.t
        with t.loop(self.low, self.high, t.index(1)) as row:
            if not any(isinstance(a, Col) for a in access):
                yield Element(indices(t, access, Place(row, None)), False, None)
                return
            width, mask = int(v.shape[-1]), None
            with t.loop(t.index(0), t.index(width), t.index(t.lanes)) as col:
                if width % t.lanes:
                    left = t.binary("subi", t.index(width), col)
                    mask = t.op(f"vector.create_mask {left} : {t.vector('i1')}")
                place = Place(row if any(isinstance(a, Row) for a in access) else None, col)
                yield Element(indices(t, access, place), True, mask)
