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
    "a node has the time of its whole dispatch", "1 of 3: three equal nodes share the time of all",
    "without colour: no dispatch names it",
)  # fmt: skip

Place = tuple[str, int, str]
"""File, line and op of a node that a dispatch computes."""


Timed = tuple[Sequence[Place], int, float]
"""Of one dispatch: what it computes, at how many places of the module it is called, the seconds of all its calls."""


def coloured(graph: Graph, rows: Iterable[Timed], whole: float) -> dict[Node, Coloured]:
    """The nodes of the graph and its bodies that the rows name, each with the seconds of all that compute it.

    Equal layers are one dispatch that is called for each, and layers that a loop of the user's makes have one line:
    nodes among which the calls cannot be told apart share the time evenly, and say so.
    """
    places = {n: _place(n) for n in every_node(graph)}
    alike = Counter(places.values())
    times: dict[Place, tuple[float, int]] = {}
    for named, calls, s in rows:
        for place in dict.fromkeys(named):
            same = sum(alike[_node_place(p)] for p in dict.fromkeys(named) if p[2] == place[2])
            among = max(1, alike[_node_place(place)], min(calls, same))
            before, most = times.get(place, (0.0, 1))
            times[place] = (before + s / among, max(most, among))
    out = {}
    for n, (file, line, op) in places.items():
        words = ("dot_general", "product") if op == "dot_general" else (op,)
        known = [times[file, line, w] for w in words if (file, line, w) in times]
        if known:
            found, among = sum(s for s, _ in known), max(n for _, n in known)
            share = found / whole if whole > 0 else 0.0
            step = sum(share >= s for s in STEPS)
            several = f", 1 of {among}" if among > 1 else ""
            out[n] = Coloured(step, f"{found * 1e3:.3f} ms, {share:.1%}{several}")
    return out


def _node_place(place: Place) -> Place:
    """The place as nodes have it: a kernel's product is a `dot_general`."""
    file, line, op = place
    return file, line, "dot_general" if op == "product" else op


def _place(n: Node) -> Place:
    return PurePath(n.loc.file).name, n.loc.line, n.op.name
