"""Canonical forms of ops that move data, and of the dots that read what they moved."""

from __future__ import annotations

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.types import Shape
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.linear import dot_general, free_axes
from lstm_ir.ops.primitive.planes import products
from lstm_ir.ops.primitive.shape import concat, reshape, reverse, transpose
from lstm_ir.ops.primitive.stencil import Taps
from lstm_ir.ops.primitive.window import slice as slice_op
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.passes.rewrite import Rules, rule

RULES: Rules = {}


@rule(RULES, "transpose")
def _transpose_of_transpose(n: Node) -> Value | None:
    x, order = n.inputs[0], n.attrs["permutation"]
    if order == tuple(range(len(order))):
        return x
    if x.op != "transpose":
        return None
    inner = x.node.attrs["permutation"]
    return transpose(x.node.inputs[0], tuple(inner[p] for p in order))


@rule(RULES, "transpose")
def _transpose_of_unit_axes(n: Node) -> Value | None:
    """A transpose that leaves the order of all axes but those of size 1 is a reshape."""
    x, order = n.inputs[0], n.attrs["permutation"]
    moved = [p for p in order if x.shape[p] != 1]
    return reshape(x, n.types[0].shape) if moved == sorted(moved) else None


@rule(RULES, "reshape")
def _reshape_of_reshape(n: Node) -> Value | None:
    x = n.inputs[0]
    if x.shape == n.types[0].shape:
        return x
    return reshape(x.node.inputs[0], n.types[0].shape) if x.op == "reshape" else None


@rule(RULES, "broadcast_in_dim")
def _broadcast_of_same(n: Node) -> Value | None:
    x = n.inputs[0]
    return x if x.shape == n.types[0].shape else None


@rule(RULES, "broadcast_in_dim")
def _broadcast_of_broadcast(n: Node) -> Value | None:
    x, places = n.inputs[0], n.attrs["broadcast_dimensions"]
    if x.op != "broadcast_in_dim":
        return None
    inner = tuple(places[d] for d in x.node.attrs["broadcast_dimensions"])
    return broadcast_in_dim(x.node.inputs[0], n.types[0].shape, inner)


@rule(RULES, "broadcast_in_dim")
def _broadcast_of_added_axes(n: Node) -> Value | None:
    """A reshape that only adds axes of size 1 before a broadcast says nothing."""
    x, places = n.inputs[0], n.attrs["broadcast_dimensions"]
    if x.op != "reshape":
        return None
    base = x.node.inputs[0]
    kept = kept_axes(base.shape, x.shape)
    return None if kept is None else broadcast_in_dim(base, n.types[0].shape, tuple(places[k] for k in kept))


def kept_axes(small: Shape, large: Shape) -> list[int] | None:
    """Where the axes of `small` are in `large`, if all other axes of `large` have size 1."""
    out: list[int] = []
    for axis, d in enumerate(large):
        if len(out) < len(small) and small[len(out)] == d:
            out.append(axis)
        elif d != 1:
            return None
    return out if len(out) == len(small) else None


@rule(RULES, "slice")
def _slice_of_all(n: Node) -> Value | None:
    return n.inputs[0] if n.types[0].shape == n.inputs[0].shape and _plain(n) else None


def _plain(n: Node) -> bool:
    return all(s == 1 for s in n.attrs["strides"])


@rule(RULES, "slice")
def _slice_of_slice(n: Node) -> Value | None:
    x = n.inputs[0]
    if x.op != "slice":
        return None
    lows, highs, steps = [], [], []
    for lo, hi, k, base, j in zip(
        n.attrs["start_indices"], n.attrs["limit_indices"], n.attrs["strides"],
        x.node.attrs["start_indices"], x.node.attrs["strides"], strict=True,
    ):  # fmt: skip
        if j != 1 and hi != lo and not (isinstance(lo, int) and isinstance(hi, int)):
            return None
        steps.append(k * j)
        if hi == lo:  # the place of an empty slice, times j, may lie outside x
            lows.append(base)
            highs.append(base)
            continue
        lows.append(dims.add(base, dims.mul(lo, j)))
        highs.append(dims.add(base, dims.add(dims.mul(dims.add(hi, -1), j), 1)))
    return slice_op(x.node.inputs[0], lows, highs, steps)


