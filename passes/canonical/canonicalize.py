"""`canonicalize`: local rules to a fixed point, so that other passes meet one form of each thing.

The rules are in `shape.py`, `math.py`, `scan.py` and `unread.py`; each keeps every
bit of every result. A graph on which they do not arrive is an error that names the rules still
firing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lstm_ir.ir.graph import Graph
from lstm_ir.ir.target import TargetInfo
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.canonical import math, shape
from lstm_ir.passes.canonical.scan import simplify_loops
from lstm_ir.passes.canonical.unread import without_unread_outputs
from lstm_ir.passes.rewrite import Rules, fixed_point, with_bodies


def _rules() -> Rules:
    table: Rules = {}
    for part in (shape.RULES, math.RULES):
        for op, found in part.items():
            table.setdefault(op, []).extend(found)
    return table


RULES = _rules()


@register
@dataclass(frozen=True)
class Canonicalize(Pass):
    """Inverse transposes cancel, slices join, x*1 is x, loops carry what is read; bodies too."""

    name: ClassVar[str] = "canonicalize"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph in canonical form."""

        def also(g: Graph) -> Graph:
            g = with_bodies(g, lambda body: self.run(body, notes, target))
            return simplify_loops(without_unread_outputs(g, self.name, notes), self.name, notes)

        return fixed_point(graph, RULES, self.name, notes, also)
