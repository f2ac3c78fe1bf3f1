"""What a pass is.

Contract of a pass: valid in, valid out; same meaning and signature; the same object if nothing
matched; running it again changes nothing; bodies of loops are rewritten too; a new node has the
line of the node that it replaces, and the pass's name behind it.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from lstm_ir.ir.errors import PassError
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.target import TargetInfo


@dataclass(frozen=True)
class Miss:
    """Why a rule that nearly matched did not; kept for `--explain`."""

    reason: str
    value: Value | None = None

    def __str__(self) -> str:
        return self.reason if self.value is None else f"{self.reason} (at {self.value.node.loc})"


class Notes:
    """What a pass reports while it runs: rules fired, and misses."""

    def __init__(self) -> None:
        self.fired: list[str] = []
        self.misses: list[Miss] = []

    def fire(self, rule: str, at: object = None) -> None:
        """A rule rewrote something."""
        self.fired.append(rule if at is None else f"{rule} at {at}")

    def miss(self, reason: str, value: Value | None = None) -> None:
        """A near-match was left alone."""
        self.misses.append(Miss(reason, value))


@dataclass(frozen=True)
class Pass(ABC):
    """Base of all passes; the fields of a subclass are its options."""

    name: ClassVar[str] = ""

    @abstractmethod
    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None) -> Graph:
        """The rewritten graph, or `graph` itself."""

    def __str__(self) -> str:
        given = [
            f"{f.name}={_text(getattr(self, f.name))}"
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default
        ]
        return f"{self.name}{{{','.join(given)}}}" if given else self.name


@dataclass(frozen=True)
class KernelPass(Pass):
    """A pass that asks whether loops become kernels: `yes`, `no`, or as is usual for the `target`."""

    kernels: str = "target"

    def __post_init__(self) -> None:
        if self.kernels not in ("target", "yes", "no"):
            raise PassError(f"pass {self.name}: kernels is {self.kernels!r}, not one of target, yes, no")

    def for_kernels(self, target: TargetInfo | None) -> bool:
        """Whether loops become kernels."""
        if self.kernels == "target":
            return target is not None and target.kernels
        return self.kernels == "yes"

    def for_cpu_kernels(self, target: TargetInfo | None) -> bool:
        """Whether loops become kernels of a CPU, as far as is known."""
        return self.for_kernels(target) and (target is None or target.kind == "cpu")


PASSES: dict[str, type[Pass]] = {}
P = TypeVar("P", bound=type[Pass])


def register(cls: P) -> P:
    """Make a pass known under its name."""
    if cls.name in PASSES:
        raise PassError(f"pass {cls.name} is registered twice")
    PASSES[cls.name] = cls
    return cls


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
