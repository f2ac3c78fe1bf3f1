"""`remat`: a loop cut into segments, so that its gradient saves the carries of segments alone.

    T steps  =  (T+K-1)//K segments of K steps, one of them shorter (a scan of scans)

On the way back each segment is run again from the carries that went into it. Saved are T/K carries
and, while a segment is worked on, what its K steps need: least for K near the square root of T.
"""

from __future__ import annotations

from typing import Any

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import GradientError, message
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.pullback import Cts, Hook, through
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.shape import reshape, reverse
from lstm_ir.ops.primitive.size import in_range, size
from lstm_ir.ops.primitive.window import pad_axis, slice_axis
from lstm_ir.ops.scan.node import STEP, scan_node
from lstm_ir.ops.scan.parts import later_steps


def segmented_vjp(node: Node, cts: Cts, levels: tuple[int, ...], over_segments: Hook) -> Any:
    """The gradient of a scan through its segments of levels[0] steps; None if it has no more than these.

    over_segments: the gradient of the loop over segments, which runs each of them again.
    """
    loop, (K, *deeper) = Loop(node), levels
    if isinstance(loop.length, int) and loop.length <= K:
        return through(node, node.values, cts, tuple(deeper)) if deeper else None
    values, outer = _segmented(_counted(loop), K)
    if loop.steps is not None:
        values.insert(len(loop.init), loop.steps)

    def hook(n: Node, arrived: Cts) -> Any:
        return over_segments(n, arrived) if n is outer else None

    return through(node, values, cts, tuple(deeper) or None, hook)


def _counted(loop: Loop) -> Loop:
    """A loop with `until` as one of so many steps as it ran: the loop itself stays, to find how many these are."""
    if loop.steps is None:
        return loop
    body = Graph(loop.body.name, loop.body.params, [*loop.next, *loop.rows])
    return Loop(
        scan_node(body, loop.consts, loop.init, loop.xs, length=loop.length, reverse=loop.reverse, count=loop.steps)
    )


def _segmented(loop: Loop, K: int) -> tuple[list[Value], Node]:
    """The loop's results, and the scan over segments.

    Rows are filled up behind the last one: the segment that holds it runs fewer steps. In reverse it is the first.
    """
    if loop.count is not None and len(set(loop.reverse)) > 1:
        problem = "remat does not go with count where rows are read or written in both orders"
        raise GradientError(message("scan", problem, [("count", loop.count.type)], loop.node.loc))
    loop, turned = _one_way(loop)
    S = dims.floordiv(dims.add(loop.length, K - 1), K)
    whole = dims.mul(S, K)
    more = dims.add(whole, dims.mul(loop.length, -1))
    cut = [reshape(pad_axis(x, 0, 0, more), (S, K, *x.shape[1:])) for x in loop.xs]
    count: tuple[Value, ...] = ()
    if loop.count is not None:
        count = (e.convert(in_range(loop.count, 0, loop.length), DType.i32),)
    elif more != 0:
        count = (size(loop.length),)
    outer = scan_node(
        _outer_body(loop, K, S, count), (*count, *loop.consts), loop.init, tuple(cut), length=S, reverse=loop.reverse
    )
    k = len(loop.init)
    rows = [slice_axis(reshape(y, (whole, *y.shape[2:])), 0, 0, loop.length) for y in outer.values[k:]]
    return [*outer.values[:k], *(reverse(y, 0) if t else y for y, t in zip(rows, turned, strict=True))], outer


def _one_way(loop: Loop) -> tuple[Loop, tuple[bool, ...]]:
    """A loop that reads and gives all rows in one order, and which of the rows that it gives are to be turned."""
    if len(set(loop.reverse)) < 2:
        return loop, (False,) * len(loop.y_reverse)
    xs = tuple(reverse(x, 0) if r else x for x, r in zip(loop.xs, loop.x_reverse, strict=True))
    node = scan_node(
        loop.body, loop.consts, loop.init, xs, length=loop.length, reverse=(False,) * len(loop.reverse),
        count=loop.count,
    )  # fmt: skip
    return Loop(node), loop.y_reverse


def _outer_body(loop: Loop, K: int, segments: Dim, counted: tuple[Value, ...]) -> Graph:
    """One segment: K steps as a scan, or those that the number of all leaves."""
    step = parameter("segment", STEP)
    count = tuple(parameter("count", STEP) for _ in counted)
    consts = tuple(parameter(f"const{i}", v.type) for i, v in enumerate(loop.consts))
    init = tuple(parameter(f"carry{i}", v.type) for i, v in enumerate(loop.init))
    kinds = [TensorType((K, *x.shape[1:]), x.dtype) for x in loop.xs]
    xs = tuple(parameter(f"x{i}", t) for i, t in enumerate(kinds))
    base, runs = step * K, None
    if count:
        first = (size(segments) - 1 - step) * K if any(loop.reverse) else base  # of its rows
        runs = e.clamp(0, count[0] - first, K)
        base = e.maximum(count[0] - first - K, 0) if any(loop.reverse) else base
    node = later_steps(loop, base, consts, init, xs, K, runs)
    return Graph(f"{loop.body.name}_segment", [step, *count, *consts, *init, *xs], node.values)
