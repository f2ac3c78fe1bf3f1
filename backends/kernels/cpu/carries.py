"""Carries of some rows, vector by vector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from lstm_ir.backends.kernels.body.access import Access, ColumnAxis, RowAxis, loops_of
from lstm_ir.backends.kernels.text.carries import Carries, Element
from lstm_ir.backends.kernels.text.memory import ElementPlace
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.ir.graph import Value


@dataclass
class VectorCarries(Carries):
    """Those of the rows low .. high."""

    low: TextOperand
    high: TextOperand

    @contextmanager
    def elements(self, v: Value, access: Access) -> Iterator[Element]:
        """Row by row; numbers, one for each row, are no vectors."""
        t = self.t
        with ExitStack() as nest:
            common = self.plan.meet and not any(isinstance(a, RowAxis) for a in access)
            bounds = (t.index(0), t.index(1)) if common else (self.low, self.high)
            row = nest.enter_context(t.loop(*bounds, t.index(1)))
            counted = {
                at.level: nest.enter_context(t.loop(t.index(0), t.extent(at.size), t.index(1)))
                for at in loops_of(access)
            }
            if not any(isinstance(a, ColumnAxis) for a in access):
                yield Element(access, ElementPlace(row, None, loops=counted), False)
                return
            width, mask = int(v.shape[-1]), None
            with t.loop(t.index(0), t.index(width), t.index(t.lanes)) as col:
                if width % t.lanes:
                    mask = t.mask(t.binary("subi", t.index(width), col))
                inside = any(isinstance(a, RowAxis) for a in access)
                place = ElementPlace(row if inside else None, col, mask, loops=counted)
                yield Element(access, place, True)
