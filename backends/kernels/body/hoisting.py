"""Products of scanned rows that leave the loop: one product over the rows of all steps."""

from __future__ import annotations

from dataclasses import dataclass

from lstm_ir import ops
from lstm_ir.backends.kernels.body.access import Access, ColumnAxis, RowAxis
from lstm_ir.backends.kernels.body.atoms import Matrix
from lstm_ir.backends.kernels.body.products import rows_product
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.primitive.window import slice_axis


@dataclass(frozen=True)
class Projection:
    """x[:, access] @ matrix for every step: [T, rows, columns], or [T, columns] without rows."""

    scan: int
    access: Access  # of one row of x; Col is the first of `length` columns
    length: int
    matrix: Matrix  # from column 0

    def weights(self) -> Graph:
        """The part of the matrix that it reads, of rank 2, as a graph over the matrix."""
        whole = parameter("matrix", self.matrix.value.type)
        return Graph("weights", [whole], [self._weight(whole)])

    def graph(self, x: TensorType) -> Graph:
        """The projection as a graph over x and what `weights` gives."""
        whole, weight = parameter("x", x), parameter("weights", self.weights().outputs[0].type)
        rows = self._rows(whole)
        flat = rows.shape[:-1]
        two = ops.reshape(rows, (dims.product(flat), self.length)) if len(flat) > 1 else rows
        at = 1 if self.matrix.k_axis > self.matrix.col_axis else 0
        product = rows_product(two, weight, at)
        out = ops.reshape(product, (*flat, product.shape[1])) if len(flat) > 1 else product
        return Graph("projection", [whole, weight], [out])

    def _rows(self, x: Value) -> Value:
        """[T, rows, length], static axes cut out."""
        shape: list[object] = [x.shape[0]]
        for axis, at in enumerate(self.access, start=1):
            if isinstance(at, ColumnAxis):
                x = slice_axis(x, axis, at.start, at.start + self.length)
                shape.append(self.length)
            elif isinstance(at, RowAxis):
                shape.append(x.shape[axis])
            else:
                assert isinstance(at, int)
                x = slice_axis(x, axis, at, at + 1)
        return x if x.rank == len(shape) else ops.reshape(x, tuple(shape))  # type: ignore[arg-type]

    def _weight(self, w: Value) -> Value:
        m = self.matrix
        for axis, at in enumerate(m.fixed):
            if at is not None:
                w = slice_axis(w, axis, at, at + 1)
        w = slice_axis(w, m.k_axis, m.k_start, m.k_start + self.length)
        return ops.reshape(w, tuple(w.shape[a] for a in sorted((m.k_axis, m.col_axis)))) if w.rank > 2 else w
