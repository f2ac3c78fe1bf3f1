"""What `lstm-ir import` says of a model, as data: what is taken, what is missing, what it holds, how it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from lstm_ir.importers.recurrences import Liftable, Recurrence, StatePair
from lstm_ir.importers.refusals import Refusal, Wanted

__all__ = ["ImportReport", "Liftable", "OpCount", "Refusal", "SizeName", "StatePair", "Wanted", "WeightSum"]


class Outcome(Enum):
    """What became of a node."""

    taken = "taken"
    refused = "refused"
    passed = "passed over"  # it reads what was refused, or its subgraph was


@dataclass(frozen=True)
class OpCount:
    """How many nodes have one op, and what became of them.

    passed: they read what was refused. unread: they stand in a branch that is not taken, or in the body of a
    node that was refused.
    """

    op: str
    nodes: int
    taken: int
    refused: int
    passed: int
    unread: int


@dataclass(frozen=True)
class SizeName:
    """A size that only calls know, and the axes that have it: `x axis 1`."""

    name: str
    axes: tuple[str, ...]


@dataclass(frozen=True)
class WeightSum:
    """Arrays: how many, their bytes in all, and bytes by dtype."""

    count: int
    bytes: int
    dtypes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ImportReport:
    """The whole report. `recurrences` say how they run once the model was planned for a target.

    format: the version of the framework, or of its ops. numbers: sizes that would have to be numbers. alike: those
    that would have to be one. literals: arrays without names. fused: how many cells the pass `fuse-cell` found among
    plain ops. target: None where nothing was planned.
    """

    file: str
    bytes: int
    format: str
    ops: tuple[OpCount, ...]
    refusals: tuple[Refusal, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sizes: tuple[SizeName, ...]
    constants: tuple[Wanted, ...]
    numbers: tuple[str, ...]
    alike: tuple[tuple[str, ...], ...]
    weights: WeightSum
    literals: WeightSum
    recurrences: tuple[Recurrence, ...] = ()
    states: tuple[StatePair, ...] = ()
    liftable: tuple[Liftable, ...] = ()
    fused: int = 0
    target: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the whole model is taken."""
        return not self.refusals

    @property
    def nodes(self) -> int:
        """How many nodes the model has, those of subgraphs included."""
        return sum(o.nodes for o in self.ops)

    def as_json(self) -> dict[str, Any]:
        """The same as values of JSON."""
        return {"ok": self.ok, "nodes": self.nodes, **asdict(self)}
