"""Sums and products that are spread over other rows: on SPIR-V in no dispatch with what spreads them.

IREE 3.13 (SPIRVTileAndDistribute) shares both out over threads in one dispatch, each by its own leading axes, keeps the
sums in memory of the workgroup, and has no barrier between: a thread reads what another one has not written. Where
all axes that are added come last, a thread reads what it wrote itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir

from lstm_ir.backends.emit.builder import Builder
from lstm_ir.backends.lower.beside_products import fuses
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import Shape, TensorType

_SUMS = {"dot_general", "reduce_sum", "reduce_max", "reduce_min", "argmax", "cumsum", "stencil", "stencil_grad"}


def apart_from_spread(e: Builder, v: ir.Value, value: Value, to: Shape, axes: Sequence[int]) -> ir.Value:
    """`v`, made from `value`, as the operand of a broadcast to `to` in which its axes are `axes`."""
    return alone(e, v, value.type, to, axes) if e.is_spirv and _summed(value) else v


def alone(e: Builder, v: ir.Value, t: TensorType, to: Shape, axes: Sequence[int]) -> ir.Value:
    """The same of a sum."""
    kept = [i for d, i in zip(t.shape, axes, strict=True) if d != 1]
    added = [i for i, d in enumerate(to) if i not in kept and d != 1]
    return e.barrier(v, t) if e.is_spirv and kept and added and min(added) < max(kept) else v


def _summed(value: Value) -> bool:
    """Whether a sum or product is among what may be in one dispatch with `value`."""
    todo, seen = [value], set[Value]()
    while todo:
        v = todo.pop()
        if v.op in _SUMS:
            return True
        if v not in seen and fuses(v.node):
            seen.add(v)
            todo += v.node.inputs
    return False
