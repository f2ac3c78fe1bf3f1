"""What of a loop must be a loop: carries that depend on each other in a circle, and what stands between.

A value of the body is *fixed* (made of constants), *before* (of scanned rows and the step's number), or
made of carries. Carries that need each other are a circle; circles at the same place in the order, as two
layers that do not read each other, stay together as one *group*. A value is *lifted*, computed for all
steps at once, where it is no part of a circle and has a product in it or before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.reach import parameters_of
from lstm_ir.ops.scan.axes import BodyAxes
from lstm_ir.passes.lift import liftable
from lstm_ir.passes.row_axes import rows_of

FIXED, BEFORE = -2, -1
PRODUCTS = ("dot_general", "stencil", "stencil_grad", "scan")
"""Ops that cost more than moving their result does."""


@dataclass
class GroupLoop:
    """The loop of one group, in values of the old body."""

    reads: set[Value] = field(default_factory=set)  # its parameters
    rows: list[Value] = field(default_factory=list)  # values that come in as rows
    saved: list[Value] = field(default_factory=list)  # values whose rows are read outside


class Circles:
    """The groups of one loop in order, and what each reads and gives."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.reach = parameters_of(loop.body)
        self.users = loop.body.users
        self.groups = _groups(loop, self.reach)
        self.apart = False
        """Whether results have no rows in common: what is independent becomes loops of its own."""
        if any(v.rank for v in loop.carry_params) or not loop.next:
            self.groups, self.apart = _apart(loop, self.groups, self.reach)
        self.home = _homes(loop, self.groups, self.reach)
        self.moved = self._moved()
        self.lifted: dict[Value, None] = {}
        self._parts = {k: GroupLoop() for k in range(len(self.groups))}
        self._rows: set[Value] = set()
        for v in loop.rows:
            self._need_rows(v)
        for k in reversed(range(len(self.groups))):
            _Inside(self, k).walk()

    @property
    def worth(self) -> bool:
        """Whether there is more than one loop in it, products or rows that need none, or no carry."""
        lifted = self.apart and any(self.home[v] == BEFORE and v.op != "parameter" for v in self.loop.rows)
        return len(self.groups) != 1 or lifted or any(_is_product(v.node, self.home) for v in self.lifted)

    @property
    def keeps_inner_rows(self) -> bool:
        """Whether rows of a loop in the body would be kept for all steps of this one: `remat` spares that memory."""
        kept = (*self.lifted, *(v for part in self._parts.values() for v in (*part.rows, *part.saved)))
        inner = (v for v in kept if v.op == "scan" and v not in self.loop.rows)
        return any(v in Loop(v.node).ys for v in inner)

    @property
    def mixed(self) -> bool:
        """Whether rows go in or come out in both orders."""
        return len(set(self.loop.reverse)) > 1

    @property
    def reverse(self) -> bool:
        """The order of rows, where there is one."""
        return any(self.loop.reverse)

    def part(self, group: int) -> GroupLoop:
        """The loop of a group."""
        return self._parts[group]

    def stays(self, v: Value, group: int) -> bool:
        """Whether the loop of the group computes a value itself."""
        return v not in self.moved and self.home[v] in (group, BEFORE, FIXED)

    def take_row(self, v: Value, group: int) -> None:
        """A loop reads the rows of a value that is computed outside of it."""
        rows = self._parts[group].rows
        if v not in rows:
            rows.append(v)
            self._need_rows(v)

    def _need_rows(self, v: Value) -> None:
        todo = [v]
        while todo:
            v = todo.pop()
            if v in self._rows or self.home[v] == FIXED:
                continue
            self._rows.add(v)
            if v in self.moved or self.home[v] == BEFORE:
                if v.op != "parameter":
                    self.lifted[v] = None
                todo += v.node.inputs
            else:
                self._parts[self.home[v]].saved.append(v)

    def _moved(self) -> set[Value]:
        """Values with a product in them or before them that no loop has to compute, and carries rearranged."""
        inside, moved, made = self._in_circles(), set[Value](), set[Value]()  # made: with a product in them
        for n in self.loop.body.nodes:
            fixed = [self.home[v] == FIXED for v in n.inputs]
            if n.op.name == "parameter" or all(fixed) or n.values[0] in inside or not liftable(n, fixed, self.loop):
                continue
            if self._reads_a_state(n):
                continue
            if _is_product(n, self.home) or any(v in made for v in n.inputs):
                made.update(n.values)
            of_a_loop = self.home[n.values[0]] >= 0
            if n.op.name == "concatenate" and of_a_loop and n.values[0] not in made and self._of_one_loop(n):
                continue  # the loop writes its pieces side by side; outside that is a copy
            rearranged = of_a_loop and Trait.data_movement in n.op.traits
            # A number of all rows is for those scalars alone that come last: else their loop is no other one.
            number = not n.values[0].rank and any(v.rank and self.home[v] >= 0 for v in n.inputs)
            if rearranged or number or n.values[0] in made or any(v in moved for v in n.inputs):
                moved.update(n.values)
        for n in reversed(self.loop.body.nodes):  # what a value of the same loop reads stays in the loop
            for v in n.values:
                if (
                    v in moved
                    and self.home[v] >= 0
                    and any(self._same_loop(v, u, moved) for u in self.users.get(v, ()))
                ):
                    moved.discard(v)
        return moved

    def _of_one_loop(self, n: Node) -> bool:
        """Whether all that a node reads is of one home."""
        return len({self.home[v] for v in n.inputs}) == 1

    def _reads_a_state(self, n: Node) -> bool:
        """Whether it is a product of rows with a carried matrix: outside, that would be kept for all steps."""
        if n.op.name != "dot_general" or any(self.home[v] == FIXED for v in n.inputs):
            return False
        return any(self.home[v] >= 0 and v.rank > n.values[0].rank for v in n.inputs)

    def _same_loop(self, v: Value, user: Node, moved: set[Value]) -> bool:
        return any(self.home[w] == self.home[v] and w not in moved for w in user.values)

    def _in_circles(self) -> set[Value]:
        """Values that carries of their own group are made of."""
        found: set[Value] = set()
        for k, group in enumerate(self.groups):
            todo = [self.loop.next[i] for i in group]
            while todo:
                v = todo.pop()
                if v not in found and self.home[v] == k:
                    found.add(v)
                    todo += v.node.inputs
        return found


