"""Subgraphs: If with a condition that is known, and Scan."""

from __future__ import annotations

from collections.abc import Sequence

from lstm_ir import ops as li
from lstm_ir.importers.naming import tensor
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.operands import Result
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import SizeArray
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

BODIES = (1, 11, 13, 16, 19, 21, 23, 24, 25)


@taken("If", *BODIES, refused="a condition that only a call knows")
def if_(c: Call) -> list[Result]:
    """The branch that the condition names."""
    need_condition(c.raw(0))
    known = c.known(0)
    if known is None:
        raise c.unknown(0, "its condition")
    if known.size != 1:
        raise NodeRefusedError(f"its condition has {known.size} elements")
    then, other = c.graph("then_branch"), c.graph("else_branch")
    return c.inner(then if bool(known.reshape(-1)[0]) else other, ())


def need_condition(v: Value | SizeArray) -> None:
    """Refuse a condition that is no boolean, as the specification does."""
    if v.dtype is not DType.i1:
        raise NodeRefusedError(f"its condition is of {v.dtype}, not a boolean")


def given(result: Result) -> Value:
    """A result of a body as a tensor."""
    if result is None:
        raise NodeRefusedError("a result of its body is absent")
    if not isinstance(result, Value | SizeArray):
        raise NodeRefusedError("a result of its body is a sequence")
    return tensor(result)


@taken("Scan", 8, 9, 11, *BODIES[3:])
def scan(c: Call) -> list[Result]:
    """States carried over the rows of the last `num_scan_inputs` operands; until operator set 8 for each of a batch."""
    if c.opset < 9:
        return _of_each_row(c)
    body, count = c.graph("body"), c.integer("num_scan_inputs")
    values = c.values()
    if not 1 <= count <= len(values):
        raise NodeRefusedError(f"num_scan_inputs is {count} of {len(values)} operands")
    init, xs = values[:-count], values[-count:]
    outputs = len(c.outputs) - len(init)
    if outputs < 0:
        raise NodeRefusedError(f"{len(c.outputs)} results for {len(init)} states")
    axes = _list(c, "scan_input_axes", count)
    rows = [_moved(x, c.axis_of(a, x.rank), 0) for x, a in zip(xs, axes, strict=True)]
    for x in rows[1:]:
        c.agree("the numbers of steps", rows[0].shape[0], x.shape[0])
    flags = [*_list(c, "scan_input_directions", count), *_list(c, "scan_output_directions", outputs)]

    def cell(state: tuple[Value, ...], row: tuple[Value, ...]) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        results = tuple(map(given, c.inner(body, [*state, *row])))
        if len(results) != len(init) + outputs:
            raise NodeRefusedError(f"its body has {len(results)} results, the node {len(c.outputs)}")
        return results[: len(init)], results[len(init) :]

    final, ys = li.scan(cell, tuple(init), tuple(rows), reverse=[bool(f) for f in flags])
    places = _list(c, "scan_output_axes", outputs)
    return [*final, *(_moved(y, 0, c.axis_of(a, y.rank)) for y, a in zip(ys, places, strict=True))]


def _list(c: Call, name: str, count: int) -> Sequence[int]:
    found = c.integers(name, (0,) * count)
    if len(found) != count:
        raise NodeRefusedError(f"{name} has {len(found)} numbers, not {count}")
    return found


def _moved(x: Value, axis: int, to: int) -> Value:
    order = [a for a in range(x.rank) if a != axis]
    order.insert(to, axis)
    return li.transpose(x, order)


def _of_each_row(c: Call) -> list[Result]:
    """Scan of operator set 8: lengths [B], states [B,...] and operands [B,T,...], one row of B after another."""
    body, count = c.graph("body"), c.integer("num_scan_inputs")
    values = c.values(1)
    if not 1 <= count <= len(values):
        raise NodeRefusedError(f"num_scan_inputs is {count} of {len(values)} operands")
    init, xs = values[:-count], values[-count:]
    if any(v.rank < 1 for v in init) or any(x.rank < 2 for x in xs):
        raise NodeRefusedError("a state has no axis of rows, or a scanned operand no axis of steps")
    B, T = xs[0].shape[:2]
    for v in (*init, *xs):
        c.agree("the numbers of rows", B, v.shape[0])
    for x in xs:
        c.agree("the numbers of steps", T, x.shape[1])
    lengths = c.maybe(0)
    if lengths is not None:
        c.agree("rows and lengths", B, lengths.shape[0] if lengths.rank == 1 else -1)
        if len(set(_list(c, "directions", count))) > 1 or any(_list(c, "directions", count)):
            raise NodeRefusedError("rows backwards with lengths are not taken")
        lengths = li.in_range(lengths, 0, T)
    flags = [bool(f) for f in _list(c, "directions", count)]
    outputs = len(c.outputs) - len(init)

    def one(_: tuple[()], row: tuple[tuple[Value, ...], ...]) -> tuple[tuple[()], tuple[Value, ...]]:
        def cell(state: tuple[Value, ...], at: tuple[Value, ...]) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
            results = tuple(map(given, c.inner(body, [*state, *at])))
            if len(results) != len(c.outputs):
                raise NodeRefusedError(f"its body has {len(results)} results, the node {len(c.outputs)}")
            return results[: len(init)], results[len(init) :]

        states, steps, *rest = row
        n = li.convert(rest[0][0], DType.i32) if rest else None
        final, ys = li.scan(cell, states, steps, reverse=[*flags, *[False] * outputs], count=n)
        return (), (*final, *ys)

    if outputs < 0:
        raise NodeRefusedError(f"{len(c.outputs)} results for {len(init)} states")
    rows = (tuple(init), tuple(xs), *(((lengths,),) if lengths is not None else ()))
    _, found = li.scan(one, (), rows)
    return list(found)
