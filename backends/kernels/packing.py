"""Weights as the kernel reads them: [block][k][vector][gate][lane], by StableHLO ops.

They depend on weights alone, so IREE computes them once at load.
"""

from __future__ import annotations

from dataclasses import replace

from iree.compiler import ir

from lstm_ir.backends.emitter import Emitter, array_attr
from lstm_ir.backends.kernels.atoms import Matrix
from lstm_ir.backends.kernels.plan import KLoop
from lstm_ir.types import TensorType


def packed_type(loop: KLoop, width: int, lanes: int, q: int) -> TensorType:
    """[blocks, k, q * gates * lanes]."""
    blocks = -(-width // (lanes * q))
    return TensorType(
        (blocks, loop.length, q * len(loop.gates) * lanes), loop.gates[0][1].value.dtype
    )


def pack(
    e: Emitter, loop: KLoop, values: list[ir.Value], width: int, lanes: int, q: int
) -> ir.Value:
    """The packed weights of one pass; `values` are the matrices of its gates."""
    matrices = [m for _, m in loop.gates]
    blocks = -(-width // (lanes * q))
    if _adjacent(matrices, width):
        whole, t = _gates(
            e, values[0], matrices[0], loop.length, width, len(matrices), blocks * lanes * q
        )
    else:
        parts = [
            _gates(e, v, m, loop.length, width, 1, blocks * lanes * q)
            for v, m in zip(values, matrices, strict=True)
        ]
        t = parts[0][1].resized(0, len(parts))
        axis = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0)
        whole = e.hlo("concatenate", [p for p, _ in parts], t, dimension=axis)
    gates = len(matrices)
    split = t.with_shape((gates, blocks, q, lanes, loop.length))
    whole = e.hlo("reshape", [whole], split)
    turned = t.with_shape((blocks, loop.length, q, gates, lanes))
    whole = e.hlo("transpose", [whole], turned, permutation=array_attr([1, 4, 2, 0, 3]))
    return e.hlo("reshape", [whole], packed_type(loop, width, lanes, q))


def _adjacent(matrices: list[Matrix], width: int) -> bool:
    """Whether the gates are neighbours in one matrix."""
    first = matrices[0]
    return all(
        m == replace(first, col_start=first.col_start + g * width) for g, m in enumerate(matrices)
    )


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
        v = e.hlo(
            "slice", [v], t.with_shape(shape), start_indices=array_attr(low),
            limit_indices=array_attr(high), strides=array_attr([1] * t.rank),
        )  # fmt: skip
    if m.k_axis < m.col_axis:
        v = e.hlo("reshape", [v], t.with_shape((length, gates * width)))
        v = e.hlo(
            "transpose", [v], t.with_shape((gates * width, length)), permutation=array_attr([1, 0])
        )
    flat = t.with_shape((gates, width, length))
    v = e.hlo("reshape", [v], flat)
    if padded == width:
        return v, flat
    zero = e.constant(0, t.dtype)
    flat = flat.resized(1, padded)
    none = array_attr([0, 0, 0])
    more = array_attr([0, padded - width, 0])
    v = e.hlo(
        "pad", [v, zero], flat, edge_padding_low=none, edge_padding_high=more, interior_padding=none
    )
    return v, flat