@rule(RULES, "slice")
def _slice_of_broadcast(n: Node) -> Value | None:
    x = n.inputs[0]
    if x.op != "broadcast_in_dim" or not _plain(n):
        return None
    v, places = x.node.inputs[0], x.node.attrs["broadcast_dimensions"]
    for axis, d in enumerate(places):
        if v.shape[axis] == x.shape[d] and v.shape[axis] != n.types[0].shape[d]:
            v = slice_axis(v, axis, n.attrs["start_indices"][d], n.attrs["limit_indices"][d])
    return broadcast_in_dim(v, n.types[0].shape, places)


@rule(RULES, "slice")
def _slice_of_concatenate(n: Node) -> Value | None:
    """Only what a slice reads of the parts is joined."""
    x = n.inputs[0]
    if x.op != "concatenate":
        return None
    axis = x.node.attrs["dimension"]
    lo, hi = n.attrs["start_indices"][axis], n.attrs["limit_indices"][axis]
    if n.attrs["strides"][axis] != 1:
        return None
    read: list[Value] = []
    at: Dim = 0
    for part in x.node.inputs:
        end = dims.add(at, part.shape[axis])
        first, last = _clip(lo, at, end), _clip(hi, at, end)
        if first is None or last is None:
            return None
        if first != last:
            read.append(slice_axis(part, axis, dims.add(first, dims.mul(at, -1)), dims.add(last, dims.mul(at, -1))))
        at = end
    whole = len(read) == len(x.node.inputs) and dims.add(hi, dims.mul(lo, -1)) == x.shape[axis]
    if not read or whole:
        return None
    lows, highs = list(n.attrs["start_indices"]), list(n.attrs["limit_indices"])
    lows[axis], highs[axis] = 0, dims.add(hi, dims.mul(lo, -1))
    return slice_op(concat(read, axis), lows, highs, n.attrs["strides"])


def _clip(d: Dim, low: Dim, high: Dim) -> Dim | None:
    """d held inside [low, high]; None where the sizes' names do not tell."""
    below, above = _at_most(d, low), _at_most(high, d)
    if below:
        return low
    if above:
        return high
    inside = _at_most(low, d) and _at_most(d, high)
    return d if inside else None


def _at_most(a: Dim, b: Dim) -> bool:
    return dims.at_least(dims.add(b, dims.mul(a, -1)), 0) is True


@rule(RULES, "concatenate")
def _concatenate_of_parts(n: Node) -> Value | None:
    """Nested joins flatten, empty parts go, neighbouring slices of one value join into one."""
    axis = n.attrs["dimension"]
    flat: list[Value] = []
    for v in n.inputs:
        nested = v.op == "concatenate" and v.node.attrs["dimension"] == axis
        flat.extend(v.node.inputs if nested else (v,))
    full = [v for v in flat if v.shape[axis] != 0]
    parts: list[Value] = []
    for v in full:
        joined = _joined(parts[-1], v, axis) if parts else None
        if joined is None:
            parts.append(v)
        else:
            parts[-1] = joined
    if len(parts) == len(n.inputs):
        return None
    return concat(parts, axis) if parts else flat[0]


def _joined(a: Value, b: Value, axis: int) -> Value | None:
    """One slice in place of two that follow each other."""
    if a.op != "slice" or b.op != "slice" or a.node.inputs[0] is not b.node.inputs[0]:
        return None
    if not (_plain(a.node) and _plain(b.node)):
        return None
    (lo, mid), (start, hi) = _ends(a.node), _ends(b.node)
    rest = all(lo[i] == start[i] and mid[i] == hi[i] for i in range(a.rank) if i != axis)
    if not rest or mid[axis] != start[axis]:
        return None
    return slice_op(a.node.inputs[0], lo, hi)


