"""Lowering of gather and scatter_add, and of values that must lie in a range.

What an op requires of its values is asserted where the host reads a scalar cheaply and the values
are computed (those of inputs are checked before the call). Everywhere they are also clamped, so
that no value reaches outside a tensor: IREE itself would crash the process.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from iree.compiler import ir

from lstm_ir.backends.emit.arithmetic import Calc, compare
from lstm_ir.backends.emit.emitter import Emitter, lower
from lstm_ir.backends.emit.mlir_types import array_attr, tensor
from lstm_ir.backends.emit.regions import (
    empty,
    generic,
    picked,
    position,
    reduce,
    signed_back,
    signless,
    with_own_strides,
)
from lstm_ir.backends.emit.shapes import reshape, transpose
from lstm_ir.backends.kernels.lowering import lower_table_rows
from lstm_ir.backends.lower.elementwise import compute_type
from lstm_ir.backends.lower.own_memory import own
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.literals import constant_of
from lstm_ir.ir.types import DType, TensorType


@lower("in_range")
def _in_range(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    held, wide = confined(e, n, "operand", x, n.attrs["low"], n.attrs["high"])
    return e.convert(held, wide, n.types[0].dtype)


def confined(e: Emitter, n: Node, operand: str, x: ir.Value, low: Dim, high: Dim) -> tuple[ir.Value, TensorType]:
    """The operand's integers moved into [low, high], at least 32 bits wide; asserted first."""
    found = _asserted(e, n, operand, x, low, high)
    return found.inside(e), found.type


class _Asserted(NamedTuple):
    """Integers of at least 32 bits that were asserted to lie between two others, where that is cheap."""

    value: ir.Value
    type: TensorType
    least: ir.Value
    most: ir.Value

    def inside(self, e: Emitter) -> ir.Value:
        """Moved there."""
        c = Calc(e, self.type)
        return c.op("maximum", c.op("minimum", self.value, self.most), self.least)

    def rows(self, e: Emitter) -> tuple[ir.Value, TensorType]:
        """Moved there, as i32."""
        return e.convert(self.inside(e), self.type, DType.i32), self.type.with_dtype(DType.i32)


def _asserted(e: Emitter, n: Node, operand: str, x: ir.Value, low: Dim, high: Dim) -> _Asserted:
    arg = n.arg(operand)
    assert isinstance(arg, Value)
    t = arg.type
    wide = t if t.dtype.bits >= 32 else t.with_dtype(DType.i32)
    v = e.convert(x, t, wide.dtype)
    least, most = _bound(e, low, wide), _bound(e, high, wide)
    known = arg.op == "parameter" or constant_of(arg) is not None  # see Program.signature
    if e.asserts and not known and not _held(arg, low, high):
        _assert_inside(e, n, operand, v, wide, least, most, f"{low}..{high}{_added(n, operand)}")
    return _Asserted(v, wide, least, most)


def _added(n: Node, operand: str) -> str:
    """What a message says of the operand's values besides their range."""
    return next((r.added for r in n.ranges if r.operand == operand), "")


def _held(v: Value, low: Dim, high: Dim) -> bool:
    """Whether `v` was asserted to lie in the same range where it was made."""
    a = v.node.attrs
    return v.op == "in_range" and (a["low"], a["high"]) == (low, high)


def _bound(e: Emitter, d: Dim, t: TensorType) -> ir.Value:
    if isinstance(d, int):
        info = np.iinfo(t.dtype.numpy)
        return e.full(min(max(d, int(info.min)), int(info.max)), t)
    signed = t.with_dtype(DType.i32 if t.dtype is DType.u32 else t.dtype)
    one = e.scalar(e.size(d), signed.dtype, own=True)
    return signed_back(e, e.broadcast(one, TensorType((), signed.dtype), signed, ()), t)


def _assert_inside(
    e: Emitter, n: Node, operand: str, v: ir.Value, t: TensorType, low: ir.Value, high: ir.Value,
    shown: str,
) -> None:  # fmt: skip
    """One boolean over all elements, read by the host."""
    flags = t.with_dtype(DType.i1)
    above, below = compare(e, "GE", v, low, flags), compare(e, "LE", v, high, flags)
    every = reduce(e, "and", e.hlo("and", [above, below], flags), flags, 1, range(t.rank))
    what = f"{n.op.name}: {operand} has a value outside {shown}\n  at {n.loc}"
    e.make("cf.assert", [picked(e, every, [])], [], {"msg": ir.StringAttr.get(what)})


def _indices(e: Emitter, n: Node, indices: ir.Value) -> _Asserted:
    """Of gather and scatter_add."""
    operand, at = n.inputs[0].type, n.attrs["axis"]
    return _asserted(e, n, "indices", indices, 0, dims.add(operand.shape[at], -1))


