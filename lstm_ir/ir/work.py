"""How much a call computes: what a choice of schedule can know before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim


class CallWork(NamedTuple):
    """What is known of an entry's calls before they come: from it and their sizes follows who runs them."""

    operations: Dim  # of a call
    loops: int  # loops and products
    published: int  # kernels that helper threads may take part in

    def known(self) -> int | None:
        """The operations, where no call changes them."""
        return self.operations if isinstance(self.operations, int) else None

    def at(self, sizes: Mapping[str, int]) -> int | None:
        """The operations of a call with these sizes; None where one of them is not among these."""
        if not dims.names(self.operations) <= sizes.keys():
            return None
        return dims.evaluate(self.operations, sizes)
