"""Which loops with a matrix state go by chunks of steps (three_loops.py), and their gradients."""

from __future__ import annotations

from typing import Any

from lstm_ir.ir import dims
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.pullback import Cts, through
from lstm_ir.ops.scan.chunks import DecayAlong
from lstm_ir.ops.scan.matrix_state import MatrixLoop, matrix_loop
from lstm_ir.ops.scan.three_loops import ThreeLoops, decay_along
from lstm_ir.ops.scan.tuned import LARGE_STATES, LONG_KEYS, MIN_STEPS


def chunkwise(
    loop: Loop, differentiated: bool = False, anyway: bool = False
) -> tuple[list[Value] | None, tuple[str, ...]]:
    """The loop's results by chunks, or None and the reasons.

    differentiated: for its gradient. Where decays differ along an axis of the state, each pair of steps has many, and
    where a delta rule writes to two keys its systems are twice as large: kernels over steps take half the time then.
    Where its keys are short, chunks gain little and take the compiler twice as long.
    anyway: also where a loop over steps, without a kernel, takes less time (docs/passes.md).
    """
    if loop.until or (isinstance(loop.length, int) and loop.length < MIN_STEPS):
        return None, ()
    found, why = matrix_loop(loop)
    if found is None:
        return None, why
    if differentiated and decay_along(found) is not DecayAlong.nothing:
        return None, ("a decay for each row or column of a matrix state",)
    if differentiated and found.is_delta and len(found.writes) > 1:
        return None, ("a delta rule that writes to two keys",)
    if differentiated and found.is_delta and _has_short_keys(found):
        return None, ("a delta rule whose keys are short",)
    if not differentiated and not anyway and found.is_delta and not _is_large(found):
        return None, ("a delta rule whose states are small",)
    if loop.count is not None:
        return None, ("a matrix state in a loop with `count`",)
    if len(set(loop.reverse)) > 1:
        return None, ("a matrix state in a loop that reads or gives rows in both orders",)
    return ThreeLoops(found, differentiated).results(), ()


def _is_large(m: MatrixLoop) -> bool:
    numbers = dims.product(m.param.shape)
    return isinstance(numbers, int) and numbers >= LARGE_STATES


def _has_short_keys(m: MatrixLoop) -> bool:
    keys = m.param.shape[m.k]
    return isinstance(keys, int) and keys < LONG_KEYS


def chunkwise_vjp(node: Node, cts: Cts) -> Any:
    """The gradient of a scan through its chunks; None where it has none."""
    values, _ = chunkwise(Loop(node), differentiated=True)
    return None if values is None else through(node, values, cts)
