"""Causality: which axis of every value is time, and what would have to know later frames.

The walk follows the axis of a named size, `steps`, from the inputs to the outputs by one rule per op
(`moves.py`, `windows.py`, `layers.py`). A rule gives the facts of the results, notes what has to be
kept between calls, and notes why a graph cannot be cut into calls. After a note the walk goes on as if
the fault were mended, so all reasons come at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim, Expr
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.opdef import Trait
from lstm_ir.streaming import layers, moves, windows
from lstm_ir.streaming.facts import Fact, Fixed, Latest, Timed, Unknown
from lstm_ir.streaming.findings import Findings
from lstm_ir.streaming.rule import ELEMENTWISE, RULES, CutError, RuleNode

assert all(m.__doc__ for m in (layers, moves, windows))  # importing them registers every rule
_QUIET = ("broadcast_in_dim", "transpose", "reshape", "iota", "constant", "weight")


@dataclass(eq=False)
class Causality(Findings):
    """The analysis of a graph: its findings, and `factor`, of which the inputs state a multiple as their frames."""

    factor: int = 0

    @classmethod
    def of(cls, graph: Graph, steps: str) -> Causality:
        """The analysis of a graph over the size `steps`."""
        made = cls(graph, steps)
        for node in graph.nodes:
            found = made._node(node)
            made.facts.update(zip(node.values, found, strict=True))
        for v in graph.outputs:
            made._output(v)
        return made

    def _node(self, node: Node) -> Sequence[Fact]:
        try:
            if node.op.name == "parameter":
                return [self._input(node)]
            step = RuleNode(self, node)
            if not any(isinstance(f, Timed) for f in step.facts):
                return self._still(step)
            rule = ELEMENTWISE if Trait.elementwise in node.op.traits else RULES.get(node.op.name)
            if rule is None:
                raise CutError("what it does over time is not known")
            found = rule(step)
            self._check(node, found)
            return found
        except CutError as e:
            self.refuse(node, str(e))
            return [Unknown()] * len(node.types)

    def _input(self, node: Node) -> Fact:
        shape = node.types[0].shape
        axes = [a for a, d in enumerate(shape) if self.timed(d)]
        if not axes:
            return Fixed()
        size = shape[axes[0]]
        factor = size.terms[0][1] if isinstance(size, Expr) else 0
        plain = factor > 0 and size == dims.mul(dims.name(self.steps), factor)
        if len(axes) > 1 or not plain or self.factor not in (0, factor):
            raise CutError(f"is {node.types[0]}: one axis is {self.steps}, the number of frames, the others are not")
        self.factor = factor
        return Timed(axes[0])

    def _still(self, step: RuleNode) -> Sequence[Fact]:
        """Of operands without an axis of time."""
        node = step.node
        if any(isinstance(f, Unknown) for f in step.facts):
            return [Unknown()] * len(node.types)
        late = any(isinstance(f, Latest) for f in step.facts)
        if late and any(self.timed(d) for t in node.types for d in t.shape):
            raise CutError("reads at every step what only the last step gives")
        if self._counts(node):
            raise CutError("its result depends on how many frames a call has, or on their places in the call")
        if late:
            return [Latest()] * len(node.types)
        return [Fixed(_even(step))] * len(node.types)

    def _counts(self, node: Node) -> bool:
        if Trait.elementwise in node.op.traits or node.op.name in _QUIET:
            return False
        sizes = [d for v in node.inputs for d in v.shape]
        return any(map(self.timed, (*sizes, *_sizes(node))))

    def _check(self, node: Node, facts: Sequence[Fact]) -> None:
        """That the axis of time has the rows that it should have, and no other axis has it too."""
        for t, fact in zip(node.types, facts, strict=True):
            own = fact.axis if isinstance(fact, Timed) else None
            if any(self.timed(d) for a, d in enumerate(t.shape) if a != own) and not isinstance(fact, Fixed):
                raise CutError(f"gives {t}, where not only one axis is time")
            if isinstance(fact, Timed) and not self.timed(t.shape[fact.axis]):
                raise CutError(f"gives {t}, whose steps do not follow the number of frames")

    def _output(self, v: Value) -> None:
        fact = self.facts[v]
        if isinstance(fact, Timed):
            if fact.more:
                self.refuse(v.node, f"gives {_rows(fact.more)} the steps that it takes")
            if fact.outer != 1:
                self.refuse(v.node, "gives the steps of all sequences on one axis, one sequence after another")
        elif isinstance(fact, Fixed) and any(map(self.timed, v.shape)) and not self.reasons:
            self.refuse(v.node, "gives rows over time that do not depend on the frames")


def _rows(more: int) -> str:
    many = "1 row" if abs(more) == 1 else f"{abs(more)} rows"
    return f"{many} {'more' if more > 0 else 'less'} than"


def _sizes(node: Node) -> Iterator[Dim]:
    """The sizes that attributes hold, bodies included."""
    for a in node.attrs.values():
        if isinstance(a, Graph):
            for n in a.nodes:
                yield from (d for t in n.types for d in t.shape)
                yield from _sizes(n)
        for d in a if isinstance(a, tuple) else (a,):
            if isinstance(d, Expr):
                yield d


def _even(step: RuleNode) -> frozenset[int]:
    """The axes along which all elements of the result are equal."""
    node = step.node
    everywhere = frozenset(range(node.types[0].rank))
    before = [f.even for f in step.facts if isinstance(f, Fixed)]
    if Trait.elementwise in node.op.traits:
        return frozenset.intersection(*before)
    match node.op.name:
        case "constant":
            return everywhere if splat(node.values[0]) is not None else frozenset()
        case "broadcast_in_dim":
            to = node.attrs["broadcast_dimensions"]
            return everywhere - {to[a] for a, d in enumerate(node.inputs[0].shape) if a not in before[0] and d != 1}
        case "transpose":
            return frozenset(i for i, a in enumerate(node.attrs["permutation"]) if a in before[0])
        case "reshape" if len(before[0]) == node.inputs[0].rank:
            return everywhere
    return frozenset()
