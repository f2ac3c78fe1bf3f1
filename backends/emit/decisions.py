"""What decides: the values from which a comparison, a rounding or a place of the largest is made.

IREE computes a cheap value wherever it is read, and LLVM makes one rounding of `a * b + c` (an FMA)
in one place and two in another, where the product has a second reader. Then `v == max(v)` is true
nowhere, ranks are no permutation, and the gradient of `max` goes to no element. So the products that
reach a decision round wherever they stand (`rounding.py`): every copy of a value has the same bits.

A decision's operands are followed to products and sums over more than one element, which are made
once, through loops in both directions: forward rows that a gradient's loop compares are followed
into the loop that saved them. A gradient's loop may also compute anew what another loop computed:
of the copies of a product (`_Numbers`) all round where one does. `sqrt`, `log` and divisors decide
where an extreme was subtracted: `sqrt(max(v) - v)` is NaN below 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from lstm_ir.ir.congruence import node_key
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.loop import Loop

_DECIDES = {
    "compare", "sign", "floor", "ceil", "round_nearest_even", "remainder", "is_finite", "argmax", "atan2",
    "bitcast_convert",
}  # fmt: skip
_EDGES = {"sqrt": 0, "rsqrt": 0, "log": 0, "log_plus_one": 0, "power": 0, "divide": 1}
_EXTREMES = {"reduce_max", "reduce_min", "maximum", "minimum", "clamp", "abs"}
# Elements as they are: a product behind these is still a product for what adds it.
_SAME = {
    "broadcast_in_dim", "reshape", "transpose", "slice", "concatenate", "pad", "reverse", "gather",
    "dynamic_slice", "dynamic_update_slice", "negate", "convert", "select", "in_range",
    *_EXTREMES,
}  # fmt: skip
_ONCE = {"dot_general", "reduce_sum", "scatter_add"}


@dataclass(frozen=True, slots=True)
class Decisions:
    """`nodes`: those that a decision follows from; `products`: those of them that must round."""

    nodes: frozenset[Node] = frozenset()
    products: frozenset[Node] = frozenset()


def decisions(graph: Graph) -> Decisions:
    """What decides in the graph and in the bodies of its loops."""
    whole = _WholeGraph.read(graph)
    walk = _DecisionWalk(whole)
    walk.follow(v for n in whole.nodes for v in _compared(n))
    for n in whole.nodes:
        at = _EDGES.get(n.op.name)
        if at is not None:
            part = _DecisionWalk(whole)
            part.follow([n.inputs[at]])
            if any(m.op.name in _EXTREMES for m in part.nodes()):
                walk.follow([n.inputs[at]])
    return _with_copies(graph, whole, frozenset(walk.nodes()), frozenset(walk.products))


def _with_copies(graph: Graph, whole: _WholeGraph, nodes: frozenset[Node], products: frozenset[Node]) -> Decisions:
    """These, and the nodes in other places that compute the same."""
    if not products:
        return Decisions(nodes, products)
    number = _Numbers(graph).of
    found, rounded = ({number[v] for n in some for v in n.values if v in number} for some in (nodes, products))
    copies = [n for n in whole.nodes if n.inputs and number[n.values[0]] in found]
    return Decisions(nodes | {*copies}, products | {n for n in copies if number[n.values[0]] in rounded})


class _Numbers:
    """`of`: values with one number are equal, or are the rows of equal values in loops of either direction."""

    def __init__(self, graph: Graph) -> None:
        self.of: dict[Value, int] = {}
        self._seen: dict[Hashable, int] = {}
        self._graph(graph)

    def _number(self, v: Value, *key: Hashable) -> None:
        self.of[v] = self._seen.setdefault(key, len(self._seen))

    def _graph(self, graph: Graph) -> None:
        for n in graph.nodes:
            loop = Loop.of(n, until=True)
            if loop is not None:
                self._loop(loop)
            elif n.values[0] not in self.of:
                key: Hashable = n if n.op.name == "parameter" else node_key(n, self.of)
                for k, v in enumerate(n.values):
                    self._number(v, key, k)

    def _loop(self, loop: Loop) -> None:
        """A row of what another loop stacked is what that loop computed."""
        self._number(loop.step, "step")
        for p, x in zip(loop.const_params, loop.consts, strict=True):
            self.of[p] = self.of[x]
        for k, p in enumerate(loop.carry_params):
            self._number(p, loop.node, k)
        for p, x in zip(loop.x_params, loop.xs, strict=True):
            stacks = Loop.of(x.node, until=True)
            if stacks is None:
                self._number(p, "row", self.of[x])
            else:
                self.of[p] = self.of[stacks.body.outputs[x.index]]
        self._graph(loop.body)
        for v in loop.node.values:
            self._number(v, loop.node, v)


def _compared(n: Node) -> tuple[Value, ...]:
    """The operands that a node decides by."""
    whole = n.op.name == "convert" and not n.types[0].dtype.is_float
    return n.inputs if whole or n.op.name in _DECIDES else ()


@dataclass(frozen=True, slots=True)
class _WholeGraph:
    """All nodes, those in loops too; `entering`: what a body's parameters are."""

    nodes: list[Node]
    entering: dict[Value, list[Value]]

    @classmethod
    def read(cls, graph: Graph) -> _WholeGraph:
        nodes: list[Node] = []
        entering: dict[Value, list[Value]] = {}
        todo = [graph]
        while todo:
            g = todo.pop()
            nodes += g.nodes
            for n in g.nodes:
                loop = Loop.of(n, until=True)
                if loop is not None:
                    todo.append(loop.body)
                    for p, v in _enters(loop):
                        entering.setdefault(p, []).append(v)
        return cls(nodes, entering)


