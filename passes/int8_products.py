"""Products with weights in int8, and what their rows become.

    rows=f32      dot(x, w)   ->   dot(x, convert(q, f32)) * s
    rows=int8     dot(x, w)   ->   convert(dot(convert(p, i32), convert(q, i32)), f32) * r * s
    rows=int24    dot(x, w)   ->   (S2 * 65536 + (S1 * 256 + S0)) * r * s,  Si = convert(dot(convert(di, i32), …), f32)

`q` and `s` are symmetric int8 by output channel: s = max |w| / 127 over what is summed, and q = round(w / s), so no
element is further from q * s than s / 2; q is held at -127 and 127, since s of tiny weights is rounded. `p` and `r` are
the same of each row of x, made anew in each call and step. Sums of two int8 are i32, and exact.

With rows=int24 elements of a row are numbers of 24 bits, p = d2 * 65536 + d1 * 256 + d0 in signed bytes: p is x / r, by
floor(x / r + 1/2), at most 8355711, where all three bytes are 127, and r = max |x| / 8355710. No element is further
from p * r than 3/4 r, which is 1.51 * 2^-24 of the largest; r is 2^-126 at least. Beside an infinite element, which is
the largest p, others are 0, and r is infinite.
"""

from __future__ import annotations

import math

import numpy as np

from lstm_ir import ops
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Graph, Node, Value, make
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.linear import free_axes
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.ops.scan.node import STEP, scan_node

