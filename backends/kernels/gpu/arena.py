"""One flat tensor for several values, as a kernel sees it and as the module around it does.

A device takes few words of arguments per dispatch (128 bytes on Vulkan), and a tensor's offset is
two of them: one tensor for all results leaves room for what a loop reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.flat import ALIGN, Flat
from lstm_ir.backends.kernels.body import instead
from lstm_ir.backends.kernels.body.access import RefusedError
from lstm_ir.backends.kernels.gpu.memory import FlatMemory, MemoryPiece
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.text import Text, stored_type
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.types import TensorType


class Arena:
    """The values `types`, each from an element on that is a multiple of ALIGN.

    `flat` writes and reads them around the kernel, `pieces` are its memories once it is bound.
    """

    def __init__(self, e: Emitter, types: Sequence[TensorType]) -> None:
        self.types = list(types)
        kinds = {t.dtype for t in types}
        if len(kinds) > 1 and any(d.bits not in (1, 8, 32) for d in kinds):
            shown = ", ".join(sorted(d.value for d in kinds))
            raise RefusedError(f"carries and results of {shown} in one tensor", write=instead.ONE_DTYPE)
        self.flat = Flat(e, types)
        self.pieces: list[MemoryPiece] = []

    @property
    def stored(self) -> str:
        """The element type of the tensor."""
        return stored_type(self.flat.type.dtype)

    def bind(self, whole: FlatMemory, size: Callable[[Dim], TextOperand]) -> list[MemoryPiece]:
        """The memories of the values, in the kernel's memory `whole`."""
        self.pieces = [
            MemoryPiece(
                f"{whole.name}_{i}",
                stored_type(t.dtype),
                tuple(d if isinstance(d, int) else size(d) for d in t.shape),
                whole,
            )
            for i, t in enumerate(self.types)
        ]
        return self.pieces

    def values(self, flat: ir.Value) -> list[ir.Value]:
        """All values, in the module."""
        return [self.flat.get(flat, i) for i in range(len(self.types))]

    def open(self, t: Text) -> None:
        """The statements that say where the values begin."""
        at: TextOperand = t.index(0)
        for p in self.pieces:
            t.binary("addi", at, t.index(0), to=p.base)
            up = t.binary("addi", p.elements(t), t.index(ALIGN - 1))
            rows = t.binary("divui", up, t.index(ALIGN))
            at = t.binary("addi", at, t.binary("muli", rows, t.index(ALIGN)))
