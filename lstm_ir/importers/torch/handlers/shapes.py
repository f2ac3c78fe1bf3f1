"""Ops that rearrange elements: by shape, by order, by slices. Shapes of results are those that PyTorch derived."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers import sizes as s
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import UndecidedError
from lstm_ir.importers.torch.call import Call
from lstm_ir.importers.torch.table import taken
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim, Expr
from lstm_ir.ir.graph import Value
from lstm_ir.ops.primitive.rearrange import split_sizes
from lstm_ir.ops.primitive.window import slice_axis

TO_THE_END = 2**62  # bounds of a slice that PyTorch writes for "to the end" are above


@taken("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.view_copy.default",
       "aten._reshape_copy.default", "aten.reshape_as.default", "aten.view_as.default")  # fmt: skip
def reshape(c: Call) -> Value:
    """The elements in another shape."""
    for name in ("size", "shape", "other"):
        c.any(name)
    return li.reshape(c.tensor("self"), c.shape)


@taken("aten.flatten.using_ints")
def flatten(c: Call) -> Value:
    """Some axes as one."""
    c.integer("start_dim", 0), c.integer("end_dim", -1)
    return li.reshape(c.tensor("self"), c.shape)


@taken("aten.unflatten.int")
def unflatten(c: Call) -> Value:
    """One axis as some."""
    c.integer("dim"), c.sizes("sizes")
    return li.reshape(c.tensor("self"), c.shape)


@taken("aten.permute.default", "aten.permute_copy.default")
def permute(c: Call) -> Value:
    """Axes in another order."""
    x = c.tensor("self")
    return li.transpose(x, [c.axis_of(a, x.rank) for a in c.integers("dims")])


@taken("aten.transpose.int", "aten.swapaxes.default", "aten.swapdims.default")
def transpose(c: Call) -> Value:
    """Two axes exchanged."""
    x = c.tensor("self")
    names = ("dim0", "dim1") if c.given("dim0") else ("axis0", "axis1")
    a, b = (c.axis(n, x.rank) for n in names)
    return li.swapaxes(x, a, b) if x.rank else x


@taken("aten.t.default", "aten.mT.default")
def matrix_transpose(c: Call) -> Value:
    """The last two axes exchanged."""
    x = c.tensor("self")
    return li.swapaxes(x, -2, -1) if x.rank > 1 else x


@taken("aten.numpy_T.default")
def reversed_axes(c: Call) -> Value:
    """All axes in the opposite order."""
    return li.transpose(c.tensor("self"))


@taken("aten.movedim.int", "aten.movedim.intlist")
def movedim(c: Call) -> Value:
    """Axes moved to other places."""
    x = c.tensor("self")
    source = [c.axis_of(a, x.rank) for a in c.integers("source")]
    to = [c.axis_of(a, x.rank) for a in c.integers("destination")]
    left = iter([a for a in range(x.rank) if a not in source])
    by_place = dict(zip(to, source, strict=True))
    return li.transpose(x, [by_place[p] if p in by_place else next(left) for p in range(x.rank)])


@taken("aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze.default", refused="without axes where a size is open")
def squeeze(c: Call) -> Value:
    """Without axes of size 1."""
    x = c.tensor("self")
    axes = c.axes("dim", x.rank)
    if axes is None:
        c.any("dim")
    if axes is None and any(isinstance(d, Expr) for d in x.shape):
        raise NodeRefusedError(f"without axes, {x.type} has a size that may be 1 or not")
    if any(isinstance(x.shape[a], Expr) for a in axes or () if x.rank):
        raise NodeRefusedError(f"{x.type} has an open size that may be 1 or not along the axis that is squeezed")
    return li.reshape(x, c.shape)


@taken("aten.unsqueeze.default")
def unsqueeze(c: Call) -> Value:
    """With a new axis of size 1."""
    x = c.tensor("self")
    return li.expand_dims(x, c.axis_of(c.integer("dim"), x.rank + 1))


@taken("aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default", "aten.expand_copy.default")
def expand(c: Call) -> Value:
    """Repeated along axes of size 1 and new ones."""
    for name in ("size", "implicit", "other"):
        c.any(name)
    return li.broadcast_to(c.tensor("self"), c.shape)


@taken("aten.repeat.default", "aten.tile.default")
def repeat(c: Call) -> Value:
    """The whole tensor so many times along each axis."""
    return li.tile(c.tensor("self"), c.sizes("repeats" if c.given("repeats") else "dims"))


@taken("aten.repeat_interleave.self_int", refused="one number for each element")
def repeat_interleave(c: Call) -> Value:
    """Each element so many times."""
    x, times = c.tensor("self"), c.size("repeats")
    c.any("output_size")
    return li.repeat(x, times, c.axis("dim", x.rank, 0) if c.given("dim") else None)


@taken("aten.cat.default", "aten.concat.default", "aten.concatenate.default")
def cat(c: Call) -> Value:
    """Tensors one after another; an empty list of numbers is none."""
    xs = [v for v in c.tensors("tensors") if v.shape != (0,) or c.type.rank == 1]
    return li.concat([li.convert(v, c.dtype) for v in xs], c.axis("dim", c.type.rank, 0))


@taken("aten.stack.default")
def stack(c: Call) -> Value:
    """Tensors along a new axis."""
    return li.stack([li.convert(v, c.dtype) for v in c.tensors("tensors")], c.axis("dim", c.type.rank, 0))


@taken("aten.hstack.default", "aten.vstack.default")
def joined(c: Call) -> Value:
    """Tensors one after another along the second axis, or the first."""
    xs = c.tensors("tensors")
    axis = 1 if c.name == "aten.hstack.default" and xs[0].rank > 1 else 0
    if axis == 0 and c.name == "aten.vstack.default" and xs[0].rank == 1:
        xs = [li.expand_dims(x, 0) for x in xs]
    return li.concat([li.convert(v, c.dtype) for v in xs], axis)


@taken("aten.split.Tensor", "aten.split.sizes", "aten.split_with_sizes.default", "aten.chunk.default",
       "aten.tensor_split.sections")  # fmt: skip
def split(c: Call) -> list[Value]:
    """Parts along an axis, of the sizes that PyTorch gives them."""
    x = c.tensor("self")
    for name in ("split_size", "split_sizes", "chunks", "sections"):
        c.any(name)
    axis = c.axis("dim", x.rank, 0)
    shapes = [t.shape for t in c.types if t is not None]
    return split_sizes(x, axis, [shape[axis] for shape in shapes])


@taken("aten.unbind.int")
def unbind(c: Call) -> list[Value]:
    """Each row along an axis; so many as a number says."""
    x = c.tensor("self")
    axis = c.axis("dim", x.rank, 0)
    return [at(x, axis, k) for k in range(len(c.types))]


def at(x: Value, axis: int, place: Dim) -> Value:
    """x at one place of an axis, without it."""
    return li.squeeze(slice_axis(x, axis, place, dims.add(place, 1)), axis)


def from_start(place: Dim, size: Dim) -> Dim:
    """A place that may be counted from the end, counted from the start."""
    below = dims.at_least(dims.mul(place, -1), 1)
    return dims.add(size, place) if below else place


@taken("aten.select.int")
def select(c: Call) -> Value:
    """One place of an axis."""
    x = c.tensor("self")
    axis = c.axis("dim", x.rank)
    return at(x, axis, from_start(c.size("index"), x.shape[axis]))


@taken("aten.slice.Tensor", refused="bounds of which the call decides whether they lie inside")
def slice_(c: Call) -> Value:
    """From one place to another of an axis, each `step`-th."""
    x = c.tensor("self")
    axis, step = c.axis("dim", x.rank, 0), c.integer("step", 1)
    start, _ = bounds(c, x.shape[axis])
    parts = c.shape[axis]
    stop = dims.add(start, dims.add(dims.mul(dims.add(parts, -1), step), 1))
    if isinstance(parts, int) and parts == 0:
        stop = start
    return slice_axis(x, axis, start, stop) if step == 1 else _stepped(x, axis, start, stop, step)


def bounds(c: Call, size: Dim) -> tuple[Dim, Dim]:
    """Start and end of a slice, inside the axis."""
    start, end = c.size("start", 0), c.size("end", TO_THE_END)
    return _inside(start, size), size if isinstance(end, int) and end >= TO_THE_END - 1 else _inside(end, size)


def _inside(place: Dim, size: Dim) -> Dim:
    found = from_start(place, size)
    if isinstance(found, int) and isinstance(size, int):
        return min(max(found, 0), size)
    if isinstance(found, int) or dims.at_least(dims.add(size, dims.mul(found, -1)), 0):
        return found
    try:
        return s.smaller(found, size)
    except UndecidedError:
        return found


def _stepped(x: Value, axis: int, start: Dim, stop: Dim, step: int) -> Value:
    low: list[Dim] = [0] * x.rank
    high: list[Dim] = list(x.shape)
    strides = [1] * x.rank
    low[axis], high[axis], strides[axis] = start, stop, step
    return li.slice(x, low, high, strides)


@taken("aten.narrow.default")
def narrow(c: Call) -> Value:
    """So many places of an axis."""
    x = c.tensor("self")
    axis = c.axis("dim", x.rank)
    start = from_start(c.size("start"), x.shape[axis])
    return slice_axis(x, axis, start, dims.add(start, c.size("length")))


@taken("aten.flip.default")
def flip(c: Call) -> Value:
    """Axes backwards."""
    x = c.tensor("self")
    return li.flip(x, [c.axis_of(a, x.rank) for a in c.integers("dims")])


@taken("aten.roll.default")
def roll(c: Call) -> Value:
    """Elements moved along axes; what leaves comes in at the other end."""
    x, shifts = c.tensor("self"), c.integers("shifts")
    axes = [c.axis_of(a, x.rank) for a in c.integers("dims")] if c.any("dims") else None
    return li.roll(
        x, shifts if axes and len(shifts) > 1 else shifts[0], axes if axes is None or len(axes) > 1 else axes[0]
    )


@taken("aten.unfold.default")
def unfold(c: Call) -> Value:
    """Windows of `size` places, each `step` after the one before, as a new last axis."""
    x = c.tensor("self")
    axis, size, step = c.axis("dimension", x.rank), c.integer("size"), c.integer("step")
    count = c.shape[axis]
    parts = []
    for k in range(size):
        stop = dims.add(dims.add(dims.mul(dims.add(count, -1), step), 1), k)
        parts.append(_stepped(x, axis, k, stop, step))
    return li.stack(parts, x.rank)


@taken("aten.slice_scatter.default", refused="steps other than 1")
def slice_scatter(c: Call) -> Value:
    """A tensor with another one in place of a slice."""
    x, part = c.tensor("self"), c.tensor("src")
    axis = c.axis("dim", x.rank, 0)
    if c.integer("step", 1) != 1:
        raise NodeRefusedError("a step other than 1 is not taken")
    start, end = bounds(c, x.shape[axis])
    return _replaced(x, part, axis, start, end)


@taken("aten.select_scatter.default")
def select_scatter(c: Call) -> Value:
    """A tensor with another one at one place of an axis."""
    x = c.tensor("self")
    axis = c.axis("dim", x.rank)
    place = from_start(c.size("index"), x.shape[axis])
    return _replaced(x, li.expand_dims(c.tensor("src"), axis), axis, place, dims.add(place, 1))


def _replaced(x: Value, part: Value, axis: int, start: Dim, end: Dim) -> Value:
    whole = x.shape[axis]
    if (start, end) == (0, whole):
        return li.broadcast_to(part, x.shape)
    shape = (*x.shape[:axis], dims.add(end, dims.mul(start, -1)), *x.shape[axis + 1 :])
    parts = [slice_axis(x, axis, 0, start), li.broadcast_to(part, shape), slice_axis(x, axis, end, whole)]
    return li.concat([p for p in parts if p.shape[axis] != 0], axis)


@taken("aten.diagonal.default", "aten.diagonal_copy.default", refused="an offset; a matrix that is not square")
def diagonal(c: Call) -> Value:
    """The diagonal of two axes, as a new last axis."""
    x = c.tensor("self")
    a, b = c.axis("dim1", x.rank, 0), c.axis("dim2", x.rank, 1)
    if c.integer("offset", 0) or x.shape[a] != x.shape[b]:
        raise NodeRefusedError(f"an offset, or {x.type} that is not square, is not taken")
    others = [k for k in range(x.rank) if k not in (a, b)]
    moved = li.transpose(x, [*others, a, b])
    ones = li.broadcast_to(li.equal(li.eye(x.shape[a]), 1.0), moved.shape)
    return li.sum(li.select(ones, moved, li.zeros(moved.shape, x.dtype)), -1)