LARGEST = 127  # of int8, as it is used: symmetric
PLACES = (16, 8, 0)  # of the bytes of a number of 24 bits
LARGEST_24 = sum(LARGEST << place for place in PLACES)
DIRECTIONS = 2
ZERO_24 = sum(128 << place for place in PLACES)  # added to a number it makes its bytes unsigned, each 128 larger
TERMS = {"int8": (2**31 - 1) // LARGEST**2, "int24": (2**31 - 1) // (128 * LARGEST)}  # of a sum that i32 holds


class Int8Product:
    """A product whose operands become int8: `left` rows, `right` weights."""

    def __init__(self, n: Node, rows: str) -> None:
        a, self.node = n.attrs, n
        self.summed = a["lhs_contracting_dimensions"], a["rhs_contracting_dimensions"]
        self.batching = a["lhs_batching_dimensions"], a["rhs_batching_dimensions"]
        terms = math.prod(int(n.inputs[1].shape[axis]) for axis in self.summed[1])
        self.rows = rows if terms <= TERMS.get(rows, terms) else "f32"

    def value(self) -> Value:
        """As the table above says."""
        q, columns = self._int8(1)
        if self.rows == "f32":
            return self._dot(self.node.inputs[0], ops.convert(q, DType.f32)) * columns
        if self.rows == "int24":
            return self._of_three_bytes(q) * columns
        p, rows = self._int8(0)
        return self._of_bytes(p, q) * rows * columns

    def _dot(self, lhs: Value, rhs: Value) -> Value:
        return make(self.node.op, lhs, rhs, **self.node.attrs).values[0]

    def _of_bytes(self, p: Value, q: Value) -> Value:
        return ops.convert(self._dot(ops.convert(p, DType.i32), ops.convert(q, DType.i32)), DType.f32)

    def _of_three_bytes(self, q: Value) -> Value:
        x, largest, kept = self._rows(0)
        f32 = np.finfo(np.float32)
        scale = ops.maximum(largest * (1 / (LARGEST_24 - 1)), float(f32.tiny))
        p = ops.floor(x / ops.broadcast_in_dim(ops.minimum(scale, float(f32.max)), x.shape, kept) + 0.5)
        p = ops.convert(ops.clamp(float(-LARGEST_24), p, float(LARGEST_24)), DType.i32) + ZERO_24
        bytes_ = [(ops.shift_right_logical(p, place) if place else p) & 255 for place in PLACES]
        high, middle, low = (self._of_bytes(ops.convert(b - 128, DType.i8), q) for b in bytes_)
        return (high * 65536.0 + (middle * 256.0 + low)) * self._as_product(scale, 0)

    @property
    def is_of_rows(self) -> bool:
        """[.., K] by a matrix."""
        rows, matrix = self.node.inputs
        return not self.batching[0] and self.summed[0] == (rows.rank - 1,) and matrix.rank == 2 and rows.rank > 1

    @property
    def is_of_directions(self) -> bool:
        """Rows [.., K] of each direction of a layer by its own matrix."""
        (rows, matrix), (own, _) = self.node.inputs, self.batching
        by_row = len(own) == 1 and own[0] < rows.rank - 1 and self.summed[0] == (rows.rank - 1,)
        return by_row and matrix.rank == 3 and rows.rank > 2 and rows.shape[own[0]] in range(1, DIRECTIONS + 1)

    def of_directions(self) -> Value:
        """The products of each direction in loops of one step."""
        (own, of), (_, (k,)), parts = self.batching, self.summed, []
        for d in range(self.node.inputs[1].shape[of[0]]):
            cut = zip(self.node.inputs, (own[0], of[0]), strict=True)
            x, w = (ops.squeeze(slice_axis(v, axis, d, d + 1), axis) for v, axis in cut)
            dot = ops.dot_general(x, w, ((x.rank - 1,), (k - (of[0] < k),)))
            parts.append(ops.expand_dims(Int8Product(dot.node, self.rows).in_a_loop(), 0))
        return ops.concat(parts, 0)

    def in_a_loop(self, bias: Value | None = None) -> Value:
        """`value` plus a bias [N], in the body of a loop of one step."""
        rows, matrix = self.node.inputs
        many = dims.product(rows.shape[:-1])
        x, w = parameter("x", rows.type.with_shape((many, rows.shape[-1]))), parameter("w", matrix.type)
        dot = ops.dot_general(x, w, ((1,), self.summed[1]))
        y = Int8Product(dot.node, self.rows).value()
        consts = {w: matrix}
        if bias is not None:
            b = parameter("b", bias.type)
            y, consts[b] = y + ops.broadcast_in_dim(b, y.shape, (1,)), bias
        body = Graph("product", [parameter("step", STEP), *consts, x], [y])
        one = ops.reshape(rows, (1, *x.shape))
        out = scan_node(body, tuple(consts.values()), (), (one,), length=1, reverse=(False, False)).values[0]
        return ops.reshape(out, self.node.types[0].shape)

    def _rows(self, side: int) -> tuple[Value, Value, tuple[int, ...]]:
        """An operand, the largest size over what is summed, and the axes that are not."""
        x, summed = self.node.inputs[side], self.summed[side]
        return x, ops.max(ops.abs(x), tuple(sorted(summed))), tuple(i for i in range(x.rank) if i not in summed)

    def _int8(self, side: int) -> tuple[Value, Value]:
        """An operand as int8, and its scale as the product has axes."""
        x, largest, kept = self._rows(side)
        scale = ops.select(ops.compare(largest, 0.0, "EQ"), 1.0, largest / float(LARGEST))
        q = ops.round(x / ops.broadcast_in_dim(scale, x.shape, kept))
        if side:
            q = ops.clamp(float(-LARGEST), q, float(LARGEST))
        return ops.convert(q, DType.i8), self._as_product(scale, side)

    def _as_product(self, scale: Value, side: int) -> Value:
        """A scale of each row, or column, repeated over the product."""
        x, summed, batching = self.node.inputs[side], self.summed[side], self.batching[side]
        kept = [axis for axis in range(x.rank) if axis not in summed]
        free = free_axes(x.rank, batching, summed)
        first = len(batching) + (side and self.node.inputs[0].rank - len(batching) - len(self.summed[0]))
        places = {axis: i for i, axis in enumerate(batching)} | {axis: first + i for i, axis in enumerate(free)}
        order = sorted(range(len(kept)), key=lambda i: places[kept[i]])
        turned = scale if order == sorted(order) else ops.transpose(scale, order)
        return ops.broadcast_in_dim(turned, self.node.types[0].shape, tuple(places[kept[i]] for i in order))
