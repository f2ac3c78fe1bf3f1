"""Which values an integer input may have: what reads it says so, through moves, converts and indices from the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.moves import MOVES
from lstm_ir.ir.signature import Entry


@dataclass(frozen=True)
class Bound:
    """low <= values <= high; `lengths`: they are the steps of each row, so the longest has all."""

    low: Dim | None
    high: Dim | None
    lengths: bool = False


Bounds = Mapping[str, tuple[Bound, ...]]
LAYERS = ("lstm", "gru", "rnn")


def checked(entry: Entry) -> dict[str, tuple[Bound, ...]]:
    """What the checks of a compiled program's calls say, which know less than its graph."""
    out: dict[str, list[Bound]] = {}
    for c in entry.checks:
        out.setdefault(c.input, []).append(Bound(c.low, c.high, c.what.partition(" ")[0] in LAYERS))
    return {name: tuple(found) for name, found in out.items()}


def bounds(graph: Graph) -> dict[str, tuple[Bound, ...]]:
    """By input of integers, all that is known of its values."""
    out: dict[str, tuple[Bound, ...]] = {}
    for name, p in zip(graph.input_names, graph.params, strict=True):
        if p.dtype.is_int:
            found = tuple(dict.fromkeys(_of(graph, {p})))
            if found:
                out[name] = found
    return out


def _of(graph: Graph, sources: Iterable[Value]) -> Iterator[Bound]:
    same = set(sources)  # what holds the elements of the input
    for n in graph.nodes:
        for r in n.ranges:
            v = n.arg(r.operand)
            if isinstance(v, Value) and v in same:
                yield Bound(r.low, r.high, r.operand == "lengths")
        loop = Loop.of(n, until=True)
        if loop is not None:
            inner = [p for p, v in loop.operands() if v in same and p not in loop.carry_params]
            if inner:
                yield from _of(loop.body, inner)
        elif _keeps(n, same):
            same.update(n.values)


def _keeps(n: Node, same: set[Value]) -> bool:
    """Whether every element of the result is one of the input, where that is not below 0."""
    if n.op.name in MOVES or n.op.name == "in_range":
        return any(v in same for v in n.inputs)
    if n.op.name == "gather":  # rows of the input, as where rows are sorted by their lengths
        return n.inputs[0] in same
    if n.op.name == "select":  # i < 0 ? i + n : i, an index that may count from the end
        test, _, kept = n.inputs
        below = test.op == "compare" and test.node.attrs["direction"] == "LT" and splat(test.node.inputs[1]) == 0
        return kept in same and below and test.node.inputs[0] in same
    return False
