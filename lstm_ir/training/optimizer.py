"""What every optimizer is: a learning rate, options, and groups of weights with other ones."""

from __future__ import annotations

import fnmatch
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from lstm_ir.ir.errors import GradientError, IRError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.near_names import hint
from lstm_ir.training.rates import Rate, is_amount, is_number, problem_of

Slots = Mapping[str, Value]
Groups = Mapping[str, Mapping[str, Any]]
_FIXED = ("groups", "decoupled")  # fields that no group may change


def matched(names: Collection[str], pattern: str) -> list[str]:
    """The names that a pattern means: the one that it is itself, such as `w[0]`, or all that it matches."""
    return [pattern] if pattern in names else [n for n in names if fnmatch.fnmatchcase(n, pattern)]


@dataclass(frozen=True)
class Optimizer(ABC):
    """`lr` is a number, the name of an input f32[] that every step takes, a function of the step, or a plateau.

    groups: options, by patterns of weights' names, that these weights have instead.
    """

    name: ClassVar[str]
    lr: Rate
    groups: Groups | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        problem = problem_of(self.lr)
        self._need(problem is None, "lr", str(problem))
        self._need_amount("weight_decay")
        _ = self._grouped

    def _need_amount(self, field: str) -> None:
        """Refuse what is no finite number of at least 0. A field that is not there is 0."""
        self._need(is_amount(getattr(self, field, 0.0)), field, "it is at least 0")

    def _need_share(self, field: str) -> None:
        """Refuse what is no number in [0, 1)."""
        v = getattr(self, field)
        self._need(is_number(v) and 0 <= v < 1, field, "it lies in [0, 1)")

    def _need(self, holds: bool, field: str, rule: str) -> None:
        if not holds:
            raise IRError(f"{self.name}: {field} is {getattr(self, field)!r}; {rule}")

    @property
    def _grouped(self) -> dict[str, Optimizer]:
        """The optimizer of each group's weights."""
        groups = {} if self.groups is None else self.groups
        mapped = isinstance(groups, Mapping) and all(isinstance(o, Mapping) for o in groups.values())
        if not mapped or not all(isinstance(p, str) for p in groups):
            raise IRError(f"{self.name}: groups is {groups!r:.80}; expected options by patterns of names")
        known = [f.name for f in fields(self) if f.name not in _FIXED]
        made = {}
        for pattern, options in groups.items():
            unknown = [n for n in options if n not in known]
            if unknown:
                meant = hint(unknown[0], known, f"; there are {', '.join(known)}")
                problem = f"there is no option {unknown[0]!r}{meant}"
                raise IRError(f"{self.name}: group {pattern!r}: {problem}")
            try:
                made[pattern] = replace(self, groups=None, **options)
            except IRError as err:
                raise IRError(f"group {pattern!r}: {err}") from None
        return made

    def each(self, names: Iterable[str]) -> dict[str, Optimizer]:
        """The optimizer of every weight; GradientError for a weight of two groups, or a group of none."""
        groups, names = self._grouped, list(names)
        members = {p: set(matched(names, p)) for p in groups}
        for pattern in groups:
            if not members[pattern]:
                have = ", ".join(names)
                raise GradientError(f"train_step: no weight that is trained is in group {pattern!r}; there is {have}")
        out = {}
        for n in names:
            found = [p for p in groups if n in members[p]]
            if len(found) > 1:
                raise GradientError(f"train_step: {n!r} is in two groups, {found[0]!r} and {found[1]!r}")
            out[n] = groups[found[0]] if found else self
        return out

    def rates(self) -> dict[str, Rate]:
        """The rate `lr`, and `lr/PATTERN` of each group that has its own."""
        groups = {} if self.groups is None else self.groups
        return {"lr": self.lr} | {f"lr/{p}": o["lr"] for p, o in groups.items() if "lr" in o}

    def kept(self) -> dict[str, float]:
        """What is kept for each element of a weight, and what it starts as."""
        return {}

    @abstractmethod
    def update(self, p: Value, g: Value, slots: Slots, t: Value, lr: Value | float) -> tuple[Value, Slots]:
        """The weight and its slots after step t = 1, 2, ... (a float scalar) with gradient g."""
