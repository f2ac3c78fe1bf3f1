"""A rule of causality: the facts of a node's results from those of its operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import lcm
from typing import TypeAlias

from lstm_ir.ir.graph import Node, Value
from lstm_ir.streaming.facts import Fact, Fixed, Latest, Timed
from lstm_ir.streaming.findings import Findings, Kept

Rule: TypeAlias = "Callable[[RuleNode], Sequence[Fact]]"
RULES: dict[str, Rule] = {}
"""By op: the facts of the results of a node that reads a value with an axis of time."""


class CutError(Exception):
    """Why a node cannot be cut into calls, where nothing is known of its results."""


class RuleNode:
    """One node as its rule sees it."""

    def __init__(self, whole: Findings, node: Node) -> None:
        self.whole, self.node = whole, node
        self.facts = tuple(whole.facts[v] for v in node.inputs)

    @property
    def timed(self) -> list[Timed]:
        """Those with an axis of time."""
        return [f for f in self.facts if isinstance(f, Timed)]

    def fact(self, operand: str) -> Fact | None:
        """That of an operand; None where it is absent."""
        v = self.node.arg(operand)
        return self.whole.facts[v] if isinstance(v, Value) else None

    def refuse(self, reason: str) -> None:
        """Note a reason, and go on."""
        self.whole.refuse(self.node, reason)

    def keep(self, carried: Kept) -> None:
        """Note what this node keeps between calls."""
        self.whole.carried[self.node] = carried

    def every(self, rate: Fraction | int) -> None:
        """A call takes frames of which `rate` each give a whole number of rows."""
        self.whole.unit = lcm(self.whole.unit, rate.numerator)

    def only(self) -> Timed:
        """The fact of the one operand."""
        (fact,) = self.facts
        assert isinstance(fact, Timed)
        return fact

    def needs_fixed(self, operands: Sequence[str], what: str = "over time") -> None:
        """Refuse operands that change from call to call, or from step to step."""
        for name in operands:
            fact = self.fact(name)
            if isinstance(fact, (Latest, Timed)):
                raise CutError(f"its operand {name} changes {what}")

    def even(self, operands: Sequence[tuple[Fact, int]]) -> None:
        """That operands without time, each with the axis that meets time, are the same at every step."""
        for fact, axis in operands:
            if isinstance(fact, Latest):
                raise CutError("reads at every step what only the last step gives")
            if isinstance(fact, Fixed) and axis not in fact.even:
                raise CutError("reads a value that has a row of its own for every step of a call")

    def merged(self, timed: Sequence[Timed]) -> Timed:
        """One fact of several operands whose axes of time meet."""
        first = timed[0]
        for other in timed[1:]:
            if first.axis != other.axis or (first.outer, first.inner) != (other.outer, other.inner):
                raise CutError("its operands have their steps on different axes")
            if first.rate != other.rate:
                raise CutError("its operands have steps of different lengths")
            if first.more != other.more:
                raise CutError("its operands have different numbers of rows beside those of the frames")
        return max(timed, key=lambda t: t.look)

    def causal(self, fact: Timed, far: str) -> Timed:
        """The fact, if its rows know no later ones."""
        if fact.look <= 0:
            return fact
        self.refuse(f"looks ahead: {far}")
        return Timed(fact.axis, fact.rate, fact.more, 0, fact.outer, fact.inner)


def elementwise(s: RuleNode) -> Sequence[Fact]:
    """Operands have one shape, so their axes of time meet."""
    made = s.merged(s.timed)
    s.even([(f, made.axis) for f, v in zip(s.facts, s.node.inputs, strict=True) if v.rank])
    return [made]


ELEMENTWISE: Rule = elementwise


def rule(*ops: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of these ops."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return register
