"""The sum of all rows by a CPU kernel, as the gradient of a bias is one: of [.., N] over all axes but the last ones.

Rows are read from the first to the last, some vectors of each, and sums stay in registers. IREE's own goes down the
columns, line by line of the cache where sizes are named. Sizes are numbers: a module has one such kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.shapes import reshape
from lstm_ir.backends.kernels.call.call import KernelCall, ready
from lstm_ir.backends.kernels.call.given import given
from lstm_ir.backends.kernels.cpu import shares
from lstm_ir.backends.kernels.cpu.machine import SUMMED_COLUMNS, SUMMED_ELEMENTS, SUMMED_ROWS, SUMMED_VECTORS
from lstm_ir.backends.kernels.text.kernel import Kernel, KernelSignature, called_by_iree
from lstm_ir.backends.kernels.text.memory import Memory, load_vector, put_memories, store_vector
from lstm_ir.backends.kernels.text.statements import Name, TextOperand, argument
from lstm_ir.backends.kernels.text.text import Text, stored_type
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType, TensorType

_IN_MEMORY = ("scan", "dot_general", "stencil", "parameter")  # others are computed in the dispatch that adds them up


def lower_row_sum(e: Emitter, n: Node, x: ir.Value) -> ir.Value | None:
    """reduce_sum over the first axes; None where there is little to add, where what is added is computed on the way,
    and in loops."""
    t, axes = n.inputs[0].type, n.attrs["dimensions"]
    if not e.at_top or t.dtype not in (DType.f32, DType.f64) or 0 in t.shape or len(axes) in (0, t.rank):
        return None
    rows, columns = dims.product(t.shape[: len(axes)]), dims.product(t.shape[len(axes) :])
    if tuple(sorted(axes)) != tuple(range(len(axes))) or not _in_memory(n.inputs[0]):
        return None
    if not isinstance(columns, int) or columns < SUMMED_COLUMNS:
        return None
    if isinstance(rows, int) and rows * columns < SUMMED_ELEMENTS:
        return None
    if e.options.helpers and not given(x):
        return None  # what publishes its work runs in every call
    flat = reshape(e, x, t, (dims.mul(rows, columns),))
    out = RowSum(e, rows, columns, t.dtype).run(flat)
    return reshape(e, out, TensorType((columns,), t.dtype), n.types[0].shape)


def _in_memory(v: Value) -> bool:
    while v.op == "reshape":
        v = v.node.inputs[0]
    return v.op in _IN_MEMORY


ROWS, COLUMNS, GROUPS = argument("rows"), argument("columns"), argument("groups")
ELEMENTS = argument("elements")


@dataclass
class RowSum(KernelCall):
    """One such call."""

    rows: Dim
    columns: int
    dtype: DType
    word: ClassVar[str] = "row_sum"

    def run(self, x: ir.Value) -> ir.Value:
        """The dispatch."""
        target = self.e.target
        assert target is not None
        elements = dims.mul(self.rows, self.columns)
        numbers: dict[Name, Dim] = {ROWS: self.rows, COLUMNS: self.columns, ELEMENTS: elements}
        self.input(ready(x), TensorType((elements,), self.dtype))
        self.output(TensorType((self.columns,), self.dtype))
        text = _RowSumText(target, self.dtype)
        symbol = self.begin(text.kernel(self.signature([*numbers, GROUPS])))
        panels = -(-self.columns // (SUMMED_VECTORS * text.t.lanes))
        groups = shares.groups(self, self.const(panels))
        return self.call(symbol, groups, [*map(self.const, numbers.values()), groups])[0]


class _RowSumText:
    """The kernel's function."""

    def __init__(self, target: TargetInfo, dtype: DType) -> None:
        self.t = Text(max(1, target.vector_bits // dtype.bits))
        self.element = stored_type(dtype)
        self.x, self.out = Memory("%m_x", self.element, (ELEMENTS,)), Memory("%m_out", self.element, (COLUMNS,))

    def kernel(self, taken: KernelSignature) -> Kernel:
        """One function."""
        t = self.t
        put_memories(t, (*taken.reads, *taken.writes), (self.x, self.out))
        width = t.index(SUMMED_VECTORS * t.lanes)
        low, high = shares.share(t, t.binary("ceildivui", COLUMNS, width), GROUPS)
        with t.loop(low, high, t.index(1)) as panel:
            column = t.binary("muli", panel, width)
            left = t.binary("subi", COLUMNS, column)
            whole = t.compare("uge", left, width)
            with t.when(whole):
                self._panel(column, [None] * SUMMED_VECTORS)
            with t.when(t.opposite(whole)):
                counts = [t.binary("maxsi", t.add(left, -j * t.lanes), t.index(0)) for j in range(SUMMED_VECTORS)]
                self._panel(column, [t.mask(count) for count in counts])
        return Kernel((t.function("", taken, called_by_iree()),))

    def _panel(self, column: TextOperand, masks: list[TextOperand | None]) -> None:
        """Sums of some rows at a time are added to those before: the error of a sum grows with its length."""
        t, kind = self.t, self.t.vector(self.element)
        zero: list[TextOperand] = [t.constant("0.0", kind)] * len(masks)
        kinds, places = [kind] * len(masks), [t.add(column, j * t.lanes) for j in range(len(masks))]
        first, totals, out = t.carried(t.index(0), ROWS, t.index(SUMMED_ROWS), zero, kinds)
        end = t.binary("minui", t.add(first, SUMMED_ROWS), ROWS)
        row, sums, some = t.carried(first, end, t.index(1), zero, kinds)
        begin = t.binary("muli", row, COLUMNS)
        read = [load_vector(t, self.x, [t.binary("addi", begin, p)], m) for p, m in zip(places, masks, strict=True)]
        t.close([t.binary("addf", a, b, kind) for a, b in zip(sums, read, strict=True)], kinds)
        t.close([t.binary("addf", a, b, kind) for a, b in zip(totals, some, strict=True)], kinds)
        for v, p, m in zip(out, places, masks, strict=True):
            store_vector(t, v, self.out, [p], m)
