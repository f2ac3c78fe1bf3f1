"""`li.scan`: a loop written as an ordinary Python function over values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lstm_ir.ir import options
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Graph, Value, settled, topological
from lstm_ir.ir.leaf import constant, parameter
from lstm_ir.ir.location import here
from lstm_ir.ir.pullback import rebuilt
from lstm_ir.ir.types import DimLike, DType, TensorType, shape_of
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.size import in_range, size
from lstm_ir.ops.scan.node import STEP, scan_node

Tree = Any  # a value, None, or tuples, lists and dicts of trees
Fault = Callable[[str], IRError]


def flatten(tree: Tree, out: list[Value] | None = None) -> list[Value]:
    """The values of a tree, in order."""
    out = [] if out is None else out
    if isinstance(tree, Value):
        out.append(settled(tree))
    elif isinstance(tree, dict):
        for k in tree:
            flatten(tree[k], out)
    elif isinstance(tree, (tuple, list)):
        for t in tree:
            flatten(t, out)
    elif tree is not None:
        out.append(constant(tree))
    return out


def unflatten(tree: Tree, values: list[Value]) -> Tree:
    """The tree again, over other values; takes them from the front of `values`."""
    if isinstance(tree, dict):
        return {k: unflatten(t, values) for k, t in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(unflatten(t, values) for t in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(unflatten(t, values) for t in tree)
    return None if tree is None else values.pop(0)


def scan(
    cell: Callable[..., Any],
    init: Tree,
    xs: Tree = None,
    consts: Tree = (),
    *,
    length: DimLike | None = None,
    reverse: bool | Sequence[bool] = False,
    count: Value | None = None,
    lengths: Value | None = None,
    with_step: bool = False,
    name: str | None = None,
) -> tuple[Tree, Tree]:
    """Run `cell` over the leading axis of `xs`: `(carry, ys) = scan(cell, init, xs, consts)`.

        cell(carry, x, *consts) -> (carry, y)         with with_step=True: cell(carry, x, *consts,
        step)

    carry, x and y are values or tuples, lists, dicts of values; `y` is stacked along a new leading
    axis. reverse: from the last row to the first (y keeps its row); or one flag per leaf of xs,
    then of y. count (i32[] or i64[]): only the first `count` rows exist; rows of y after them are
    zero. lengths (i32[B]): row b of every carry [B, ...] exists for the first lengths[b] rows:
    after them its carries are held and its y is zero; with reverse it starts at its own last row.
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
    step = parameter("step", STEP)
    ps_c = [parameter(f"const{i}", v.type) for i, v in enumerate(flat_consts)]
    ps_h = [parameter(f"carry{i}", v.type) for i, v in enumerate(flat_init)]
    ps_x = [parameter(f"x{i}", v.type.with_shape(v.shape[1:])) for i, v in enumerate(flat_xs)]
    args = [unflatten(init, list(ps_h)), unflatten(xs, list(ps_x)), *unflatten(const_trees, list(ps_c))]
    out = cell(*args, step) if with_step else cell(*args)
    if not isinstance(out, tuple) or len(out) != 2:
        raise fault("the cell must return (carry, y)")
    new, ys = out
    flat_new, flat_ys = flatten(new), flatten(ys)
    _check_carries(flat_init, flat_new, fault)
    flags = _flags(reverse, len(flat_xs), len(flat_ys), fault)
    if lengths is not None:
        lengths = in_range(lengths, 0, rows)
        masked = _Masked(flat_init, lengths, count, rows, flags, fault)
        flat_new, flat_ys = masked.select(step, ps_h, flat_new, flat_ys)
    outputs = [*flat_new, *flat_ys]
    params = [step, *ps_c, *ps_h, *ps_x]
    captured = _captured(outputs, set(params))
    lifted = [parameter(f"outer{i}", v.type) for i, v in enumerate(captured)]
    params = [step, *ps_c, *lifted, *ps_h, *ps_x]
    body = _closed(name, params, outputs, dict(zip(captured, lifted, strict=True)))
    node = scan_node(
        body, (*flat_consts, *captured), tuple(flat_init), tuple(flat_xs), length=rows, reverse=flags, count=count
    )
    values = list(node.values)
    return unflatten(new, values[: len(flat_new)]), unflatten(ys, values[len(flat_new) :])


def _rows(flat_xs: list[Value], length: DimLike | None, fault: Fault) -> Any:
    if length is not None:
        return shape_of((length,))[0]
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


def _captured(outputs: list[Value], own: set[Value]) -> list[Value]:
    """Inputs and weights of the surrounding graph that the cell reads."""
    nodes = topological(v.node for v in outputs)
    return [n.values[0] for n in nodes if n.op.name in ("parameter", "weight") and n.values[0] not in own]


def _closed(name: str, params: list[Value], outputs: list[Value], lifted: dict[Value, Value]) -> Graph:
    # Values, not a graph: what is read from a body outside may be called as this one's own rows are.
    return Graph(name if name.isidentifier() else "cell", params, rebuilt(outputs, lifted))


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
        last = size(self.rows) if self.count is None else e.convert(self.count, DType.i32)
        return last - 1 - step


def _rows_of(valid: Value, like: TensorType) -> Value:
    if like.rank == 0 or like.shape[0] != valid.shape[0]:
        problem = f"with lengths, y needs {valid.shape[0]} rows, got {like}"
        raise IRError(message("scan", problem, (), here()))
    return broadcast_in_dim(valid, like.shape, (0,))
