"""`split-carries`: a carry that a step reads part by part is one carry for each part, in the shape it is read in.

    carry [2,B,H] = stack(h, c)      ->      carries h [B,H], c [B,H]

A model that keeps all its state in one tensor is a loop over one carry, whose next value depends on
everything: no layer of it can be told from another. Apart, each part depends on what makes it, alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import ClassVar

from lstm_ir import ops
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node, Value, make
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import Shape
from lstm_ir.ops.primitive.window import slice as slice_op
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.hoist import in_loops
from lstm_ir.passes.loops import new_param, rebuilt

Part = tuple[tuple[Dim, Dim], ...]
"""The first element and the one after the last, on every axis."""


@register
@dataclass(frozen=True)
class SplitCarries(Pass):
    """Carries of which each step reads parts become a carry for each part."""

    name: ClassVar[str] = "split-carries"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with the carries of its loops in parts."""

        def one(loop: Loop) -> dict[Value, Value] | None:
            grids = {p: grid for p, v in zip(loop.carry_params, loop.next, strict=True) if (grid := _grid(loop, p, v))}
            for grid in grids.values():
                several = len(grid.parts) > 1
                notes.fire(f"a carry is {len(grid.parts)}" if several else "a carry without axes of 1", loop.node.loc)
            return _split(loop, grids) if grids else None

        return in_loops(graph, self.name, one)


class _Grid:
    """A carry cut on some axes, and a parameter for each part, in the shape in which the body reads it."""

    def __init__(self, loop: Loop, carry: Value, cuts: Sequence[Sequence[Dim]]) -> None:
        self.parts = _parts(cuts)
        self.counts = [len(c) - 1 for c in cuts]
        read: dict[Part, list[Value]] = {p: [] for p in self.parts}
        for n in loop.body.users.get(carry, ()):
            if len(self.parts) > 1 and n.op.name == "slice":
                read[_part_of(n)].append(n.values[0])
        if len(self.parts) == 1:
            read[self.parts[0]] = [carry]
        self.params: dict[Part, Value] = {}
        self.stands_for: dict[Value, Value] = {}  # values of the body that the parameters are
        for part, values in read.items():
            users = [n for v in values for n in loop.body.users.get(v, ())]
            shape = _read_shape(users, values, loop, _sizes(part))
            p = self.params[part] = new_param("part", carry.type.with_shape(shape))
            given = values if shape == _sizes(part) else [n.values[0] for n in users]
            self.stands_for |= {v: p for v in given if v is not carry}

    @property
    def changes(self) -> bool:
        """Whether there is anything to gain."""
        return len(self.parts) > 1 or any(_sizes(p) != v.shape for p, v in self.params.items())

    def part(self, part: Part) -> Value:
        """A part of the carry, inside."""
        return ops.reshape(self.params[part], _sizes(part))

    def joined(self, values: list[Value]) -> Value:
        """The whole of its parts, given in their order."""
        values = [ops.reshape(v, _sizes(p)) for v, p in zip(values, self.parts, strict=True)]
        for axis in reversed(range(len(self.counts))):
            n = self.counts[axis]
            if n > 1:
                values = [ops.concat(values[i : i + n], axis) for i in range(0, len(values), n)]
        (whole,) = values
        return whole


def _parts(cuts: Sequence[Sequence[Dim]]) -> tuple[Part, ...]:
    return tuple(product(*(tuple(pairwise(c)) for c in cuts)))


def _sizes(part: Part) -> Shape:
    return tuple(hi if lo == 0 else hi - lo for lo, hi in part)  # a cut axis has a number


def _read_shape(users: list[Node], values: list[Value], loop: Loop, shape: Shape) -> Shape:
    """The shape that every user brings a part into by leaving out axes of size 1; its own if they differ."""
    shapes = {n.types[0].shape if n.op.name == "reshape" else shape for n in users}
    if len(shapes) != 1 or any(v in loop.body.outputs for v in values):
        return shape
    (read,) = shapes
    return read if len(read) < len(shape) and _without_ones(read) == _without_ones(shape) else shape


def _without_ones(shape: Shape) -> list[Dim]:
    return [d for d in shape if d != 1]


def _grid(loop: Loop, carry: Value, after: Value) -> _Grid | None:
    """How a carry is cut; None where a step reads more than parts of it, or all of it at once.

    What leads to nothing but its own next value, as a mask that keeps it, may read all of it.
    """
    if carry in loop.body.outputs:
        return None
    read = [n for n in loop.body.users.get(carry, ()) if n.op.name == "slice" and set(n.attrs["strides"]) <= {1}]
    cuts: list[set[Dim]] = [{0, d} for d in carry.shape]
    for n in read:
        for axis, ends in enumerate(_part_of(n)):
            cuts[axis] |= set(ends)
    if any(len(c) > 2 and not all(isinstance(d, int) for d in c) for c in cuts):
        return None
    in_order = [sorted(c) if len(c) > 2 else [0, d] for c, d in zip(cuts, carry.shape, strict=True)]
    parts = _parts(in_order)
    others = [n for n in loop.body.users.get(carry, ()) if n not in read]
    if len(parts) > 1 and not (
        all(_part_of(n) in parts for n in read) and all(_only_for(loop, n, after) for n in others)
    ):
        return None
    grid = _Grid(loop, carry, in_order)
    return grid if grid.changes else None


