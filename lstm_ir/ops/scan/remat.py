"""`remat`: a loop cut into segments, so that its gradient saves the carries of segments alone.

    T steps  =  T//K segments of K steps (a scan of scans), then the remainder (a scan)

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
from lstm_ir.ops.primitive.shape import concat, reshape
from lstm_ir.ops.primitive.size import in_range, size
from lstm_ir.ops.primitive.window import slice_axis
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
    """The loop's results, and the scan over segments."""
    if loop.count is not None and any(loop.reverse):
        problem = "remat does not go with count where rows are read or written in reverse"
        raise GradientError(message("scan", problem, [("count", loop.count.type)], loop.node.loc))
    S = dims.floordiv(loop.length, K)
    whole = dims.mul(S, K)
    rest = dims.add(loop.length, dims.mul(whole, -1))
    xs = list(zip(loop.xs, loop.x_reverse, strict=True))
    main = [_rows(x, rest if r else 0, dims.add(whole, rest) if r else whole) for x, r in xs]
    cut = [reshape(x, (S, K, *x.shape[1:])) for x in main]
    count = () if loop.count is None else (e.convert(in_range(loop.count, 0, loop.length), DType.i32),)
    consts = (*count, *loop.consts)
    outer = scan_node(_outer_body(loop, K), consts, loop.init, tuple(cut), length=S, reverse=loop.reverse)
    k = len(loop.init)
    finals = outer.values[:k]
    rows = [reshape(y, (whole, *y.shape[2:])) for y in outer.values[k:]]
    if rest == 0:
        return [*finals, *rows], outer
    left = [_rows(x, 0 if r else whole, rest if r else loop.length) for x, r in xs]
    tail = later_steps(loop, size(whole), loop.consts, finals, tuple(left), rest, count)
    ys = []
    for a, b, r in zip(rows, tail.values[k:], loop.y_reverse, strict=True):
        ys.append(concat([b, a] if r else [a, b], 0))
    return [*tail.values[:k], *ys], outer


def _rows(x: Value, start: Dim, limit: Dim) -> Value:
    return x if start == 0 and limit == x.shape[0] else slice_axis(x, 0, start, limit)


def _outer_body(loop: Loop, K: int) -> Graph:
    """One segment: K steps as a scan."""
    step = parameter("segment", STEP)
    count = () if loop.count is None else (parameter("count", STEP),)
    consts = tuple(parameter(f"const{i}", v.type) for i, v in enumerate(loop.consts))
    init = tuple(parameter(f"carry{i}", v.type) for i, v in enumerate(loop.init))
    kinds = [TensorType((K, *x.shape[1:]), x.dtype) for x in loop.xs]
    xs = tuple(parameter(f"x{i}", t) for i, t in enumerate(kinds))
    node = later_steps(loop, step * K, consts, init, xs, K, count)
    return Graph(f"{loop.body.name}_segment", [step, *count, *consts, *init, *xs], node.values)
