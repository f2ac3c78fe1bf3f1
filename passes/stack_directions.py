"""`stack-directions`: a forward and a reverse layer over one x become one bidirectional layer.

A layer between two reversals in time, reverse(lstm(reverse(x))), counts as a reverse layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lstm_ir import ops
from lstm_ir.ir.congruence import attr_key
from lstm_ir.ir.graph import Arg, Graph, Node, Value, make, substitute, topological, transform
from lstm_ir.ir.location import at
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ops.core.build import RANKS
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.rewrite import with_bodies

LAYERS = ("lstm", "gru", "rnn")
OTHER = {"forward": "reverse", "reverse": "forward"}


@register
@dataclass(frozen=True)
class StackDirections(Pass):
    """Pairs of layers joined on the direction axis; the parts that were results are slices."""

    name: ClassVar[str] = "stack-directions"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with bidirectional layers."""
        graph = with_bodies(graph, lambda g: self.run(g, notes, target))
        graph = self._without_flips(graph, notes)
        missed: set[tuple[Node, Node]] = set()
        while True:
            pair = _pair(graph, notes, missed)
            if pair is None:
                return graph
            notes.fire(f"two {pair[0].op.name} layers into one", pair[0].loc)
            with at(pair[0].loc.through(self.name)):
                graph = substitute(graph, _stacked(*pair))

    def _without_flips(self, graph: Graph, notes: Notes) -> Graph:
        flipped = {n for n in graph.nodes if n.op.name in LAYERS and _between_flips(n, graph)}
        if not flipped:
            return graph
        new: dict[Value, Value] = {}
        for n in flipped:
            notes.fire(f"{n.op.name} between reversals", n.loc)
            with at(n.loc.through(self.name)):
                new |= dict(zip(n.values, _flipped(n), strict=True))
        read = set(graph.outputs) | set(graph.users)
        graph = substitute(graph, {v: w for v, w in new.items() if v in read})
        return transform(graph, _no_double_reverse)


def _no_double_reverse(n: Node) -> Sequence[Value] | None:
    if n.op.name != "reverse" or n.inputs[0].op != "reverse":
        return None
    inner = n.inputs[0].node
    return inner.inputs if inner.attrs["dimensions"] == n.attrs["dimensions"] else None


def _time(n: Node) -> int:
    return 1 if n.attrs["layout"] == "batch" else 0


def _is_flip(n: Node, axis: int) -> bool:
    return n.op.name == "reverse" and n.attrs["dimensions"] == (axis,)


def _between_flips(n: Node, graph: Graph) -> bool:
    axis = _time(n)
    if n.attrs["direction"] not in OTHER or not _is_flip(n.inputs[0].node, axis):
        return False
    if n.arg("lengths") is not None or n.arg("count") is not None:
        return False
    rows = [v for v, k in zip(n.values, _names(n), strict=True) if k not in ("h_n", "c_n")]
    read = [u for v in rows for u in graph.users.get(v, ())]
    return bool(read) and all(_is_flip(u, axis) for u in read) and not set(rows) & set(graph.outputs)


def _names(n: Node) -> list[str]:
    return [k for k, _ in n.results]


def _flipped(n: Node) -> list[Value]:
    args = (n.inputs[0].node.inputs[0], *n.args[1:])
    new = make(n.op, *args, **{**n.attrs, "direction": OTHER[n.attrs["direction"]]})
    return [v if k in ("h_n", "c_n") else ops.reverse(v, _time(n)) for v, k in zip(new.values, _names(n), strict=True)]


def _pair(graph: Graph, notes: Notes, missed: set[tuple[Node, Node]]) -> tuple[Node, Node] | None:
    layers = [n for n in graph.nodes if n.op.name in LAYERS]
    for f in (n for n in layers if n.attrs["direction"] == "forward"):
        for r in (n for n in layers if n.attrs["direction"] == "reverse" and n.op is f.op):
            if not _same_rows(f, r):
                continue
            reason = _difference(f, r)
            if reason is None:
                return f, r
            if (f, r) not in missed:
                missed.add((f, r))
                notes.miss(f"a reverse {f.op.name} over the same x differs: {reason}", r.values[0])
    return None


def _same_rows(f: Node, r: Node) -> bool:
    if f.arg("w_ih") is None or r.arg("w_ih") is None:
        return f.inputs[0].type == r.inputs[0].type and f.arg("w_ih") is None and r.arg("w_ih") is None
    return f.inputs[0] is r.inputs[0]


def _difference(f: Node, r: Node) -> str | None:
    for k, v in f.attrs.items():
        if k not in ("direction", "activations") and attr_key(v) != attr_key(r.attrs[k]):
            return f"{k} is {v} and {r.attrs[k]}"
    if bool(f.attrs["activations"]) != bool(r.attrs["activations"]):
        return "only one gives its activations"
    for spec, a, b in zip(f.op.operands, f.args, r.args, strict=True):
        if (a is None) != (b is None):
            return f"only one has {spec.name}"
        if isinstance(a, Value) and isinstance(b, Value) and spec.name in RANKS and a.type != b.type:
            return f"{spec.name} is {a.type} and {b.type}"
        if spec.name in ("lengths", "count") and a is not b:
            return f"{spec.name} is not one value"
    for one, other in ((f, r), (r, f)):
        if one in topological([v.node for v in other.inputs]):
            return "one reads the other's result"
    return None


def _stacked(f: Node, r: Node) -> dict[Value, Value]:
    args: list[Any] = [_joined(s.name, a, b, f) for s, a, b in zip(f.op.operands, f.args, r.args, strict=True)]
    acts = (*f.attrs["activations"], *r.attrs["activations"])
    both = make(f.op, *args, **{**f.attrs, "direction": "bidirectional", "activations": acts})
    out: dict[Value, Value] = {}
    for k, v, old_f, old_r in zip(_names(f), both.values, f.values, r.values, strict=True):
        axis = 0 if k in ("h_n", "c_n") else 2
        width = old_f.shape[axis]
        out[old_f] = slice_axis(v, axis, 0, width)
        out[old_r] = slice_axis(v, axis, width, v.shape[axis])
    return out


def _joined(name: str, a: Arg, b: Arg, f: Node) -> Arg:
    if not isinstance(a, Value) or not isinstance(b, Value):
        return a
    if name in RANKS:
        return ops.concat([a, b], 0)
    projected = name == "x" and f.arg("w_ih") is None
    return ops.concat([a, b], 2) if projected else a
