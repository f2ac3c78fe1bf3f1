"""`until` of `li.scan`: when a loop ends by what its steps compute.

One flag i1[] ends the loop after the step that gives it. Flags of rows, i1[B], end rows: two more carries hold which
rows are done and how many steps each has run, what is done holds its carries and gives zeros, and the loop ends after
the step in which its last row is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lstm_ir.ir.errors import IRError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant, parameter
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.fill import zeros
from lstm_ir.ops.scan.node import STOP

Fault = Callable[[str], IRError]


class Ending:
    """The flag of one loop; `init` and `params`: its further carries, before the loop and in the body."""

    def __init__(self, flag: object, fault: Fault) -> None:
        if not isinstance(flag, Value):
            raise fault(f"until must return a value i1[] or i1[B], got {type(flag).__name__}")
        if flag.dtype is not DType.i1 or flag.rank > 1:
            raise fault(f"until must return i1[] or i1[B], got {flag.type}")
        self.flag, self.fault = flag, fault
        self.by_row = flag.type != STOP
        self.init: list[Value] = []
        self.params: list[Value] = []
        if self.by_row:
            self.init = [zeros(flag.shape, "i1"), zeros(flag.shape, "i32")]
            self.params = [parameter(n, v.type) for n, v in zip(("done", "ran"), self.init, strict=True)]

    def outputs(self, old: Sequence[Value], new: Sequence[Value], ys: Sequence[Value]) -> list[Value]:
        """What the body gives: carries, the further ones, the flag, rows."""
        if not self.by_row:
            return [*new, self.flag, *ys]
        done, ran = self.params
        held = [e.select(self._rows(done, n, "carries"), o, n) for n, o in zip(new, old, strict=True)]
        rows = [e.select(self._rows(done, y, "y"), constant(0, y.dtype), y) for y in ys]
        now = e.logical_or(done, self.flag)
        count = ran + e.convert(e.logical_not(done), DType.i32)
        return [*held, now, count, now, *rows]

    def _rows(self, done: Value, v: Value, what: str) -> Value:
        like: TensorType = v.type
        if like.rank == 0 or like.shape[0] != done.shape[0]:
            raise self.fault(f"until {self.flag.type} needs {what} of {done.shape[0]} rows, got {like}")
        return broadcast_in_dim(done, like.shape, (0,))
