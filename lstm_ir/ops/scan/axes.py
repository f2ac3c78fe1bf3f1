"""Which axes of the values of a loop's body are one axis: of the batch, of channels, of states.

Ops tie axes: those of an elementwise op's operands, but for axes along which an operand is repeated; an axis that is
moved, repeated or summed beside; a carry and its next value. Moves forget that an axis is repeated. An axis is *mixed*
where its elements meet, so that no part of it can be computed alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.reach import unreached
from lstm_ir.ops.primitive.linear import free_axes

Axis = tuple[Value, int]
_OTHERS_STAY = {"reverse": "dimensions", "cumsum": "axis", "argmax": "axis"}


class BodyAxes:
    """The axes of one body, by what they are."""

    def __init__(self, loop: Loop) -> None:
        self.fixed = unreached(loop.body, loop.varying)
        self._of_numbers = set(self.fixed)
        for n in loop.body.nodes:
            if n.inputs and all(v in self._of_numbers or not v.rank for v in n.inputs):
                self._of_numbers.update(n.values)
        self._parent: dict[Axis, Axis] = {}
        self._repeated: set[Axis] = set()  # along which all elements are equal
        self._mixed: list[Axis] = []
        self._of_matrices: list[Axis] = []
        self._batched: list[Axis] = []
        for n in loop.body.nodes:
            if n.inputs:
                self._tie_node(n)
        for p, v in zip(loop.carry_params, loop.next, strict=True):
            self._all(p, v)
        self.mixed = {self.of(*a) for a in self._mixed}
        self.batched = {self.of(*a) for a in self._batched}
        """Along which a product has a matrix for each index."""

    def of(self, v: Value, axis: int) -> Axis:
        """What an axis is, as one that stands for all that are the same."""
        a = (v, axis)
        while (up := self._parent.get(a, a)) != a:
            a = up
        return a

    def matrices(self, axis: Axis) -> int:
        """Axes of matrices of products that are this one."""
        return sum(self.of(*a) == axis for a in self._of_matrices)

    def join(self, a: Axis, b: Axis) -> None:
        """Say that `b` is the axis `a`, of which nothing in the body speaks."""
        self._tie(a, b)

    def _tie(self, a: Axis, b: Axis) -> None:
        first, second = self.of(*a), self.of(*b)
        if first != second:
            self._parent[second] = first

    def _all(self, a: Value, b: Value) -> None:
        for i in range(a.rank):
            self._tie((a, i), (b, i))

    def _mix(self, v: Value, axis: int) -> None:
        if v not in self._of_numbers:  # numbers of all rows, as a random key, mix nothing
            self._mixed.append((v, axis))

    def _tie_node(self, n: Node) -> None:
        name, a = n.op.name, n.attrs
        (x, *_), out = n.inputs, n.values[0]
        if Trait.elementwise in n.op.traits:
            self._elementwise(n.inputs, out)
        elif name == "broadcast_in_dim":
            self._broadcast(x, out, a["broadcast_dimensions"])
        elif name == "transpose":
            for i, p in enumerate(a["permutation"]):
                self._tie((x, p), (out, i))
        elif name == "dot_general":
            self._product(n)
        elif name.startswith("reduce_"):
            self._without(x, out, a["dimensions"])
        elif name in _OTHERS_STAY:
            axes = a[_OTHERS_STAY[name]]
            axes = axes if isinstance(axes, tuple) else (axes,)
            self._without(x, out, axes if name == "argmax" else (), axes)
        elif name == "slice":
            self._but(x, out, [i for i in range(x.rank) if x.shape[i] != out.shape[i]])
        elif name == "pad":
            edges = zip(a["edge_padding_low"], a["edge_padding_high"], a["interior_padding"], strict=True)
            self._but(x, out, [i for i, edge in enumerate(edges) if any(e != 0 for e in edge)])
        elif name == "concatenate":
            for v in n.inputs:
                self._but(v, out, [a["dimension"]])
        elif name == "reshape":
            self._reshape(x, out)
        elif name == "gather":
            self._gather(n)
        elif name == "scan":
            self._loop(Loop(n))
        else:
            for v in (*n.inputs, *n.values):
                for i in range(v.rank):
                    self._mix(v, i)

    def _loop(self, loop: Loop) -> None:
        """A loop in the body: operands and results are what its own body has, some of them with an axis of turns."""
        given = zip((*loop.const_params, *loop.carry_params), (*loop.consts, *loop.init), strict=True)
        turned = zip((*loop.next, *loop.next), (*loop.carry_params, *loop.finals), strict=True)
        for own, v in (*given, *turned):
            self._all(own, v)
        for row, v in zip((*loop.x_params, *loop.rows), (*loop.xs, *loop.ys), strict=True):
            self._mix(v, 0)
            for i in range(row.rank):
                self._tie((row, i), (v, i + 1))
        for n in loop.body.nodes:
            if n.inputs:
                self._tie_node(n)
        for v in loop.stop:
            for i in range(v.rank):
                self._mix(v, i)

    def _broadcast(self, x: Value, out: Value, places: tuple[int, ...]) -> None:
        kept = {d: i for i, d in enumerate(places) if x.shape[i] == out.shape[d]}
        for d, i in kept.items():
            self._tie((x, i), (out, d))
        self._repeated.update((out, d) for d in range(out.rank) if d not in kept)

    def _but(self, x: Value, out: Value, cut: Sequence[int]) -> None:
        """Equal axes, but for those of which a part is taken or made."""
        for i in range(x.rank):
            if i not in cut:
                self._tie((x, i), (out, i))
        for i in cut:
            self._mix(x, i)
            self._mix(out, i)

    def _elementwise(self, inputs: Sequence[Value], out: Value) -> None:
        """An axis along which every operand is repeated is one of the result; other operands say what an axis is."""
        for i in range(out.rank):
            told = [v for v in inputs if v.rank and (v, i) not in self._repeated]
            for v in told:
                self._tie((out, i), (v, i))
            if not told:
                self._repeated.add((out, i))

    def _without(self, x: Value, out: Value, gone: tuple[int, ...], mixed: tuple[int, ...] | None = None) -> None:
        for j, i in enumerate(i for i in range(x.rank) if i not in gone):
            self._tie((x, i), (out, j))
        for i in gone if mixed is None else mixed:
            self._mix(x, i)

    def _product(self, n: Node) -> None:
        sides, at = n.inputs, n.attrs
        batch = at["lhs_batching_dimensions"], at["rhs_batching_dimensions"]
        summed = at["lhs_contracting_dimensions"], at["rhs_contracting_dimensions"]
        out, place = n.values[0], len(batch[0])
        for j, (left, right) in enumerate(zip(*batch, strict=True)):
            self._tie((sides[0], left), (out, j))
            self._tie((sides[1], right), (out, j))
        for left, right in zip(*summed, strict=True):
            self._tie((sides[0], left), (sides[1], right))
            self._mix(sides[0], left)
            self._mix(sides[1], right)
        for v, b, c in zip(sides, batch, summed, strict=True):
            for i in free_axes(v.rank, b, c):
                self._tie((v, i), (out, place))
                place += 1
            if v in self.fixed:
                self._of_matrices += [(v, i) for i in range(v.rank)]
                self._batched += [(v, i) for i in b]

    def _reshape(self, x: Value, out: Value) -> None:
        """Axes that stay beside others of size 1; what is joined or split is mixed."""
        i = j = 0
        while i < x.rank or j < out.rank:
            if i < x.rank and j < out.rank and x.shape[i] == out.shape[j]:
                self._tie((x, i), (out, j))
                i, j = i + 1, j + 1
            elif i < x.rank and x.shape[i] == 1:
                i += 1
            elif j < out.rank and out.shape[j] == 1:
                j += 1
            else:
                i, j = self._joined(x, out, i, j)

    def _joined(self, x: Value, out: Value, i: int, j: int) -> tuple[int, int]:
        """Past a group of axes with as many elements; past all where that is not known."""
        sizes: list[Dim] = [x.shape[i] if i < x.rank else 1, out.shape[j] if j < out.rank else 1]
        a, b = i + 1, j + 1
        while all(isinstance(d, int) for d in sizes) and sizes[0] != sizes[1]:
            low = int(sizes[0]) < int(sizes[1])  # type: ignore[arg-type]
            v, at = (x, a) if low else (out, b)
            if at >= v.rank:
                break
            sizes[0 if low else 1] *= v.shape[at]
            a, b = a + low, b + (not low)
        if sizes[0] != sizes[1]:
            a, b = x.rank, out.rank
        for v, first, last in ((x, i, a), (out, j, b)):
            for k in range(first, min(last, v.rank)):
                self._mix(v, k)
        return a, b

    def _gather(self, n: Node) -> None:
        (table, indices), axis, out = n.inputs, n.attrs["axis"], n.values[0]
        self._mix(table, axis)
        for i in range(indices.rank):
            self._tie((indices, i), (out, axis + i))
        for i in range(table.rank):
            if i != axis:
                self._tie((table, i), (out, i if i < axis else i + indices.rank - 1))
