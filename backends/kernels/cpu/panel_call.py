"""The call of a kernel that reads panels (panel.py): its first operands, its numbers, its dispatch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from iree.compiler import ir

from lstm_ir.backends.emit.shapes import reshape
from lstm_ir.backends.kernels.call.call import KernelCall, Values, ready
from lstm_ir.backends.kernels.cpu.panel import NUMBERS, PanelForm
from lstm_ir.backends.kernels.cpu.stencil_after import AfterSums
from lstm_ir.backends.kernels.text.kernel import Kernel, KernelSignature
from lstm_ir.backends.kernels.text.statements import Name
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.types import DType, TensorType


@dataclass
class PanelCall(KernelCall):
    """What every such call has, of lhs [N,G,E,H,W]."""

    dtype: DType
    kernels: tuple[int, int, int, int]  # [G,M,E,K]
    form: PanelForm

    def see(self, lhs: ir.Value, t: TensorType, held: int, parts: Sequence[range] | None = None) -> None:
        """What `Seen` reads: lhs line by line, and where taps read in panels of so many channels."""
        flat = TensorType((dims.product(t.shape[:4]), t.shape[4]), self.dtype)
        self.input(ready(reshape(self.e, lhs, t, flat.shape)), flat)
        if not self.form.direct:
            table = self.form.table(held, parts)
            self.input(ready(self.e.constant(table, DType.i32)), TensorType(table.shape, DType.i32))

    def lines(self, to: TensorType) -> TensorType:
        """What the kernel gives: of each batch and output all places."""
        return TensorType((dims.product(to.shape[:3]), dims.product(to.shape[3:])), self.dtype)

    def results_of(self, to: TensorType, after: AfterSums | None) -> None:
        """The result's lines, and what is read beside the sums."""
        for o in () if after is None else after.operands:
            self.input(ready(o.given), o.type)
        self.output(self.lines(to))

    def numbers(self, t: TensorType, sizes: tuple[Dim, Dim]) -> dict[Name, Dim]:
        """Those of panels, by their names; sizes: of the results."""
        return dict(zip(NUMBERS, self.form.numbers((t.shape[3], t.shape[4]), sizes), strict=True))

    def blocks(self, outer: Dim, sizes: tuple[Dim, Dim]) -> ir.Value:
        """Of all batches and groups, `outer` of them; of no results none."""
        none, arith = self.const(0), self.e.arith
        out = arith("maxsi", self.const(outer), none)
        for d, n in zip(sizes, (self.form.rows, self.form.columns), strict=True):
            out = self.muli(out, arith("ceildivui", arith("maxsi", self.const(d), none), self.const(n)))
        return out

    def dispatch(
        self, written: Callable[[KernelSignature, Mapping[Name, Dim]], Kernel], own: Sequence[Name],
        numbers: Mapping[Name, Dim], groups: Callable[[], Values],
    ) -> ir.Value:  # fmt: skip
        """The kernel's result; `groups` gives how many workgroups there are, and further values of `own`.

        Numbers that are known are constants of the kernel: words of a dispatch are few.
        """
        brought = [name for name, d in numbers.items() if not isinstance(d, int)]
        symbol = self.begin(written(self.signature([*own, *brought]), numbers))
        first = groups()
        return self.call(symbol, first[0], [*first, *(self.const(numbers[name]) for name in brought)])[0]
