"""`li.scan`: a loop written as an ordinary Python function over values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from lstm_ir.ir import options
from lstm_ir.ir.errors import ArgumentError, DimError, IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant, parameter
from lstm_ir.ir.location import Loc, here
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.types import DimLike, TensorType, shape_of
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values, broadcast_in_dim
from lstm_ir.ops.primitive.size import in_range, steps_that_run
from lstm_ir.ops.primitive.tree import Tree, captured_beside_loops, closed, flatten, unflatten
from lstm_ir.ops.scan.node import STEP, scan_node
from lstm_ir.ops.scan.until import Ending

Fault = Callable[[str], IRError]


def scan(
    cell: Callable[..., Any],
    init: Tree,
    xs: Tree = None,
    consts: Tree = (),
    *,
    length: DimLike | None = None,
    reverse: bool | Sequence[bool] = False,
    count: Any = None,
    lengths: Any = None,
    until: Callable[[Any, Any], Value] | None = None,
    with_step: bool = False,
    name: str | None = None,
) -> Tree:
    """Run `cell` over the leading axis of `xs`: `(carry, ys) = scan(cell, init, xs, consts)`.

        cell(carry, x, *consts) -> (carry, y)         with with_step=True: cell(carry, x, *consts,
        step)

    carry, x and y are values or tuples, lists, dicts of values; `y` is stacked along a new leading
    axis. length: the number of steps, where there are no xs; a call at which it is below 0 is refused.
    reverse: from the last row to the first (y keeps its row); or one flag per leaf of xs,
    then of y. count (i32[] or i64[], or a number): only the first `count` rows exist; rows of y after them are
    zero. lengths (i32[B] or i64[B]): row b of every carry [B, ...] exists for the first lengths[b] rows:
    after them its carries are held and its y is zero; with reverse it starts at its own last row.
    until(carry, y) of a step's results is a flag i1[]: the loop ends after the first step where it holds; or one flag
    per row, i1[B]: of the step where it holds a row keeps carries and y, after it its carries are held and its y is
    zero, and the loop ends when all rows are done. The result is (carry, ys, steps): how many steps ran, i32[] or
    i32[B]; rows of y after them are zero. It goes with count, not with lengths or reverse.
    What the cell reads from outside becomes a constant of the loop. Raises IRError for a carry that
    changes its type, or rows that differ in number.
    """
    loc = here()

    def fault(problem: str) -> IRError:
        return IRError(message("scan", problem, (), loc))

    name = str(getattr(cell, "__name__", "cell")) if name is None else options.text("scan", "name", name)
    with_step = options.flag("scan", "with_step", with_step)
    flat_init, flat_xs = flatten(init), flatten(xs)
    const_trees = tuple(consts) if isinstance(consts, (tuple, list)) else (consts,)
    flat_consts = flatten(const_trees)
    rows = _rows(flat_xs, length, fault)
    if count is not None:
        (count,) = as_values("scan", count)
    step = parameter("step", STEP)
    ps_c = [parameter(f"const{i}", v.type) for i, v in enumerate(flat_consts)]
    ps_h = [parameter(f"carry{i}", v.type) for i, v in enumerate(flat_init)]
    ps_x = [parameter(f"x{i}", v.type.with_shape(v.shape[1:])) for i, v in enumerate(flat_xs)]
    args = [unflatten(init, list(ps_h)), unflatten(xs, list(ps_x)), *unflatten(const_trees, list(ps_c))]
    args += [step] if with_step else []
    _check_arguments(cell, args, len(const_trees), with_step, loc)
    out = cell(*args)
    if not isinstance(out, tuple) or len(out) != 2:
        raise fault("the cell must return (carry, y)")
    new, ys = out
    flat_new, flat_ys = flatten(new), flatten(ys)
    _check_carries(flat_init, flat_new, fault)
    flags = _flags(reverse, len(flat_xs), len(flat_ys), fault)
    if lengths is not None:
        lengths = in_range(lengths if isinstance(lengths, Value) else constant(lengths), 0, rows)
        masked = _Masked(flat_init, lengths, count, rows, flags, fault)
        flat_new, flat_ys = masked.select(step, ps_h, flat_new, flat_ys)
    ending = _ending(until, new, ys, any(flags), lengths, fault)
    more = [] if ending is None else ending.params
    outputs = [*flat_new, *flat_ys] if ending is None else ending.outputs(ps_h, flat_new, flat_ys)
    params = [step, *ps_c, *ps_h, *more, *ps_x]
    outer = captured_beside_loops(outputs, set(params))
    lifted = [parameter(f"outer{i}", v.type) for i, v in enumerate(outer)]
    params = [step, *ps_c, *lifted, *ps_h, *more, *ps_x]
    body = closed(name, params, outputs, dict(zip(outer, lifted, strict=True)))
    first = (*flat_init, *([] if ending is None else ending.init))
    node = scan_node(
        body, (*flat_consts, *outer), first, tuple(flat_xs), length=rows, reverse=flags, count=count,
        until=ending is not None,
    )  # fmt: skip
    loop = Loop(node)
    last, made = unflatten(new, list(loop.finals[: len(flat_new)])), unflatten(ys, list(loop.ys))
    if ending is None:
        return last, made
    return last, made, loop.finals[-1] if ending.by_row else loop.steps


def _check_arguments(cell: Callable[..., Any], args: Sequence[Any], consts: int, with_step: bool, loc: Loc) -> None:
    """ArgumentError for a cell that does not take these arguments, or is no function."""
    if not callable(cell):
        raise options.refuse("scan", "cell", cell, "a function of carry and x")
    try:
        takes = inspect.signature(cell)
    except (TypeError, ValueError):
        return  # a built-in one, which says so itself
    try:
        takes.bind(*args)
    except TypeError:
        words = ["carry", "x", *(f"const{i}" for i in range(consts)), *(["step"] if with_step else [])]
        problem = f"the cell is called with ({', '.join(words)}); it takes {takes}"
        raise ArgumentError(message("scan", problem, (), loc)) from None


def _ending(
    until: Callable[[Any, Any], Value] | None, carry: Tree, y: Tree, reverse: bool, lengths: Value | None, fault: Fault
) -> Ending | None:
    if until is None:
        return None
    if not callable(until):
        raise options.refuse("scan", "until", until, "a function of carry and y")
    if reverse:
        raise fault("until does not go with reverse: the last row is not known before the loop ends")
    if lengths is not None:
        raise fault("until does not go with lengths; let until say that a row is done")
    return Ending(until(carry, y), fault)


def _rows(flat_xs: list[Value], length: DimLike | None, fault: Fault) -> Any:
    if length is not None:
        try:
            return shape_of((length,))[0]
        except DimError as e:
            raise fault(f"length: {e}") from None
    if not flat_xs:
        raise fault("without xs, length is required")
    if flat_xs[0].rank == 0:
        raise fault("a scanned operand has no axes")
    return flat_xs[0].shape[0]


def _check_carries(old: list[Value], new: list[Value], fault: Fault) -> None:
    if len(old) != len(new):
        raise fault(f"the cell returns {len(new)} carries, init has {len(old)}")
    for i, (a, b) in enumerate(zip(old, new, strict=True)):
        if a.type != b.type:
            raise fault(f"carry {i} goes in as {a.type} and comes out as {b.type}; convert or broadcast one of them")


def _flags(reverse: bool | Sequence[bool], n_xs: int, n_ys: int, fault: Fault) -> tuple[bool, ...]:
    if isinstance(reverse, bool):
        return (reverse,) * (n_xs + n_ys)
    flags = options.several("scan", "reverse", reverse)
    if len(flags) != n_xs + n_ys:
        raise fault(f"reverse has {len(flags)} flags for {n_xs} scanned and {n_ys} stacked values")
    return tuple(options.flag("scan", "reverse", f) for f in flags)


class _Masked:
    """Per-row lengths, written into the body as selects on time < lengths."""

    def __init__(
        self, init: list[Value], lengths: Value, count: Value | None, rows: Any, flags: tuple[bool, ...], fault: Fault
    ) -> None:
        if lengths.rank != 1 or not lengths.dtype.is_int:
            raise fault(f"lengths is {lengths.type}, not i32[B]")
        if len(set(flags)) > 1:
            raise fault("lengths needs one direction for all scanned and stacked values")
        for v in init:
            if v.rank == 0 or v.shape[0] != lengths.shape[0]:
                raise fault(f"lengths {lengths.type} needs carries of {lengths.shape[0]} rows, got {v.type}")
        self.lengths, self.count, self.rows, self.reverse = (lengths, count, rows, bool(flags) and flags[0])

    def select(
        self, step: Value, old: list[Value], new: list[Value], ys: list[Value]
    ) -> tuple[list[Value], list[Value]]:
        valid = e.less(e.convert(self._time(step), self.lengths.dtype), self.lengths)
        held = [e.select(_rows_of(valid, n.type), n, o) for n, o in zip(new, old, strict=True)]
        return held, [e.select(_rows_of(valid, y.type), y, constant(0, y.dtype)) for y in ys]

    def _time(self, step: Value) -> Value:
        if not self.reverse:
            return step
        return steps_that_run(self.count, self.rows) - 1 - step


def _rows_of(valid: Value, like: TensorType) -> Value:
    if like.rank == 0 or like.shape[0] != valid.shape[0]:
        problem = f"with lengths, y needs {valid.shape[0]} rows, got {like}"
        raise IRError(message("scan", problem, (), here()))
    return broadcast_in_dim(valid, like.shape, (0,))
