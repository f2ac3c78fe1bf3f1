"""How long nodes take, as colours: each node has the time of the dispatches that compute it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from lstm_ir.ir.graph import Graph, Node
from lstm_ir.ir.program import every_node
from lstm_ir.view.drawing import Coloured

STEPS = (0.01, 0.05, 0.2, 0.5)
"""Shares of the time from which the next colour counts."""
LEGEND = (
    "under 1 %", "1 to 5 %", "5 to 20 %", "20 to 50 %", "50 % and more of the time",
    "a node has the time of its whole dispatch", "1 of 3: three nodes of one line share the time of all",
    "without colour: no dispatch names it",
)  # fmt: skip

Place = tuple[str, int, str]
"""File, line and op of a node that a dispatch computes."""


def coloured(graph: Graph, rows: Iterable[tuple[Sequence[Place], float]], whole: float) -> dict[Node, Coloured]:
    """The nodes of the graph and its bodies that the rows name, each with the seconds of all that compute it.

    Equal layers that a loop in the user's program makes have one line, and often one dispatch that runs for each of them:
    nodes of one place share its time evenly, and say so.
    """
    seconds: dict[Place, float] = {}
    for places, s in rows:
        for place in dict.fromkeys(places):
            seconds[place] = seconds.get(place, 0.0) + s
    places = {n: _place(n) for n in every_node(graph)}
    alike = Counter(places.values())
    out = {}
    for n, place in places.items():
        file, line, op = place
        words = ("dot_general", "product") if op == "dot_general" else (op,)
        known = [seconds[file, line, w] for w in words if (file, line, w) in seconds]
        if known:
            found = sum(known) / alike[place]
            share = found / whole if whole > 0 else 0.0
            step = sum(share >= s for s in STEPS)
            several = f", 1 of {alike[place]}" if alike[place] > 1 else ""
            out[n] = Coloured(step, f"{found * 1e3:.3f} ms, {share:.1%}{several}")
    return out


def _place(n: Node) -> Place:
    return PurePath(n.loc.file).name, n.loc.line, n.op.name
