"""Carries of some rows, vector by vector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lstm_ir.backends.kernels.body.access import Access, ColumnAxis, RowAxis
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
        with t.loop(self.low, self.high, t.index(1)) as row:
            if not any(isinstance(a, ColumnAxis) for a in access):
                yield Element(access, ElementPlace(row, None), False)
                return
            width, mask = int(v.shape[-1]), None
            with t.loop(t.index(0), t.index(width), t.index(t.lanes)) as col:
                if width % t.lanes:
                    mask = t.mask(t.binary("subi", t.index(width), col))
                place = ElementPlace(row if any(isinstance(a, RowAxis) for a in access) else None, col, mask)
                yield Element(access, place, True)
