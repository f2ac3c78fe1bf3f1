"""States too large to keep for a gradient: a loop whose steps are cheap to run again saves them by segments.

    s[t] = a[t] s[t-1] + b[t]      s [B,H,N], a, b and what is read of s: [B,H]

A selective scan has N numbers of state for each that a step reads or gives. All of them, written on the way there and
read on the way back, pass through memory twice; those of a segment, made again from the state before it, stay in a
cache. Such a loop has no products, which would cost more again than memory does, and sizes that are numbers.
"""

from __future__ import annotations

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ops.scan.tuned import SEGMENT_BYTES, SPILLED_BYTES, STATES_BY_ROWS

_CHEAP = (Trait.elementwise, Trait.data_movement, Trait.leaf)


def segment_steps(loop: Loop) -> int | None:
    """Steps of a segment; None where all states are saved."""
    steps, states, rows = loop.length, _bytes(loop.carry_params), _bytes((*loop.x_params, *loop.rows))
    if loop.until or loop.count is not None:
        return None
    if not (isinstance(steps, int) and isinstance(states, int) and isinstance(rows, int)):
        return None
    if steps * states < SPILLED_BYTES or states < STATES_BY_ROWS * rows:
        return None
    if not all(any(t in n.op.traits for t in _CHEAP) or n.op.name.startswith("reduce_") for n in loop.body.nodes):
        return None
    return max(1, SEGMENT_BYTES // states)


def _bytes(values: tuple[Value, ...]) -> Dim:
    """Of all together."""
    total: Dim = 0
    for v in values:
        total = dims.add(total, dims.mul(dims.product(v.shape), v.dtype.bytes))
    return total