def _ends(n: Node) -> tuple[Shape, Shape]:
    return n.attrs["start_indices"], n.attrs["limit_indices"]


@rule(RULES, "concatenate")
def _concatenate_of_transposes(n: Node) -> Value | None:
    orders = {v.node.attrs["permutation"] if v.op == "transpose" else None for v in n.inputs}
    order = orders.pop()
    if order is None or orders:
        return None
    joined = concat([v.node.inputs[0] for v in n.inputs], order[n.attrs["dimension"]])
    return transpose(joined, order)


@rule(RULES, "reverse")
def _reverse_of_reverse(n: Node) -> Value | None:
    x, axes = n.inputs[0], set(n.attrs["dimensions"])
    left = {a for a in axes if x.shape[a] != 1}
    if x.op == "reverse":
        return reverse(x.node.inputs[0], sorted(left ^ set(x.node.attrs["dimensions"])))
    return None if left == axes else reverse(x, sorted(left))


@rule(RULES, "pad")
def _pad_of_nothing(n: Node) -> Value | None:
    a = n.attrs
    edges = (*a["edge_padding_low"], *a["edge_padding_high"], *a["interior_padding"])
    return n.inputs[0] if all(e == 0 for e in edges) else None


@rule(RULES, "dot_general")
def _dot_of_transpose(n: Node) -> Value | None:
    """A dot reads its operands in any order of axes, if the free ones keep theirs."""
    sides = [_read(n, side) for side in ("lhs", "rhs")]
    if all(v is n.inputs[i] for i, (v, _, _) in enumerate(sides)):
        return None
    (a, ac, ab), (b, bc, bb) = sides
    return dot_general(a, b, (ac, bc), (ab, bb))


def _read(n: Node, side: str) -> tuple[Value, tuple[int, ...], tuple[int, ...]]:
    """The operand before its transpose, with its contracting and batching axes."""
    v = n.inputs[0 if side == "lhs" else 1]
    contracting = n.attrs[f"{side}_contracting_dimensions"]
    batching = n.attrs[f"{side}_batching_dimensions"]
    if v.op != "transpose":
        return v, contracting, batching
    order = v.node.attrs["permutation"]
    free = [order[a] for a in free_axes(v.rank, batching, contracting)]
    if free != sorted(free):
        return v, contracting, batching
    return v.node.inputs[0], tuple(order[a] for a in contracting), tuple(order[a] for a in batching)


@rule(RULES, "dot_general")
def _dot_over_one_batch(n: Node) -> Value | None:
    """A batch axis of size 1 makes a batched product of what is a plain one."""
    a, b = n.inputs
    ab, bb = n.attrs["lhs_batching_dimensions"], n.attrs["rhs_batching_dimensions"]
    gone = [(i, j) for i, j in zip(ab, bb, strict=True) if a.shape[i] == 1]
    if not gone:
        return None
    left, right = [i for i, _ in gone], [j for _, j in gone]
    contracting = (
        _without(n.attrs["lhs_contracting_dimensions"], left),
        _without(n.attrs["rhs_contracting_dimensions"], right),
    )
    batching = _without(ab, left), _without(bb, right)
    small = dot_general(_squeezed(a, left), _squeezed(b, right), contracting, batching)
    return reshape(small, n.types[0].shape)


def _without(axes: tuple[int, ...], gone: list[int]) -> tuple[int, ...]:
    return tuple(i - sum(g < i for g in gone) for i in axes if i not in gone)


def _squeezed(v: Value, gone: list[int]) -> Value:
    return reshape(v, [d for i, d in enumerate(v.shape) if i not in gone])


@rule(RULES, "stencil")
def _stencil_at_one_place(n: Node) -> Value | None:
    """It sums over all that its taps see: a product of rows, which more of the project knows."""
    if n.attrs["height"] != 1 or n.attrs["width"] != 1:
        return None
    lhs, rhs = n.inputs
    return products(lhs, rhs, Taps.of(n.attrs), 1, 1)