def _part_of(n: Node) -> Part:
    return tuple(zip(n.attrs["start_indices"], n.attrs["limit_indices"], strict=True))


def _only_for(loop: Loop, n: Node, after: Value) -> bool:
    """Whether a node is elementwise and nothing but `after` is made of it."""
    todo = [n]
    while todo:
        n = todo.pop()
        if Trait.elementwise not in n.op.traits or n.ranges:
            return False
        (v,) = n.values
        if v is not after and v in loop.body.outputs:
            return False
        if v is not after:
            todo += loop.body.users.get(v, ())
        elif loop.body.outputs.count(v) > 1 or loop.body.users.get(v):
            return False
    return True


def _split(loop: Loop, grids: Mapping[Value, _Grid]) -> dict[Value, Value]:
    """Old results -> those of the loop over parts."""
    env = {v: p for grid in grids.values() for v, p in grid.stands_for.items()}
    carries = list(_carries(loop, grids))
    consts = list(zip(loop.consts, loop.const_params, strict=True))
    xs = list(zip(loop.xs, loop.x_params, loop.x_reverse, strict=True))
    ys = list(zip(loop.rows, loop.y_reverse, strict=True))
    node = rebuilt(loop.body.name, loop, consts, carries, xs, ys, env)
    finals = iter(node.values)
    out: dict[Value, Value] = {}
    for old, p in zip(loop.finals, loop.carry_params, strict=True):
        out[old] = grids[p].joined([next(finals) for _ in grids[p].parts]) if p in grids else next(finals)
    return out | dict(zip(loop.ys, finals, strict=True))


def _carries(loop: Loop, grids: Mapping[Value, _Grid]) -> Iterator[tuple[Value, Value, Value]]:
    cutter = _Cutter(grids)
    for first, p, after in zip(loop.init, loop.carry_params, loop.next, strict=True):
        if p not in grids:
            yield first, p, after
            continue
        for part, param in grids[p].params.items():
            yield (
                ops.reshape(_sliced(first, part), param.shape),
                param,
                ops.reshape(cutter.cut(after, part), param.shape),
            )


class _Cutter:
    """Parts of values, taken before what joins or reshapes them where that can be."""

    def __init__(self, grids: Mapping[Value, _Grid]) -> None:
        self.grids = grids
        self.leaves = {v for grid in grids.values() for v in grid.stands_for}
        self.known: dict[tuple[Value, Part], Value] = {}

    def cut(self, v: Value, part: Part) -> Value:
        """A part of a value of the body."""
        if v in self.grids:
            return self.grids[v].part(part)
        if _is_whole(v, part):
            return v
        found = self.known.get((v, part))
        if found is None:
            found = self._before(v.node, part)
            self.known[v, part] = found = _sliced(v, part) if found is None else found
        return found

    def _before(self, n: Node, part: Part) -> Value | None:
        if n.values[0] in self.leaves:
            return None
        if Trait.elementwise in n.op.traits and not n.ranges:
            parts = [self.cut(v, part) for v in n.inputs]
            if any(v.op != "slice" for v in parts):
                return make(n.op, *parts, **n.attrs).values[0]
        if n.op.name == "concatenate" and (one := _of_one(n, part)) is not None:
            return self.cut(*one)
        if n.op.name == "reshape" and (before := _before_reshape(n, part)) is not None:
            return ops.reshape(self.cut(n.inputs[0], before), _sizes(part))
        return None


def _sliced(v: Value, part: Part) -> Value:
    return v if _is_whole(v, part) else slice_op(v, [lo for lo, _ in part], [hi for _, hi in part])


def _of_one(n: Node, part: Part) -> tuple[Value, Part] | None:
    """The operand of a join that the part lies in, and where."""
    axis, start = n.attrs["dimension"], 0
    low, high = part[axis]
    for v in n.inputs:
        size = v.shape[axis]
        if not (isinstance(size, int) and isinstance(low, int) and isinstance(high, int)):
            return None
        if start <= low and high <= start + size:
            return v, (*part[:axis], (low - start, high - start), *part[axis + 1 :])
        start += size
    return None


def _before_reshape(n: Node, part: Part) -> Part | None:
    """The part of the operand, where only axes of size 1 come and go."""
    old, new = n.inputs[0].shape, n.types[0].shape
    if _without_ones(old) != _without_ones(new):
        return None
    wide = iter(p for p, d in zip(part, new, strict=True) if d != 1)
    return tuple((0, 1) if d == 1 else next(wide) for d in old)


def _is_whole(v: Value, part: Part) -> bool:
    return all(lo == 0 and hi == d for (lo, hi), d in zip(part, v.shape, strict=True))