class _Inside:
    """What one group's loop computes: from its carries and saved values back to what comes in."""

    def __init__(self, circles: Circles, group: int) -> None:
        self.circles, self.group = circles, group
        self.part = circles.part(group)
        self.seen: set[Value] = set()

    def walk(self) -> None:
        """Fill in what the loop reads, and the rows it needs of others."""
        loop = self.circles.loop
        for v in (*(loop.next[i] for i in self.circles.groups[self.group]), *self.part.saved):
            self._visit(v)

    def _visit(self, v: Value) -> None:
        todo = [v]
        while todo:
            v = todo.pop()
            if v in self.seen:
                continue
            self.seen.add(v)
            if self.circles.stays(v, self.group):
                if v.op == "parameter":
                    self.part.reads.add(v)
                todo += v.node.inputs
            elif self._product_of_rows(v):
                rows = v.op == "dot_general"
                for w in v.node.inputs:
                    if rows and not self.circles.stays(w, self.group):
                        self._take(w)
                    else:
                        todo.append(w)
            else:
                self._take(v)

    def _take(self, v: Value) -> None:
        """Its rows come in, or those of the value that it is a slice of: many slices were many operands."""
        while v.op == "slice" and not self.circles.stays(v.node.inputs[0], self.group):
            v = v.node.inputs[0]
        self.circles.take_row(v, self.group)

    def _product_of_rows(self, v: Value) -> bool:
        """Whether the loop takes the rows that a product with a fixed matrix reads, not the product.

        A kernel's schedule places it, and `hoist-projection` where there are no kernels.
        """
        n = v.node
        if v not in self.circles.moved:
            return False
        if n.op.name == "dot_general":
            return any(self.circles.home[w] == FIXED for w in n.inputs)
        plain = {Trait.elementwise, Trait.data_movement} & n.op.traits
        return bool(plain) and any(self._product_of_rows(w) for w in n.inputs)


def _is_product(n: Node, home: dict[Value, int]) -> bool:
    """Whether all steps at once gain: a product of two values of a step reads as much, and both would be kept."""
    fixed = [home[v] == FIXED for v in n.inputs]
    return n.op.name in PRODUCTS and not all(fixed) and (n.op.name != "dot_general" or any(fixed))


