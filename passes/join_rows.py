"""`join-rows`: rows that one loop stacks for another one are one tensor, where there are many.

A gradient's loop reads what the loop before it saved: of a cell with three layer norms, 19 tensors.
A kernel's dispatch takes 32, and GPUs fewer words. Rows of one shape are joined along a new axis, in
front, so that every step writes and reads as many bytes as before; behind the rows, where the loop's stand first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from lstm_ir import ops
from lstm_ir.ir.clone import clone
from lstm_ir.ir.graph import Graph, Node, Value, substitute
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import Shape
from lstm_ir.passes.base import KernelPass, Notes, register
from lstm_ir.passes.loops import new_param, rebuilt
from lstm_ir.passes.rewrite import with_bodies
from lstm_ir.passes.tuned import JOINED_ROWS, LOOP_TENSORS

Scanned = tuple[Value, Value, bool]  # outside, inside, reverse


@register
@dataclass(frozen=True)
class JoinRows(KernelPass):
    """Rows saved for other loops alone, joined where a loop has more than `max_tensors` tensors."""

    name: ClassVar[str] = "join-rows"
    max_tensors: int = LOOP_TENSORS

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with fewer tensors between its loops; only kernels need that."""
        if not self.for_kernels(target):
            return graph
        return self._joined(graph, notes)

    def _joined(self, graph: Graph, notes: Notes) -> Graph:
        graph = with_bodies(graph, lambda body: self._joined(body, notes))
        while True:
            found = next(self._groups(graph), None)
            if found is None:
                return graph
            loop, groups = found
            count = sum(map(len, groups))
            notes.fire(f"{count} stacked results are {len(groups)}", loop.node.loc)
            graph = substitute(graph, _replaced(self.name, graph, loop, groups))

    def _groups(self, graph: Graph) -> Iterator[tuple[Loop, list[list[int]]]]:
        for n in graph.nodes:
            loop = Loop.of(n)
            if loop is None:
                continue
            groups = _alike(graph, loop)
            loops = [loop.node, *(u for g in groups for u in graph.users[loop.ys[g[0]]])]
            if groups and max(map(_tensors, loops)) > self.max_tensors:
                yield loop, groups


def _tensors(n: Node) -> int:
    return len(n.inputs) + len(n.values)


def _alike(graph: Graph, loop: Loop) -> list[list[int]]:
    """Numbers of stacked results that the same loops read, from the same end."""
    found: dict[object, list[int]] = {}
    for k, y in enumerate(loop.ys):
        shape = _shape(loop, loop.rows[k].shape)
        users = graph.users.get(y, ())
        readers = [Loop.of(u) for u in users]
        if shape is None or y in graph.outputs or not users:
            continue
        flags = []
        for reader in readers:
            if reader is None or [*reader.node.inputs].count(y) != 1 or y not in reader.xs:
                break
            flags.append((reader.node, reader.x_reverse[reader.xs.index(y)]))
        else:
            key = shape, y.dtype, loop.y_reverse[k], tuple(flags)
            found.setdefault(key, []).append(k)
    parts = [part for ks in found.values() for part in _even(ks)]
    return [p for p in parts if len(p) > 1]


def _even(ks: list[int]) -> Iterator[list[int]]:
    """In parts of about one size, none above JOINED_ROWS."""
    count = -(-len(ks) // JOINED_ROWS)
    for i in range(count):
        yield ks[i * len(ks) // count : (i + 1) * len(ks) // count]


def _shape(loop: Loop, shape: Shape) -> Shape | None:
    """A row's shape as rows and columns; None for another one."""
    if len(shape) == 2:
        return shape
    rows = {v.shape[-2] for v in loop.body.outputs if len(v.shape) == 2}
    return (*shape, 1) if len(shape) == 1 and rows == set(shape) else None


def _place(loop: Loop) -> int:
    """The new axis: a kernel has rows last but one in all results, or first in all."""
    shapes = [v.shape for v in loop.body.outputs if v.rank > 1]
    first, last = {s[0] for s in shapes}, {s[-2] for s in shapes}
    return int(len(first) == 1 < len(last))


def _replaced(name: str, graph: Graph, loop: Loop, groups: Sequence[Sequence[int]]) -> dict[Value, Value]:
    """New values for the results of the loop and of those that read it."""
    joined = {k for g in groups for k in g}
    kept = [k for k in range(len(loop.ys)) if k not in joined]
    place = _place(loop)
    with at(loop.node.loc.through(name)):
        rows = [(loop.rows[k], loop.y_reverse[k]) for k in kept]
        for g in groups:
            shapes = [_shape(loop, loop.rows[k].shape) or () for k in g]
            wide = [ops.reshape(loop.rows[k], (*s[:place], 1, *s[place:])) for k, s in zip(g, shapes, strict=True)]
            rows.append((ops.concat(wide, place), loop.y_reverse[g[0]]))
        xs = list(zip(loop.xs, loop.x_params, loop.x_reverse, strict=True))
        made = Loop(_again(loop, xs, loop.next, rows))
    new = dict(zip(loop.finals, made.finals, strict=True))
    new |= zip((loop.ys[k] for k in kept), made.ys, strict=False)
    wholes = made.ys[len(kept) :]
    readers = dict.fromkeys(u for g in groups for u in graph.users[loop.ys[g[0]]])
    for node in readers:
        reader = Loop(node)
        with at(node.loc.through(name)):
            again = _reading(loop, reader, groups, wholes, place)
        new |= zip(node.values, again.values, strict=True)
    read = set(graph.outputs) | set(graph.users)
    return {v: w for v, w in new.items() if v in read}


def _reading(
    loop: Loop, reader: Loop, groups: Sequence[Sequence[int]], wholes: Sequence[Value], place: int
) -> Node:  # fmt: skip
    """A loop that reads rows out of the joined tensors."""
    env = {p: p for p in reader.body.params}
    gone: set[Value] = set()
    more: list[Scanned] = []
    for g, whole in zip(groups, wholes, strict=True):
        if loop.ys[g[0]] not in reader.xs:
            continue
        p = new_param("joined", whole.type.with_shape(whole.shape[1:]))
        for i, k in enumerate(g):
            j = reader.xs.index(loop.ys[k])
            old = reader.x_params[j]
            env[old] = ops.reshape(p[:, i] if place else p[i], old.shape)
            gone.add(reader.xs[j])
        more.append((whole, p, reader.x_reverse[reader.xs.index(loop.ys[g[0]])]))
    kept = [x for x in zip(reader.xs, reader.x_params, reader.x_reverse, strict=True) if x[0] not in gone]
    values = clone([*reader.next, *reader.rows], env)
    nexts, rows = values[: len(reader.next)], values[len(reader.next) :]
    ys = list(zip(rows, reader.y_reverse, strict=True))
    return _again(reader, [*kept, *more], nexts, ys)


def _again(loop: Loop, xs: Sequence[Scanned], nexts: Sequence[Value], ys: Sequence[tuple[Value, bool]]) -> Node:
    """The loop over other rows."""
    consts = list(zip(loop.consts, loop.const_params, strict=True))
    carries = list(zip(loop.init, loop.carry_params, nexts, strict=True))
    return rebuilt(loop.body.name, loop, consts, carries, xs, ys)