@lower("gather")
def _gather(e: Emitter, n: Node, x: ir.Value, indices: ir.Value) -> ir.Value:
    t, to, axis = n.inputs[0].type, n.types[0], n.attrs["axis"]
    found = _indices(e, n, indices)
    rows, kind = found.rows(e)
    if e.has_cpu_kernels:  # which moves i32 itself
        done = lower_table_rows(e, n, x, found.value if found.type.dtype is DType.i32 else rows)
        if done is not None:
            return done
    if not (t.is_static and to.is_static):
        return _gather_dynamic(e, x, t, rows, kind, axis, to)
    count = dims.product(kind.shape)
    flat = reshape(e, rows, kind, (count,))
    picked_type = t.resized(axis, count)
    offsets = [i for i in range(t.rank) if i != axis]
    numbers = (
        f"#stablehlo.gather<offset_dims = {offsets}, collapsed_slice_dims = [{axis}], "
        f"start_index_map = [{axis}], index_vector_dim = 1>"
    )
    sizes = array_attr([1 if i == axis else int(d) for i, d in enumerate(t.shape)])  # type: ignore[arg-type]
    v = e.hlo(
        "gather", [x, flat], picked_type, dimension_numbers=ir.Attribute.parse(numbers),
        slice_sizes=sizes,
    )  # fmt: skip
    return reshape(e, v, picked_type, to.shape)


def _gather_dynamic(
    e: Emitter, x: ir.Value, t: TensorType, rows: ir.Value, kind: TensorType, axis: int,
    to: TensorType,
) -> ir.Value:  # fmt: skip
    """linalg.generic over the result: StableHLO's slice sizes cannot be named.

    Fused with a softmax of them, picked elements of eight bytes are an array on the stack, of any size, in IREE 3.13.
    """
    v, twin = signless(e, x, t)
    v = with_own_strides(e, v, twin)
    result = to.with_dtype(twin.dtype)
    index = ir.IndexType.get()

    def body(args: list[ir.Value]) -> ir.Value:
        row = e.make("arith.index_cast", [args[0]], [index]).result
        before = [position(e, i) for i in range(axis)]
        after = [position(e, i) for i in range(axis + kind.rank, to.rank)]
        return picked(e, v, [*before, row, *after])

    places = [f"d{i}" for i in range(to.rank)]
    maps = [places[axis : axis + kind.rank], places]
    made = signed_back(e, generic(e, [rows], empty(e, result), maps, to.rank, body), to)
    alone = to.dtype.bits == 64 and e.target is not None and e.target.kind == "cpu"
    return e.barrier(made, to) if alone else made


@lower("scatter_add")
def _scatter_add(e: Emitter, n: Node, x: ir.Value, indices: ir.Value, updates: ir.Value) -> ir.Value:
    """Rows lead: IREE takes no other form. Indices were clamped, or it would write outside."""
    t, axis = n.inputs[0].type, n.attrs["axis"]
    if 0 in n.inputs[2].type.shape:  # the compiler divides by it
        return x
    rows, kind = _indices(e, n, indices).rows(e)
    if e.target is not None and not kind.is_static and (n.inputs[1].dtype.bits < 32 or e.is_cuda_or_hip):
        # widened in the scatter's dispatch they are an array on the stack, of any size; on GPUs clamped ones are, too
        rows = e.barrier(rows, kind)
    count = dims.product(kind.shape)
    total = compute_type(t)
    rest = [i for i in range(t.rank) if i != axis]
    moved = total.with_shape([t.shape[axis], *(t.shape[i] for i in rest)])
    flat = total.resized(axis, count)
    v = _front(e, e.convert(x, t, total.dtype), total, axis)
    v = own(e, n, n.inputs[0], v, moved)
    u = e.convert(updates, n.inputs[2].type, total.dtype)
    if total.dtype is not t.dtype and e.target is not None and e.target.kind != "cpu":
        u = e.opaque(u, n.inputs[2].type.with_dtype(total.dtype))  # no scatter for GPUs widens its rows itself
    elif e.target is not None and not flat.is_static:  # fused with a gather they are an array on the stack, of any size
        u = e.barrier(u, n.inputs[2].type.with_dtype(total.dtype))
    u = reshape(e, u, n.inputs[2].type.with_dtype(total.dtype), flat.shape)
    u = _front(e, u, flat, axis)
    at = reshape(e, rows, kind, (count, 1))
    windows = list(range(1, t.rank))
    numbers = (
        f"#stablehlo.scatter<update_window_dims = {windows}, inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
    )
    attrs = {"scatter_dimension_numbers": ir.Attribute.parse(numbers)}
    made = e.make("stablehlo.scatter", [v, at, u], [tensor(moved)], attrs, regions=1)
    scalar = TensorType((), total.dtype)
    block = made.regions[0].blocks.append(tensor(scalar), tensor(scalar), arg_locs=[ir.Location.current] * 2)
    with ir.InsertionPoint(block):
        e.make("stablehlo.return", [e.hlo("add", list(block.arguments), scalar)], [])
    out = _back(e, made.result, moved, axis)
    return e.convert(out, total, t.dtype)


def _front(e: Emitter, v: ir.Value, t: TensorType, axis: int) -> ir.Value:
    """`axis` first, the others in order."""
    order = [axis, *(i for i in range(t.rank) if i != axis)]
    return v if axis == 0 else transpose(e, v, t, order)[0]


def _back(e: Emitter, v: ir.Value, t: TensorType, axis: int) -> ir.Value:
    """The first axis back at `axis`. On a CPU no dispatch does more than that: a reduction that was fused with it
    took 2.5 s to compile."""
    if axis == 0:
        return v
    out, to = transpose(e, v, t, [*range(1, axis + 1), 0, *range(axis + 1, t.rank)])
    return e.barrier(out, to) if e.target is not None and e.target.kind == "cpu" else out
