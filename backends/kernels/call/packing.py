"""Weights as the kernel reads them: [block][k][vector][gate][lane], by StableHLO ops.

Where a loop over k reads some vectors of a block alone, these lie side by side, [block][part][k][vector][lane]: it
reads its memory from start to end. Passes of one sweep over as many gates lie behind each other along k, in one tensor.
They depend on weights alone, so IREE computes them once at load.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

from iree.compiler import ir

from lstm_ir import ops
from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.mlir_types import array_attr
from lstm_ir.backends.emit.shapes import transpose
from lstm_ir.backends.emit.unaligned import cut
from lstm_ir.backends.kernels.body.atoms import Matrix
from lstm_ir.backends.kernels.body.plan import PAIR, WORD, KLoop
from lstm_ir.backends.kernels.text.memory import Memory
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive.window import slice_axis


class Packed(NamedTuple):
    """Where the weights of a pass are: its k = 0 is `first` in `memory`."""

    memory: Memory
    first: int
    symmetric: bool  # of int8: no weight is -128

    def beside(self, lanes: int) -> int:
        """Vectors side by side."""
        return self.memory.size(2) // lanes


class PackedForm(NamedTuple):
    """Columns of a sweep, and how kernels read them: vectors of `lanes`, `q` of them in a block, of each gate."""

    width: int
    lanes: int
    q: int
    beside: int = 0  # vectors of all gates side by side; 0: all of a block

    @property
    def blocks(self) -> int:
        """Blocks of columns."""
        return -(-self.width // (self.lanes * self.q))

    def of(self, loops: Sequence[KLoop], sums: int) -> PackedForm:
        """For these passes of a sweep of so many sums: all vectors of a block where one adds to some sums alone, or to
        more than one for a vector, or its weights are words."""
        plain = all(k.sums == [[*range(sums)]] and k.per_word == 1 for k in loops)
        return self if plain else self._replace(beside=0)

    def vectors(self, gates: int) -> int:
        """Vectors side by side, of a block's vectors in the order [vector][gate]."""
        return self.beside or self.q * gates

    def parts(self, gates: int) -> int:
        """Of a block."""
        return self.q * gates // self.vectors(gates)


def grouped(loops: Sequence[KLoop], together: bool) -> list[list[int]]:
    """Numbers of the passes that share a tensor."""
    found: dict[object, list[int]] = {}
    for i, loop in enumerate(loops):
        like = (len(loop.gates), loop.gates[0][1].value.dtype, loop.per_word) if together else i
        found.setdefault(like, []).append(i)
    return list(found.values())


def packed_type(loops: Sequence[KLoop], form: PackedForm) -> TensorType:
    """[blocks * parts, k, vectors * lanes]."""
    gates, length = len(loops[0].gates), sum(p.packed for p in loops)
    dtype = DType.i32 if loops[0].per_word > 1 else loops[0].gates[0][1].value.dtype
    return TensorType((form.blocks * form.parts(gates), length, form.vectors(gates) * form.lanes), dtype)


