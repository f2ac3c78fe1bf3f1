"""Subgraphs: If with a condition that is known, and the recurrences Loop and Scan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call, RefusedError, Result
from lstm_ir.importers.onnx.interface import tensor
from lstm_ir.importers.onnx.table import taken
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

BODIES = (1, 11, 13, 16, 19, 21, 23, 24, 25)


@taken("If", *BODIES, refused="a condition that only a call knows")
def if_(c: Call) -> list[Result]:
    """The branch that the condition names."""
    known = c.known(0)
    if known is None:
        raise c.unknown(0, "its condition")
    if known.size != 1:
        raise RefusedError(f"its condition has {known.size} elements")
    then, other = c.graph("then_branch"), c.graph("else_branch")
    return c.inner(then if bool(known.reshape(-1)[0]) else other, ())


@taken("Loop", *BODIES, refused="a number of steps, or an end, that only a call knows")
def loop(c: Call) -> list[Result]:
    """A number of steps over states; what each step gives besides them is stacked."""
    body = c.graph("body")
    if not c.has(0):
        raise RefusedError("it has no number of steps")
    steps: Dim = c.dim(0, "the number of steps")
    if isinstance(steps, int):
        steps = max(steps, 0)
    if c.has(1):
        first = c.known(1)
        if first is None:
            raise RefusedError("whether it starts depends on values that only a call knows")
        steps = steps if bool(first.reshape(-1)[0]) else 0
    init = c.values(2)

    def cell(state: tuple[Value, ...], x: None, step: Value) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        # What continues the loop: true, of the steps that are run.
        going, *results = c.inner(body, [li.convert(step, DType.i64), li.constant(np.array(True)), *state])
        if going is None or not _always(c, going):
            raise RefusedError("it ends when a condition says so that only a call knows")
        values = tuple(map(_given, results))
        return values[: len(state)], values[len(state) :]

    final, ys = li.scan(cell, tuple(init), length=steps, with_step=True)
    return [*final, *ys]


def _always(c: Call, going: Result) -> bool:
    array = c.elements_of(going)
    return array is not None and bool(array.size) and all(bool(v) for v in array.flat)


def _given(result: Result) -> Value:
    if result is None:
        raise RefusedError("a result of its body is absent")
    return tensor(result)


@taken("Scan", 9, 11, *BODIES[3:])
def scan(c: Call) -> list[Result]:
    """States carried over the rows of the last `num_scan_inputs` operands."""
    body, count = c.graph("body"), c.integer("num_scan_inputs")
    values = c.values()
    if not 1 <= count <= len(values):
        raise RefusedError(f"num_scan_inputs is {count} of {len(values)} operands")
    init, xs = values[:-count], values[-count:]
    outputs = len(c.outputs) - len(init)
    if outputs < 0:
        raise RefusedError(f"{len(c.outputs)} results for {len(init)} states")
    axes = _list(c, "scan_input_axes", count)
    rows = [_moved(x, c.axis_of(a, x.rank), 0) for x, a in zip(xs, axes, strict=True)]
    for x in rows[1:]:
        c.agree("the numbers of steps", rows[0].shape[0], x.shape[0])
    flags = [*_list(c, "scan_input_directions", count), *_list(c, "scan_output_directions", outputs)]

    def cell(state: tuple[Value, ...], row: tuple[Value, ...]) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        results = tuple(map(_given, c.inner(body, [*state, *row])))
        if len(results) != len(init) + outputs:
            raise RefusedError(f"its body has {len(results)} results, the node {len(c.outputs)}")
        return results[: len(init)], results[len(init) :]

    final, ys = li.scan(cell, tuple(init), tuple(rows), reverse=[bool(f) for f in flags])
    places = _list(c, "scan_output_axes", outputs)
    return [*final, *(_moved(y, 0, c.axis_of(a, y.rank)) for y, a in zip(ys, places, strict=True))]


def _list(c: Call, name: str, count: int) -> Sequence[int]:
    found = c.integers(name, (0,) * count)
    if len(found) != count:
        raise RefusedError(f"{name} has {len(found)} numbers, not {count}")
    return found


def _moved(x: Value, axis: int, to: int) -> Value:
    order = [a for a in range(x.rank) if a != axis]
    order.insert(to, axis)
    return li.transpose(x, order)