class _DecisionWalk:
    """From values backward; a value is visited as such and as something that is added."""

    def __init__(self, whole: _WholeGraph) -> None:
        self.entering = whole.entering
        self.products: set[Node] = set()
        self.seen: set[tuple[Value, bool]] = set()

    def nodes(self) -> Iterator[Node]:
        """The nodes that were followed."""
        return (v.node for v, _ in self.seen)

    def follow(self, values: Iterable[Value]) -> None:
        """Mark the products that `values` follow from."""
        todo = [(v, False) for v in values]
        while todo:
            v, added = todo.pop()
            if not v.dtype.is_float or (v, added) in self.seen:
                continue
            self.seen.add((v, added))
            n, name = v.node, v.node.op.name
            loop = Loop.of(n, until=True)
            if loop is not None:
                todo.append((loop.body.outputs[n.values.index(v)], False))
            elif name == "parameter":
                todo += [(x, False) for x in self.entering.get(v, ())]
            elif not n.inputs or (name in _ONCE and not _single(n)):
                continue
            else:
                todo += [(x, a) for x, a in self._through(n, added)]

    def _through(self, n: Node, added: bool) -> Iterator[tuple[Value, bool]]:
        """The operands of `n`, and whether what they are is added."""
        name = n.op.name
        half = bool(n.types) and n.types[0].dtype.bits == 16
        narrower = name == "convert" and half and n.inputs[0].dtype.is_float
        if narrower or (half and name not in _SAME):
            self.products.add(n)  # IREE may leave out the rounding to fewer bits
        if name in ("add", "subtract", "cumsum"):
            inner = True
        elif name in _SAME or name == "reduce_sum":
            inner = added
        elif name in ("multiply", "dot_general"):
            inner = False
            if added:
                self.products.add(n)
        elif name in ("divide", "sqrt"):
            inner = False
        else:  # functions are formulas with sums and products inside
            self.products.add(n)
            inner = True
        return ((x, inner) for x in n.inputs)


def _single(n: Node) -> bool:
    """A sum of one term: elementwise, for IREE."""
    x = n.inputs[0]
    if n.op.name == "reduce_sum":
        return all(x.shape[d] == 1 for d in n.attrs["dimensions"])
    if n.op.name == "dot_general":
        return all(x.shape[d] == 1 for d in n.attrs["lhs_contracting_dimensions"])
    return False


def _enters(loop: Loop) -> Iterator[tuple[Value, Value]]:
    """The body's parameters, each with what it is: an operand, or what the body gave before."""
    yield from loop.operands()
    yield from zip(loop.carry_params, loop.next, strict=True)
