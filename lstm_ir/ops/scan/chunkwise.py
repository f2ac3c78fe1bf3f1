"""Which loops with a matrix state go by chunks of steps (three_loops.py), and their gradients.

Where T has a name, whole chunks are taken so, and the steps that are left over by the loop as it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim, Expr, Floor
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.pullback import Cts, through
from lstm_ir.ops.primitive.shape import concat
from lstm_ir.ops.primitive.size import size
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.ops.scan.chunks import DecayAlong
from lstm_ir.ops.scan.matrix_state import MatrixLoop, matrix_loop
from lstm_ir.ops.scan.node import scan_node
from lstm_ir.ops.scan.parts import later_steps
from lstm_ir.ops.scan.three_loops import ThreeLoops, decay_along, longest_of
from lstm_ir.ops.scan.tuned import LARGE_STATES, LONG_KEYS, MIN_STEPS


def chunkwise(
    loop: Loop, differentiated: bool = False, anyway: bool = False
) -> tuple[list[Value] | None, tuple[str, ...], Node | None]:
    """The loop's results by chunks, or None and the reasons; and the loop over what whole chunks leave over.

    differentiated: for its gradient. Where decays differ along an axis of the state, each pair of steps has many, and
    where a delta rule writes to two keys its systems are twice as large: kernels over steps take half the time then.
    Where its keys are short, chunks gain little and take the compiler twice as long.
    anyway: also where a loop over steps, without a kernel, takes less time (docs/passes.md).
    """
    if (
        loop.until
        or loop.length == 0
        or (isinstance(loop.length, int) and loop.length < MIN_STEPS)
        or _left_over(loop.length)
    ):
        return None, (), None
    found, why = matrix_loop(loop)
    if found is None:
        return None, why, None
    if differentiated and decay_along(found) is not DecayAlong.nothing:
        return None, ("a decay for each row or column of a matrix state",), None
    if differentiated and found.is_delta and len(found.writes) > 1:
        return None, ("a delta rule that writes to two keys",), None
    if differentiated and found.is_delta and _has_short_keys(found):
        return None, ("a delta rule whose keys are short",), None
    if not differentiated and not anyway and found.is_delta and not _is_large(found):
        return None, ("a delta rule whose states are small",), None
    if loop.count is not None:
        return None, ("a matrix state in a loop with `count`",), None
    if len(set(loop.reverse)) > 1:
        return None, ("a matrix state in a loop that reads or gives rows in both orders",), None
    if isinstance(loop.length, int):
        return ThreeLoops(found, differentiated).results(), (), None
    return _with_rest(loop, longest_of(found), differentiated)


def _is_large(m: MatrixLoop) -> bool:
    numbers = dims.product(m.param.shape)
    return isinstance(numbers, int) and numbers >= LARGE_STATES


def _has_short_keys(m: MatrixLoop) -> bool:
    keys = m.param.shape[m.k]
    return isinstance(keys, int) and keys < LONG_KEYS


def chunkwise_vjp(node: Node, cts: Cts, plain: Callable[[Node, Cts], Any]) -> Any:
    """The gradient of a scan through its chunks; None where it has none.

    plain: the gradient of the loop over the steps that chunks leave over.
    """
    values, _, rest = chunkwise(Loop(node), differentiated=True)
    if values is None:
        return None
    return through(node, values, cts, hook=lambda n, arrived: plain(n, arrived) if n is rest else None)


def _left_over(length: Dim) -> bool:
    """Whether it is T - chunk * (T // chunk): fewer steps than a chunk has."""
    if not isinstance(length, Expr):
        return False
    for mono, k in length.terms:
        if len(mono) == 1 and isinstance(mono[0], Floor) and isinstance(k, int) and k == -mono[0].divisor:
            return dims.add(length, dims.mul(Expr(((mono, 1),)), -k)) == mono[0].numerator
    return False


def _with_rest(loop: Loop, chunk: int, differentiated: bool) -> tuple[list[Value] | None, tuple[str, ...], Node | None]:
    count = dims.floordiv(loop.length, chunk)
    whole = dims.mul(count, chunk)
    rest = dims.add(loop.length, dims.mul(whole, -1))
    back = any(loop.reverse)
    first = [slice_axis(x, 0, rest, loop.length) if back else slice_axis(x, 0, 0, whole) for x in loop.xs]
    main = scan_node(loop.body, loop.consts, loop.init, tuple(first), length=whole, reverse=loop.reverse)
    found, why = matrix_loop(Loop(main))
    assert found is not None, why
    done = ThreeLoops(found, differentiated).results()
    if rest == 0:
        return done, (), None
    k = len(loop.init)
    left = [slice_axis(x, 0, 0, rest) if back else slice_axis(x, 0, whole, loop.length) for x in loop.xs]
    tail = later_steps(loop, size(whole), loop.consts, tuple(done[:k]), tuple(left), rest)
    rows = [concat([b, a] if back else [a, b], 0) for a, b in zip(done[k:], tail.values[k:], strict=True)]
    return [*tail.values[:k], *rows], (), tail
