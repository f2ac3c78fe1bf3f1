"""Loops and branches of PyTorch's higher-order ops: the user's own cell becomes a `scan`."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.refusals import RefusedError
from lstm_ir.importers.torch.call import Call, as_value
from lstm_ir.importers.torch.handlers.arithmetic import without_gradient
from lstm_ir.importers.torch.table import taken
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

Values = tuple[Value, ...]


@taken("higher_order.scan")
def scan(c: Call) -> list[Value]:
    """combine(carries, rows, more) -> carries, rows, over the first axis of `xs`."""
    body, init, xs, more = (c.any(f"arg{i}", []) for i in range(4))
    if not xs:
        raise RefusedError("it reads no rows, so nothing says how many steps it has")
    carries = [as_value(v, v.dtype) for v in init]

    def cell(state: Values, row: Values) -> tuple[Values, Values]:
        results = tuple(c.context.inner(body, [*state, *row, *more]))
        return results[: len(carries)], results[len(carries) :]

    final, ys = li.scan(cell, tuple(carries), tuple(xs))
    return [*final, *ys]


@taken("higher_order.cond")
def cond(c: Call) -> list[Value]:
    """One of two bodies: that which is known, or both, of which the condition picks the results."""
    pred, yes, no, operands = (c.any(f"arg{i}", []) for i in range(4))
    if isinstance(pred, bool):
        return c.context.inner(yes if pred else no, operands)
    if not isinstance(pred, Value):
        raise RefusedError("its condition is no tensor")
    known = c._knowledge.array(pred)
    if known is not None:
        return c.context.inner(yes if bool(known.reshape(-1)[0]) else no, operands)
    holds = li.reshape(li.convert(pred, DType.i1), ())
    both = zip(c.context.inner(yes, operands), c.context.inner(no, operands), strict=True)
    return [li.select(holds, a, b) for a, b in both]


@taken("higher_order.wrap_with_set_grad_enabled")
def without_grad(c: Call) -> list[Value]:
    """A part of a module under torch.no_grad: no gradient goes through its results."""
    enabled, body = c.any("arg0"), c.any("arg1")
    results = c.context.inner(body, [c.any(n) for n in list(c._arguments)[2:]])
    return [r if enabled or not isinstance(r, Value) else without_gradient(r) for r in results]
