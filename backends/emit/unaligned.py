"""Rows that begin at no whole vector of a tensor: on SPIR-V they are cut from, or written to, memory of their own kind.

IREE 3.13 (SPIRVVectorizeLoadStore) takes a buffer whose rows are whole vectors for one of vectors, and of the place of
an element the quotient by their length: four elements from the first one on are read, or written, at the zeroth. It
does so only where it knows how long the rows are, and copies alone are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from iree.compiler import ir

from lstm_ir.backends.emit.builder import Builder
from lstm_ir.backends.emit.mlir_types import array_attr, element, tensor
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.types import TensorType

_VECTOR = 16  # bytes of the longest vector that IREE 3.13 loads on SPIR-V

Start: TypeAlias = "Dim | ir.Value"


def to_cut(e: Builder, v: ir.Value, t: TensorType, starts: Sequence[Start]) -> ir.Value:
    """`v` of type `t`, signless, to be cut from `starts` on: IREE knows the sizes of no axis that is cut within a
    vector."""
    axes = unaligned(e, t, starts)
    if not axes:
        return v
    assert e.anchor is not None
    known = [e.size(d) for d in t.shape if not isinstance(d, int)]
    sizes, shape = [], []
    for a, d in enumerate(t.shape):
        if isinstance(d, int) and a not in axes:
            shape.append(d)
            continue
        shape.append(ir.ShapedType.get_dynamic_size())
        size = e.size(d)
        if isinstance(d, int):
            with ir.InsertionPoint(e.anchor):
                size = e.hidden(size)
        sizes.append(size)
    to = ir.RankedTensorType.get(shape, element(t.dtype))
    segments = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(known), len(sizes)])}
    return e.make("flow.tensor.reshape", [v, *known, *sizes], [to], segments).result


def cut(e: Builder, v: ir.Value, t: TensorType, low: Sequence[int], part: TensorType) -> ir.Value:
    """The part of `v`, of types `part` and `t` with numbers for sizes, that begins at `low`."""
    if unaligned(e, t, low):
        return e.extract_slice(to_cut(e, v, t, low), t, low, part.shape, tensor(part))
    high = [a + int(d) for a, d in zip(low, part.shape, strict=True)]  # type: ignore[arg-type]
    ends = {"start_indices": array_attr(low), "limit_indices": array_attr(high)}
    return e.hlo("slice", [v], part, **ends, strides=array_attr([1] * t.rank))


def to_insert(e: Builder, v: ir.Value, t: TensorType, into: TensorType, starts: Sequence[Start]) -> ir.Value:
    """`v` of type `t`, to be written into a tensor of type `into` from `starts` on: by a copy, if within a vector."""
    return e.barrier(v, t) if unaligned(e, into, starts) else v


def unaligned(e: Builder, t: TensorType, starts: Sequence[Start]) -> list[int]:
    """The axes of `t` along which a part that begins at `starts` may begin within a vector.

    Along the first axis a part is memory of its own, or whole rows.
    """
    if not e.is_spirv:
        return []
    found, inner = [], t.dtype.bytes
    for a in reversed(range(t.rank)):
        if all(d == 1 for d in t.shape[:a]):
            break
        start, size = starts[a], t.shape[a]
        if (start if isinstance(start, int) else 1) * inner % _VECTOR and size != 1:
            found.append(a)
        inner *= size if isinstance(size, int) else 1  # at least: a named size is a factor too
    return found
