"""What the walk over a graph has found: facts of values, what nodes keep between calls, reasons against cutting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.streaming.facts import Fact


@dataclass(frozen=True)
class WindowContext:
    """The last `rows` rows that a window saw along `axis`; `value`, a number or rows, before the first; `more` rows of
    the operand stand for no frame of the call."""

    axis: int
    rows: int
    more: int
    value: Any


@dataclass(frozen=True)
class LoopState:
    """The state of a loop or a layer, by the name of the operand that it starts from; what it starts as."""

    starts: dict[str, Any]


@dataclass(frozen=True)
class RunningSum:
    """The sum of all rows so far along `axis`."""

    axis: int


Kept: TypeAlias = "WindowContext | LoopState | RunningSum"


@dataclass(eq=False)
class Findings:
    """The facts of every value, what nodes keep between calls, and why the graph cannot be cut.

    `steps` is the named size that is time; a call takes a multiple of `unit` frames.
    """

    graph: Graph
    steps: str
    facts: dict[Value, Fact] = field(default_factory=dict)
    carried: dict[Node, Kept] = field(default_factory=dict)
    reasons: dict[tuple[Node, str], None] = field(default_factory=dict)
    unit: int = 1

    def timed(self, d: Dim) -> bool:
        """Whether a size depends on the number of frames."""
        return self.steps in dims.names(d)

    def refuse(self, node: Node, reason: str) -> None:
        """Note a reason."""
        self.reasons.setdefault((node, reason))