def _groups(loop: Loop, depends: dict[Value, frozenset[Value]]) -> list[list[int]]:
    """Carries by how many circles with products lie before them."""
    import networkx as nx  # heavy: only loops need it

    index = {p: k for k, p in enumerate(loop.carry_params)}
    needs = nx.DiGraph()
    needs.add_nodes_from(index.values())
    needs.add_edges_from((index[p], k) for k, v in enumerate(loop.next) for p in depends[v] if p in index)
    circles = nx.condensation(needs)
    level: dict[int, int] = {}
    for c in nx.topological_sort(circles):
        members = circles.nodes[c]["members"]
        costly = any(_has_product(loop, depends, members))
        level[c] = max((level[p] for p in circles.predecessors(c)), default=0) + costly
    groups: dict[int, list[int]] = {}
    for c, depth in level.items():
        groups.setdefault(max(depth - 1, 0), []).extend(circles.nodes[c]["members"])
    return [sorted(groups[k]) for k in sorted(groups)]


def _apart(loop: Loop, groups: list[list[int]], depends: dict[Value, frozenset[Value]]) -> tuple[list[list[int]], bool]:
    """Scalars that no row is read for come first, those that no row reads come last; carries of different rows that
    nothing joins are apart.
    """
    index = {p: k for k, p in enumerate(loop.carry_params)}
    of = {k: {index[p] for p in depends[v] if p in index} for k, v in enumerate(loop.next)}
    scalars = {k for k, p in enumerate(loop.carry_params) if not p.rank}
    while some := {k for k in scalars if of[k] - scalars}:
        scalars -= some
    late = {k for k, p in enumerate(loop.carry_params) if not p.rank} - scalars
    while some := {p for k in of.keys() - late for p in of[k] & late}:
        late -= some
    out = [sorted(scalars)] if scalars else []
    apart = scalars | late
    wide = [v for k, v in enumerate(loop.body.outputs) if k not in apart]
    alike = not all(v.rank for v in wide) or rows_of(list(dict.fromkeys(wide)), BodyAxes(loop)) is not None
    for group in groups:
        left = [k for k in group if k not in apart]
        out += [left] if alike and left else _by_rows(loop, left, of)
    return out + ([sorted(late)] if late else []), not alike


def _by_rows(loop: Loop, group: list[int], needs: dict[int, set[int]]) -> list[list[int]]:
    """Carries of a group by the rows that they have in common; a part reads those before it."""
    import networkx as nx  # heavy: only loops need it

    graph, axes = nx.DiGraph(), BodyAxes(loop)
    graph.add_nodes_from(group)
    graph.add_edges_from((p, k) for k in group for p in needs[k] if p in group)
    circles = nx.condensation(graph)
    out: list[list[int]] = []
    place: dict[int, int] = {}
    for c in nx.lexicographical_topological_sort(circles, key=lambda c: min(circles.nodes[c]["members"])):
        members = sorted(circles.nodes[c]["members"])
        least = max((place[p] for p in circles.predecessors(c)), default=0)
        fit = (i for i in range(least, len(out)) if rows_of([loop.next[k] for k in (*out[i], *members)], axes))
        place[c] = next(fit, len(out))
        if place[c] == len(out):
            out.append([])
        out[place[c]] = sorted((*out[place[c]], *members))
    return out


def _has_product(loop: Loop, depends: dict[Value, frozenset[Value]], members: set[int]) -> Iterator[bool]:
    """For each node of a circle whether it is a product."""
    carries = {loop.carry_params[k] for k in members}
    todo, seen = [loop.next[k] for k in members], set[Value]()
    while todo:
        v = todo.pop()
        if v not in seen and depends[v] & carries:
            seen.add(v)
            yield v.op in PRODUCTS
            todo += v.node.inputs


def _homes(loop: Loop, groups: list[list[int]], depends: dict[Value, frozenset[Value]]) -> dict[Value, int]:
    """The last group that a value is made of; what cannot be lifted is at home in the first one."""
    group = {loop.carry_params[i]: k for k, members in enumerate(groups) for i in members}
    varying = {loop.step, *loop.x_params}
    home: dict[Value, int] = {}
    for n in loop.body.nodes:
        params = frozenset[Value]().union(*(depends[v] for v in n.values)) if n.values else frozenset[Value]()
        found = max((group[p] for p in params if p in group), default=BEFORE if params & varying else FIXED)
        if found == BEFORE and n.op.name != "parameter":
            inputs = [home[v] for v in n.inputs]
            if max(inputs) >= 0 or not liftable(n, [h == FIXED for h in inputs], loop):
                found = 0
                if not groups:
                    groups.append([])
        home.update(dict.fromkeys(n.values, found))
    return home
