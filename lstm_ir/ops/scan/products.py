"""Products along an axis, one element after another, each a step of a loop."""

from __future__ import annotations

from typing import Any

from lstm_ir.ir import dims, options
from lstm_ir.ir.graph import Value
from lstm_ir.ops.primitive.fill import full
from lstm_ir.ops.primitive.precision import numbers, widened
from lstm_ir.ops.primitive.reduce import Axes
from lstm_ir.ops.primitive.shape import axes_of, axis_of, expand_dims, reshape, transpose
from lstm_ir.ops.scan.builder import scan


def prod(x: Any, axis: Axes = None, keepdims: bool = False) -> Value:
    """The product over `axis` (all without it), 1 of no elements; integers wrap."""
    v = numbers("prod", x)
    over, keep = axes_of("prod", v, axis), options.flag("prod", "keepdims", keepdims)
    if not over:
        return v
    y = widened(v, lambda w: _product(w, over))
    return expand_dims(y, over) if keep else y


def _product(x: Value, axes: tuple[int, ...]) -> Value:
    others = [a for a in range(x.rank) if a not in axes]
    rows = transpose(x, (*axes, *others))
    kept = rows.shape[len(axes) :]
    rows = reshape(rows, (dims.product(rows.shape[: len(axes)]), *kept))
    total, _ = scan(lambda out, row: (out * row, None), full(kept, 1, x.dtype), rows, name="prod")
    return total  # type: ignore[no-any-return]


def cumprod(x: Any, axis: int = 0, reverse: bool = False, exclusive: bool = False) -> Value:
    """Running products along `axis`, from its end if `reverse`, the element left out if `exclusive`."""
    v = numbers("cumprod", x)
    at, without = axis_of("cumprod", v, axis), options.flag("cumprod", "exclusive", exclusive)
    back = options.flag("cumprod", "reverse", reverse)

    def step(out: Value, row: Value) -> tuple[Value, Value]:
        new = out * row
        return new, out if without else new

    def running(w: Value) -> Value:
        order = (at, *(a for a in range(w.rank) if a != at))
        rows = transpose(w, order)
        _, ys = scan(step, full(rows.shape[1:], 1, w.dtype), rows, reverse=back, name="cumprod")
        return transpose(ys, [order.index(a) for a in range(w.rank)])

    return widened(v, running)
