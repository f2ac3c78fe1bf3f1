"""Steps of one layer written one after the other, each from the state that the last one gave: one layer over all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lstm_ir.ir import dims
from lstm_ir.ir.congruence import attr_key
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node, Value, make, substitute, topological
from lstm_ir.ir.location import at
from lstm_ir.ops.core import gru, lstm, rnn
from lstm_ir.ops.primitive.rearrange import flip
from lstm_ir.ops.primitive.shape import concat, reshape, transpose
from lstm_ir.ops.primitive.window import slice_axis

LAYERS = {c.op: c for c in (lstm.CELL, gru.CELL, rnn.CELL)}
STATES = {"h0": ("h_n", "y"), "c0": ("c_n",)}  # where a step begins: the results of the step before that it may be
STEPS = 100_000  # nodes of a graph in which steps are looked for


@dataclass(frozen=True)
class StepRow:
    """x of a step as row `at` along an axis of a value."""

    of: Value
    axis: int
    at: int


def rolled(graph: Graph, fired: Callable[[Node, int], None] | None = None) -> Graph:
    """The graph with every chain of steps as one `lstm`, `gru` or `rnn`; the same object where there is none.

    A chain: steps (T = 1, forward) with equal weights, of which each begins with the state that the one before
    gives, and whose x do not depend on one another's results. The state c of a step inside of a chain has no other
    reader. `fired` is told the first step of a chain and how many there are.
    """
    while True:
        new = _first(graph, fired)
        if new is None:
            return graph
        graph = _joined(substitute(graph, new))


def _first(graph: Graph, fired: Callable[[Node, int], None] | None) -> dict[Value, Value] | None:
    nodes = graph.nodes
    steps = [n for n in nodes if _is_step(n)] if len(nodes) <= STEPS else []
    if len(steps) < 2:
        return None
    by_state = {v: n for n in steps for v in n.values}
    after: dict[Node, list[Node]] = {}
    for n in steps:
        begin = n.arg("h0")
        first = by_state.get(_base(begin)) if isinstance(begin, Value) else None
        if first is not None and _follows(n, first):
            after.setdefault(first, []).append(n)
    followers = {m for found in after.values() for m in found}
    for n in steps:
        if n in followers:
            continue
        for chain in _chains(graph, n, after):
            if len(chain) > 1:
                if fired is not None:
                    fired(chain[0], len(chain))
                with at(chain[0].loc):
                    return _layer(graph, chain)
    return None


def _is_step(n: Node) -> bool:
    if n.op.name not in LAYERS or n.attrs["direction"] != "forward" or n.attrs["save"]:
        return False
    if any(n.arg(name) is not None for name in ("lengths", "count") if name in _operands(n)):
        return False
    x = n.arg("x")
    return isinstance(x, Value) and x.shape[1 if n.attrs["layout"] == "batch" else 0] == 1


def _operands(n: Node) -> list[str]:
    return [o.name for o in n.op.operands]


def _base(v: Value) -> Value:
    """What a value is but for axes of size 1."""
    while v.op in ("reshape", "transpose", "broadcast_in_dim"):
        (inner,) = v.node.inputs
        if [d for d in inner.shape if d != 1] != [d for d in v.shape if d != 1]:
            return v
        axes = v.node.attrs.get("permutation", v.node.attrs.get("broadcast_dimensions", ()))
        sizes = inner.shape if v.op == "transpose" else v.shape
        kept = [p for p in axes if sizes[p] != 1]
        if kept != sorted(kept):
            return v
        v = inner
    return v


def _alike(a: Any, b: Any, depth: int = 12) -> bool:
    """Whether two operands are computed alike from the same values."""
    if a is b:
        return True
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(_alike(v, w, depth) for v, w in zip(a, b, strict=True))
    if not isinstance(a, Value) or not isinstance(b, Value) or a.index != b.index or a.type != b.type or not depth:
        return False
    p, q = a.node, b.node
    if p.op is not q.op or p.op.name in ("parameter", "weight") or len(p.args) != len(q.args):
        return False
    if any(isinstance(v, Graph) for v in p.attrs.values()) or _keys(p.attrs) != _keys(q.attrs):
        return False
    return all(_alike(v, w, depth - 1) for v, w in zip(p.args, q.args, strict=True))


def _keys(attrs: Any) -> list[Any]:
    return [(name, attr_key(v)) for name, v in attrs.items()]


def _follows(n: Node, first: Node) -> bool:
    """Whether a step is the same as another one, and begins with its state."""
    if n.op is not first.op or _keys({**n.attrs, "layout": ""}) != _keys({**first.attrs, "layout": ""}):
        return False
    for name in _operands(n):
        a, b = n.arg(name), first.arg(name)
        if name == "x":
            continue
        if name in STATES:
            if not isinstance(a, Value) or _base(a) not in [first.result(r) for r in STATES[name]]:
                return False
        elif not _alike(a, b):
            return False
    return True


def _chains(graph: Graph, first: Node, after: dict[Node, list[Node]]) -> Iterator[list[Node]]:
    """Chains from a step on: a new one begins where x depends on the one before, or c is read by others."""
    chain, behind = [first], {first}
    while True:
        last = chain[-1]
        following = after.get(last, [])
        if len(following) != 1:
            yield chain
            return
        n = following[0]
        x = n.arg("x")
        assert isinstance(x, Value)
        if _read_elsewhere(graph, last, n) or _depends(x, behind):
            yield chain
            chain, behind = [], set()
        chain.append(n)
        behind.add(n)


def _read_elsewhere(graph: Graph, step: Node, following: Node) -> bool:
    """Whether c of a step has a reader besides the step that follows."""
    c = step.result("c_n") if step.op.name == "lstm" else None
    return isinstance(c, Value) and _has_reader(graph, c, following)


def _has_reader(graph: Graph, state: Value, following: Node) -> bool:
    """Whether a state is read by anything but the step that begins with it, of which it may be x too."""
    todo = [state]
    while todo:
        v = todo.pop()
        if v in graph.outputs:
            return True
        for u in graph.users.get(v, ()):
            if u is following:
                if any(following.arg(name) is v for name in _operands(u) if name not in STATES):
                    return True
                continue
            if u.op.name not in ("reshape", "transpose", "broadcast_in_dim") or _base(u.values[0]) is not state:
                return True
            todo += u.values
    return False


def _depends(x: Value, steps: set[Node]) -> bool:
    """Whether x is computed from results of these steps."""
    return any(n in steps for n in topological([x.node]))


def _layer(graph: Graph, chain: Sequence[Node]) -> dict[Value, Value]:
    """What stands for the results of each step."""
    first, last = chain[0], chain[-1]
    x, read = _rows(chain), set(graph.outputs) | set(graph.users)
    given = {**{name: first.arg(name) for name in _operands(first)}, "x": x}
    node = make(first.op, *given.values(), **{**first.attrs, "layout": "time"})
    y = node.result("y")
    assert isinstance(y, Value)
    new: dict[Value, Value] = {}
    for k, n in enumerate(chain):
        row = slice_axis(y, 0, k, k + 1)
        for v in (n.result("y"), n.result("h_n")):
            if isinstance(v, Value) and v in read and (n is last or _has_reader(graph, v, chain[k + 1])):
                new[v] = reshape(row, v.shape)
    if all(v in last.values for v in new):  # no row before the last one is read
        new |= {v: reshape(node.values[1], v.shape) for v in new}
    c, now = (n.result("c_n") if first.op.name == "lstm" else None for n in (last, node))
    if isinstance(c, Value) and isinstance(now, Value):
        new[c] = now
    return new


def _rows(chain: Sequence[Node]) -> Value:
    """x of all steps, [K,B,I]: rows of one value where they are that, else joined."""
    xs = [n.arg("x") for n in chain]
    values = [v for v in xs if isinstance(v, Value)]
    shape = [d for k, d in enumerate(values[0].shape) if k != (1 if chain[0].attrs["layout"] == "batch" else 0)]
    rows = [_row(v) for v in values]
    at_ = [r.at for r in rows if r is not None]
    if len(at_) == len(rows) and len({(r.of, r.axis) for r in rows if r is not None}) == 1:
        step = at_[1] - at_[0]
        row = rows[0]
        if row is not None and step in (1, -1) and all(b - a == step for a, b in pairwise(at_)):
            part = slice_axis(row.of, row.axis, min(at_), max(at_) + 1)
            order = [row.axis, *(k for k in range(part.rank) if k != row.axis)]
            part = reshape(transpose(part, order), (len(at_), *shape))
            return part if step == 1 else flip(part, 0)
    return concat([reshape(v, (1, *shape)) for v in values], 0)


def _row(v: Value) -> StepRow | None:
    """x of a step as a row of a value with several."""
    v = _base(v)
    if v.op != "slice" or any(s != 1 for s in v.node.attrs["strides"]):
        return None
    (of,) = v.node.inputs
    start, limit = v.node.attrs["start_indices"], v.node.attrs["limit_indices"]
    cut = [k for k in range(of.rank) if (start[k], limit[k]) != (0, of.shape[k])]
    if len(cut) != 1 or not isinstance(start[cut[0]], int) or v.shape[cut[0]] != 1:
        return None
    return StepRow(of, cut[0], start[cut[0]])


def _joined(graph: Graph) -> Graph:
    """The graph with joins of all rows of one value, in order, as that value."""
    new: dict[Value, Value] = {}
    for n in graph.nodes:
        if n.op.name == "concatenate":
            whole = _whole(n)
            if whole is not None:
                new[n.values[0]] = whole
    return substitute(graph, new) if new else graph


def _whole(n: Node) -> Value | None:
    d, parts = n.attrs["dimension"], n.inputs
    rows = [_row(v) if v.shape[d] == 1 else None for v in parts]
    if rows[0] is None or len(rows) < 2:
        return None
    of, axis = rows[0].of, rows[0].axis
    if of.shape[axis] != len(rows) or any(r != StepRow(of, axis, k) for k, r in enumerate(rows)):
        return None
    rest = [k for k in range(of.rank) if k != axis]
    before = dims.product(parts[0].shape[:d])
    for p in range(len(rest) + 1):
        lead: Dim = dims.product(tuple(of.shape[k] for k in rest[:p]))
        if lead == before:
            with at(n.loc):
                return reshape(transpose(of, [*rest[:p], axis, *rest[p:]]), n.values[0].shape)
    return None
