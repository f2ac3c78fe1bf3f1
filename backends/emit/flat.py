"""Several values in one flat tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.for_loop import first_carried
from lstm_ir.backends.emit.mlir_types import SIGNED, tensor
from lstm_ir.backends.emit.regions import signed_back, signless
from lstm_ir.backends.emit.shapes import reshape
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.types import DType, TensorType

ALIGN = 16  # elements; a part begins where vector loads may


@dataclass(frozen=True)
class _FlatPart:
    """Where one value lies in the flat tensor."""

    type: TensorType
    begin: Dim
    stored: DType

    @property
    def count(self) -> Dim:
        return dims.product(self.type.shape)

    @property
    def row(self) -> Dim:
        """Elements of one row."""
        return dims.product(self.type.shape[1:])


class Flat:
    """A flat tensor with a part for each type.

    Elements of mixed types are stored as bits of one width.
    """

    def __init__(self, e: Emitter, types: Sequence[TensorType]) -> None:
        self.e = e
        kinds = {SIGNED.get(t.dtype, t.dtype) for t in types}
        self.stored = kinds.pop() if len(kinds) == 1 and DType.i1 not in kinds else None
        self.parts: list[_FlatPart] = []
        begin: Dim = 0
        for t in types:
            self.parts.append(_FlatPart(t, begin, t.dtype))
            words = dims.mul(dims.product(t.shape), self._words(t.dtype))
            begin = dims.add(begin, dims.mul(dims.floordiv(dims.add(words, ALIGN - 1), ALIGN), ALIGN))
        self.type = TensorType((begin,), DType.i32 if self.stored is None else self.stored)

    def _words(self, dtype: DType) -> int:
        """Elements of the flat tensor that one element takes."""
        return 2 if self.stored is None and dtype.bits == 64 else 1

    def start(self, values: Sequence[ir.Value | None]) -> ir.Value:
        """A new flat tensor of these values; None is zeros."""
        flat = self.e.filled(0, self.type, own=True)
        for i, v in enumerate(values):
            flat = flat if v is None else self.put(flat, i, v)
        return flat

    def begin(self, values: Sequence[ir.Value | None]) -> ir.Value:
        """`start`, as what a loop carries first."""
        return first_carried(self.e, self.type, lambda: self.start(values))

    def put(self, flat: ir.Value, i: int, v: ir.Value) -> ir.Value:
        """With part i replaced."""
        p = self.parts[i]
        return self.write(flat, v, p.type, self.e.size(p.begin))

    def get(self, flat: ir.Value, i: int) -> ir.Value:
        """Part i."""
        p = self.parts[i]
        return self.read(flat, p.type, self.e.size(p.begin))

    def put_row(self, flat: ir.Value, i: int, v: ir.Value, at: ir.Value) -> ir.Value:
        """With row `at` of part i replaced."""
        p = self.parts[i]
        return self.write(flat, v, p.type.with_shape(p.type.shape[1:]), self._row_begin(p, at))

    def _row_begin(self, p: _FlatPart, at: ir.Value) -> ir.Value:
        step = self.e.size(dims.mul(p.row, self._words(p.type.dtype)))
        return self.e.arith("addi", self.e.size(p.begin), self.e.arith("muli", at, step))

    def write(self, flat: ir.Value, v: ir.Value, t: TensorType, begin: ir.Value) -> ir.Value:
        """With `v`, of type `t`, from element `begin` on."""
        bits, kind = self._to_bits(v, t)
        count = dims.product(kind.shape)
        line = reshape(self.e, bits, kind, (count,))
        return self.e.insert_slice(line, flat, [begin], [count])

    def read(self, flat: ir.Value, t: TensorType, begin: ir.Value) -> ir.Value:
        """The value of type `t` from element `begin` on."""
        words = self._words(t.dtype)
        count = dims.mul(dims.product(t.shape), words)
        line_type = TensorType((count,), self.type.dtype)
        line = self.e.extract_slice(flat, self.type, [begin], [count], tensor(line_type))
        shape = (*t.shape, 2) if words == 2 else t.shape
        return self._from_bits(reshape(self.e, line, line_type, shape), t)

    def _to_bits(self, v: ir.Value, t: TensorType) -> tuple[ir.Value, TensorType]:
        if self.stored is not None:
            return signless(self.e, v, t)
        i32 = t.with_dtype(DType.i32)
        if t.dtype.bits == 64:  # the memory as it is: IREE knows no size of a bitcast that adds an axis
            pair = TensorType((*t.shape, 2), DType.i32)
            return self.e.view(v, t, tensor(pair)), pair
        if t.dtype.bits == 32:
            return (v if t.dtype is DType.i32 else self.e.hlo("bitcast_convert", [v], i32)), i32
        if t.dtype in (DType.f16, DType.bf16):  # exact in f32
            wide = self.e.hlo("convert", [v], t.with_dtype(DType.f32))
            return self.e.hlo("bitcast_convert", [wide], i32), i32
        return self.e.hlo("convert", [v], i32), i32

    def _from_bits(self, v: ir.Value, t: TensorType) -> ir.Value:
        if self.stored is not None or t.dtype is DType.i32:
            return signed_back(self.e, v, t)
        if t.dtype.bits == 64:
            return self.e.view(v, t, tensor(t))
        if t.dtype.bits == 32:
            return self.e.hlo("bitcast_convert", [v], t)
        if t.dtype in (DType.f16, DType.bf16):
            wide = self.e.hlo("bitcast_convert", [v], t.with_dtype(DType.f32))
            return self.e.hlo("convert", [wide], t)
        return self.e.hlo("convert", [v], t)
