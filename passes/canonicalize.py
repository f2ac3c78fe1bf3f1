"""`canonicalize`: local rules to a fixed point, so that other passes meet one form of each thing.

The rules are in `canonical_shape.py`, `canonical_math.py` and `canonical_scan.py`; each keeps every
bit of every result. A graph on which they do not arrive is an error that names the rules still
firing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lstm_ir.graph import Graph
from lstm_ir.passes import canonical_math, canonical_shape
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.canonical_scan import simplify_loops
from lstm_ir.passes.rewrite import Rules, fixed_point, with_bodies
from lstm_ir.target import TargetInfo


def _rules() -> Rules:
    table: Rules = {}
    for part in (canonical_shape.RULES, canonical_math.RULES):
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
            return simplify_loops(g, self.name, notes)

        return fixed_point(graph, RULES, self.name, notes, also)