def pack(e: Emitter, loops: Sequence[KLoop], known: Mapping[Value, ir.Value], form: PackedForm) -> ir.Value:
    """The packed weights of some passes; `known` has the matrices of their gates."""
    if loops[0].in_words:
        parts = [_words(e, loop, known, form) for loop in loops]
    elif loops[0].in_pairs:
        parts = [_pairs(e, loop, known, form) for loop in loops]
    else:
        parts = [_columns(e, matrices, n, known, form) for matrices, n in runs_of(loops)]
    gates, length = len(loops[0].gates), sum(p.packed for p in loops)
    t = parts[0][1].resized(2, length)
    whole = parts[0][0] if len(parts) == 1 else _concatenate(e, [v for v, _ in parts], t, 2)
    inner = min(form.vectors(gates), gates)  # gates side by side; of several vectors all gates are
    q = form.vectors(gates) // inner
    split = t.with_shape((gates // inner, inner, form.blocks, form.q // q, q, form.lanes, length))
    whole = e.hlo("reshape", [whole], split)
    turned, _ = transpose(e, whole, split, (2, 3, 0, 6, 4, 1, 5))
    return e.hlo("reshape", [turned], packed_type(loops, form))


def runs_of(loops: Sequence[KLoop]) -> list[tuple[list[Matrix], int]]:
    """Matrices and lengths; passes whose rows follow each other in the same matrices are one."""
    out: list[tuple[list[Matrix], int]] = []
    for loop in loops:
        matrices = [m for _, m in loop.gates]
        if out:
            before, length = out[-1]
            if matrices == [replace(m, k_start=m.k_start + length) for m in before]:
                out[-1] = (before, length + loop.length)
                continue
        out.append((matrices, loop.length))
    return out


def _words(e: Emitter, loop: KLoop, known: Mapping[Value, ir.Value], form: PackedForm) -> tuple[ir.Value, TensorType]:
    """[gates, padded columns, words of k, and what sums of a column begin with]."""
    v, t = _columns(e, [m for _, m in loop.gates], loop.length, known, form)
    columns = parameter("columns", t)
    first = ops.sum(ops.convert(columns, DType.i32), (2,), keepdims=True) * -loop.offset
    padded = ops.pad(columns, (0, 0, 0), (0, 0, loop.turns * WORD - loop.length))
    places = [ops.convert(part, DType.i32) & 255 for part in _places(padded, WORD)]
    words = reduce(operator.or_, (ops.shift_left(w, 8 * i) if i else w for i, w in enumerate(places)))
    out = ops.concat((words, first), 2)
    return e.graph(Graph("words", [columns], [out]), [v])[0], out.type


def _pairs(e: Emitter, loop: KLoop, known: Mapping[Value, ir.Value], form: PackedForm) -> tuple[ir.Value, TensorType]:
    """[gates, padded columns, words of k]: a bf16 is the upper half of an f32, the first of two moves to the lower."""
    v, t = _columns(e, [m for _, m in loop.gates], loop.length, known, form)
    columns = parameter("columns", t)
    first, second = (ops.bitcast_convert(ops.convert(part, DType.f32), DType.i32) for part in _places(columns, PAIR))
    out = ops.shift_right_logical(first, 16) | second
    return e.graph(Graph("pairs", [columns], [out]), [v])[0], out.type


def _places(columns: Value, count: int) -> list[Value]:
    """The elements of each place in groups of `count` along k.

    Slices of narrow elements: those of elements widened before hold the whole matrix on the stack of IREE's dispatch.
    """
    return [slice_axis(columns, 2, i, columns.shape[2], count) for i in range(count)]


def _columns(
    e: Emitter, matrices: list[Matrix], length: int, known: Mapping[Value, ir.Value], form: PackedForm
) -> tuple[ir.Value, TensorType]:
    """[gates, padded columns, k]."""
    width, padded = form.width, form.blocks * form.lanes * form.q
    if _adjacent(matrices, width):
        first = matrices[0]
        return _gates(e, known[first.value], first, length, width, len(matrices), padded)
    parts = [_gates(e, known[m.value], m, length, width, 1, padded) for m in matrices]
    t = parts[0][1].resized(0, len(parts))
    return _concatenate(e, [p for p, _ in parts], t, 0), t


def _concatenate(e: Emitter, parts: list[ir.Value], t: TensorType, axis: int) -> ir.Value:
    at = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis)
    return e.hlo("concatenate", parts, t, dimension=at)


def _adjacent(matrices: list[Matrix], width: int) -> bool:
    """Whether the gates are neighbours in one matrix."""
    first = matrices[0]
    return all(m == replace(first, col_start=first.col_start + g * width) for g, m in enumerate(matrices))


def _gates(
    e: Emitter, v: ir.Value, m: Matrix, length: int, width: int, gates: int, padded: int
) -> tuple[ir.Value, TensorType]:
    """[gates, padded columns, k]."""
    t = m.value.type
    low = [0 if f is None else f for f in m.fixed]
    high = [1 + f if f is not None else 0 for f in m.fixed]
    low[m.k_axis], high[m.k_axis] = m.k_start, m.k_start + length
    low[m.col_axis], high[m.col_axis] = m.col_start, m.col_start + gates * width
    shape = tuple(b - a for a, b in zip(low, high, strict=True))
    if shape != t.shape:
        v = cut(e, v, t, low, t.with_shape(shape))
    if m.k_axis < m.col_axis:
        by_k = t.with_shape((length, gates * width))
        v, _ = transpose(e, e.hlo("reshape", [v], by_k), by_k, (1, 0))
    flat = t.with_shape((gates, width, length))
    v = e.hlo("reshape", [v], flat)
    if padded == width:
        return v, flat
    zero = e.constant(0, t.dtype)
    flat = flat.resized(1, padded)
    none = array_attr([0, 0, 0])
    more = array_attr([0, padded - width, 0])
    v = e.hlo("pad", [v, zero], flat, edge_padding_low=none, edge_padding_high=more, interior_padding=none)
    return v, flat
