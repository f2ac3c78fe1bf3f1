"""Sums of products of named sizes, which IREE is kept from taking for products of matrices.

IREE 3.13 packs the factors of `sum(a * b, 0)` as those of a matrix product. Where a factor is computed, its packing is
fused with what computes it, and with two open sizes that fails ("affine.delinearize_index"): the whole module is then
compiled a second time, with no product packed. Where none is, packing costs more than it gains if the first axis is
summed (local-sync, [400,32,128]: 2.8 to 4.5 times the time), and gains a third if an inner one is.
"""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.regions import empty, generic
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.types import DType, TensorType


def as_a_sum(e: Emitter, n: Node, x: ir.Value, t: TensorType, axes: Sequence[int]) -> ir.Value:
    """`x`, the operand of the sum `n` over `axes`; a product of it is no factor of a matrix product.

    Each element passes by a copysign with itself, which LLVM removes.
    """
    product = _moved(n.inputs[0])
    if e.target is None or e.target.kind != "cpu" or t.is_static or product.op != "multiply":
        return x
    if t.dtype not in (DType.f32, DType.f64) or not (0 in axes or any(map(_computed, product.node.inputs))):
        return x
    places = [f"d{i}" for i in range(t.rank)]

    def same(values: list[ir.Value]) -> ir.Value:
        return e.make("math.copysign", [values[0]] * 2, [values[0].type]).result

    return generic(e, [x], empty(e, t), [places, places], t.rank, same)


def _computed(factor: Value) -> bool:
    return Trait.elementwise in _moved(factor).node.op.traits


def _moved(v: Value) -> Value:
    """What was rearranged or repeated to give the value."""
    while Trait.data_movement in v.node.op.traits and v.node.inputs:
        v = v.node.inputs[0]
    return v
