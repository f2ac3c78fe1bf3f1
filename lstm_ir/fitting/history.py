"""What a training loop reports and gives back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lstm_ir.ir.errors import CallError

if TYPE_CHECKING:
    from lstm_ir.backends.run.executable import Session


@dataclass(frozen=True)
class Record:
    """One report: after how many batches and epochs, and numbers by name.

    `values` has the means over the batches since the last report (`loss`, and every other number that `train` gives),
    and of the validation, as `validation/loss`. `steps_per_second` leaves validation and checkpoints out.
    """

    step: int
    epoch: int
    values: dict[str, float]
    steps_per_second: float


@dataclass
class History:
    """What `fit` gives: the reports of this call, what is trained, and why it ended.

    `stopped` is "epochs", "steps" or "patience". `best` is the step with the lowest validation loss, None without
    validation. `exe` is the session that was trained.
    """

    exe: Session
    records: list[Record] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    stopped: str = ""
    best: int | None = None

    def __getitem__(self, name: str) -> list[float]:
        """One number of every report that has it: `history["validation/loss"]`.

        CallError for a name that none of the reports has.
        """
        known = list(dict.fromkeys(n for r in self.records for n in r.values))
        if known and name not in known:
            raise CallError(f"history: no report has {name!r:.80}; there are {', '.join(known)}")
        return [r.values[name] for r in self.records if name in r.values]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)


class Means:
    """Means of numbers by name since the last report."""

    def __init__(self, sums: dict[str, float] | None = None, count: int = 0) -> None:
        self.sums, self.count = dict(sums or {}), count

    def add(self, values: dict[str, float]) -> None:
        """Count one batch."""
        self.count += 1
        for n, v in values.items():
            self.sums[n] = self.sums.get(n, 0.0) + v

    def taken(self) -> dict[str, float]:
        """The means; counting begins anew."""
        out = {n: v / self.count for n, v in self.sums.items()}
        self.sums, self.count = {}, 0
        return out
