"""`fuse-gates`: dots that share their left operand become one wide dot and slices of it.

    x Wi, x Wf, x Wg, x Wo      ->      p = x [Wi Wf Wg Wo]      p[:, 0:H], p[:, H:2H], ...

The right operands must be known before the loop, or before the call: weights, literals, constants
of the loop. What is computed at run time would have to be joined at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from lstm_ir import ops
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node, Value, make, substitute, transform
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.reach import fixed
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ops.primitive.linear import free_axes
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.passes.base import Notes, Pass, register


@register
@dataclass(frozen=True)
class FuseGates(Pass):
    """One product in place of several over the same rows."""

    name: ClassVar[str] = "fuse-gates"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with wide dots."""
        return self._fused(graph, (), notes)

    def _fused(self, graph: Graph, known: Sequence[Value], notes: Notes) -> Graph:
        graph = self._bodies(graph, notes)
        while True:
            sides = _sides(graph, known)
            wide = next((g for s in sides for g in s.groups.values() if len(g) > 1), None)
            if wide is None:
                for s in sides:
                    s.note(notes)
                return graph
            notes.fire(f"{len(wide)} dots into one", wide[0].loc)
            graph = substitute(graph, self._wide(wide))

    def _bodies(self, graph: Graph, notes: Notes) -> Graph:
        def one(n: Node) -> tuple[Value, ...] | None:
            loop = Loop.of(n, until=True)
            if loop is None:
                return None
            body = self._fused(loop.body, loop.const_params, notes)
            if body is loop.body:
                return None
            return make(n.op, *n.args, loc=n.loc, **{**n.attrs, "body": body}).values

        return transform(graph, one)

    def _wide(self, group: list[Node]) -> dict[Value, Value]:
        first = group[0]
        a = first.attrs
        contracting = a["lhs_contracting_dimensions"], a["rhs_contracting_dimensions"]
        batching = a["lhs_batching_dimensions"], a["rhs_batching_dimensions"]
        (axis,) = free_axes(first.inputs[1].rank, batching[1], contracting[1])
        with at(first.loc.through(self.name)):
            weights = ops.concat([n.inputs[1] for n in group], axis)
            wide = ops.dot_general(first.inputs[0], weights, contracting, batching)
        out: dict[Value, Value] = {}
        start: Dim = 0
        for n in group:
            end = dims.add(start, n.types[0].shape[-1])
            with at(n.loc.through(self.name)):
                out[n.values[0]] = slice_axis(wide, wide.rank - 1, start, end)
            start = end
        return out


@dataclass
class Side:
    """Dots over one left operand: those that fit together, and why others do not."""

    groups: dict[tuple[object, ...], list[Node]] = field(default_factory=dict)
    refused: list[tuple[Node, str]] = field(default_factory=list)

    def add(self, n: Node, fixed: bool, in_loop: bool) -> None:
        """One more dot over the same rows."""
        a, rhs = n.attrs, n.inputs[1]
        layout = a["rhs_contracting_dimensions"], a["rhs_batching_dimensions"], rhs.rank
        free = free_axes(rhs.rank, layout[1], layout[0])
        if len(free) != 1:
            self.refused.append((n, f"its right operand has {len(free)} free axes"))
        elif not fixed:
            self.refused.append((n, "its right operand is computed at run time"))
        else:  # a loop's gates are equal blocks of columns: kernels cut nothing else
            width = rhs.shape[free[0]] if in_loop else None
            self.groups.setdefault((*layout, width), []).append(n)

    def note(self, notes: Notes) -> None:
        """Report what shares its left operand with another dot and stays."""
        alone = [g[0] for g in self.groups.values()]
        if len(alone) + len(self.refused) > 1:
            for n in alone[1:]:
                notes.miss("its weights lie in another order or number", n.values[0])
            for n, reason in self.refused:
                notes.miss(reason, n.values[0])


def _sides(graph: Graph, known: Sequence[Value]) -> list[Side]:
    before = fixed(graph, known)
    sides: dict[tuple[object, ...], Side] = {}
    for n in graph.nodes:
        if n.op.name == "dot_general":
            a = n.attrs
            key = (n.inputs[0], a["lhs_contracting_dimensions"], a["lhs_batching_dimensions"])
            sides.setdefault(key, Side()).add(n, n.inputs[1] in before, bool(known))
    return list(sides.values())
