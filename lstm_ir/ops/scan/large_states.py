"""States too large to keep for a gradient: a loop whose steps are cheap to run again saves them by segments.

    s[t] = a[t] s[t-1] + b[t]      s [B,H,N], a, b and what is read of s: [B,H]

A selective scan has N numbers of state for each that a step reads or gives. All of them, written on the way there and
read on the way back, pass through memory twice; those of a segment, made again from the state before it, stay in a
cache. Such a loop has no products, which would cost more again than memory does, and sizes that are numbers.
"""

from __future__ import annotations

import math

from lstm_ir.ir.graph import Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ops.scan.tuned import SEGMENT_BYTES, SPILLED_BYTES, STATES_BY_ROWS

_CHEAP = (Trait.elementwise, Trait.data_movement, Trait.leaf)


def segment_steps(loop: Loop) -> int | None:
    """Steps of a segment; None where all states are saved."""
    steps, states, rows = loop.length, _bytes(loop.carry_params), _bytes((*loop.x_params, *loop.rows))
    if loop.until or loop.count is not None or not isinstance(steps, int) or states is None or rows is None:
        return None
    if steps * states < SPILLED_BYTES or states < STATES_BY_ROWS * rows:
        return None
    if not all(any(t in n.op.traits for t in _CHEAP) or n.op.name.startswith("reduce_") for n in loop.body.nodes):
        return None
    return max(1, SEGMENT_BYTES // states)


def _bytes(values: tuple[Value, ...]) -> int | None:
    """Of all together; None where a size has a name."""
    total = 0
    for v in values:
        if not all(isinstance(d, int) for d in v.shape):
            return None
        total += math.prod(map(int, v.shape)) * max(1, v.dtype.bits // 8)
    return total
