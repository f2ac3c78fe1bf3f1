"""Loops and branches of PyTorch's higher-order ops: the user's own cell becomes a `scan`."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.choices import entering
from lstm_ir.importers.counted import Counted
from lstm_ir.importers.counted_loops import ENDS, all_of, below, counting, rows_read, up
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import UndecidedError, smaller
from lstm_ir.importers.torch.call import Call, as_value
from lstm_ir.importers.torch.table import taken
from lstm_ir.ir import dims
from lstm_ir.ir.clone import clone
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.types import DType, TensorType

Values = tuple[Value, ...]


@taken("higher_order.scan")
def scan(c: Call) -> list[Value]:
    """combine(carries, rows, more) -> carries, rows, over the first axis of `xs`."""
    body, init, xs, more = (c.any(f"arg{i}", []) for i in range(4))
    if not xs:
        raise NodeRefusedError("it reads no rows, so nothing says how many steps it has")
    carries = [as_value(v, v.dtype) for v in init]

    def cell(state: Values, row: Values) -> tuple[Values, Values]:
        results = tuple(c.context.inner(body, [*state, *row, *more], loop=True))
        return results[: len(carries)], results[len(carries) :]

    final, ys = li.scan(cell, tuple(carries), tuple(xs))
    return [*final, *ys]


@taken("higher_order.cond")
def cond(c: Call) -> list[Value]:
    """One of two bodies: that which is known, or both, of which the condition picks the results and the gradients."""
    pred, yes, no, operands = (c.any(f"arg{i}", []) for i in range(4))
    if isinstance(pred, bool):
        return c.context.inner(yes if pred else no, operands)
    if not isinstance(pred, Value):
        raise NodeRefusedError("its condition is no tensor")
    known = c._knowledge.array(pred)
    if known is not None:
        return c.context.inner(yes if bool(known.reshape(-1)[0]) else no, operands)
    holds = li.reshape(li.convert(pred, DType.i1), ())
    sides = ((yes, holds), (no, li.logical_not(holds)))
    a, b = (c.context.inner(body, [entering(v, when) for v in operands]) for body, when in sides)
    return [li.select(holds, x, y) for x, y in zip(a, b, strict=True)]


@taken("higher_order.wrap_with_set_grad_enabled")
def without_grad(c: Call) -> list[Value]:
    """A part of a module under torch.no_grad: no gradient goes through its results."""
    enabled, body = c.any("arg0"), c.any("arg1")
    results = c.context.inner(body, [c.any(n) for n in list(c._arguments)[2:]])
    return [r if enabled or not isinstance(r, Value) else li.stop_gradient(r) for r in results]


@taken("higher_order.while_loop", refused="an end that depends on more than a counter and sizes")
def while_loop(c: Call) -> list[Value]:
    """States that go on while a counter is below a size: a scan over the rows that a step reads at its place."""
    test, body, init, more = (c.any(f"arg{i}", []) for i in range(4))
    begin = [as_value(v, DType.i64) if not isinstance(v, Value) else v for v in init]
    step = parameter("step", TensorType((), DType.i64))
    states = [parameter(f"state{k}", v.type) for k, v in enumerate(begin)]
    values = [
        as_value(v, s.dtype) for v, s in zip(c.context.inner(body, [*states, *more], loop=True), states, strict=True)
    ]
    (going,) = c.context.inner(test, [*states, *more])
    if not isinstance(going, Value):
        raise NodeRefusedError(ENDS)
    counters = counting(step, states, values, [c.elements_of(v) for v in begin])
    steps = _steps(going, counters)
    rows = rows_read(values, {step, *states}, counters, steps)

    def cell(state: Values, row: Values, now: Value) -> tuple[Values, Values]:
        env = {step: li.convert(now, DType.i64), **dict(zip(states, state, strict=True))}
        env.update((r.read, x) for r, x in zip(rows, row, strict=True))
        return tuple(clone(values, env)), ()

    xs = tuple(r.first_axis() for r in rows)
    final, _ = li.scan(cell, tuple(begin), xs, length=steps, reverse=[r.backward for r in rows], with_step=True)
    return list(final)


def _steps(going: Value, counters: dict[Value, Counted]) -> Dim:
    """The number of steps of a loop that goes on while counters are below sizes."""
    found: list[Dim] = []
    for part in all_of(going):
        slope, bound = below(part, counters)
        if slope < 1:
            raise NodeRefusedError(ENDS)
        if dims.at_least(bound, 0) is None:
            raise NodeRefusedError(f"whether a counter begins above its end, {bound}, depends on the call")
        found.append(up(bound, slope) if dims.at_least(bound, 0) else 0)
    steps = found[0]
    for other in found[1:]:
        try:
            steps = smaller(steps, other)
        except UndecidedError:
            raise NodeRefusedError("the number of its steps cannot be decided from the sizes") from None
    return steps
