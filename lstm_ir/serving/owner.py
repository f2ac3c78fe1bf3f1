"""What `li.Batcher` and `li.Sessions` are alike in: the owner of a scheduler, which its callers see and close."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lstm_ir.ir.signature import Entry
from lstm_ir.serving.rows import Rows
from lstm_ir.serving.scheduler import Counters, Scheduler, stop_with

if TYPE_CHECKING:
    from typing import Self


class SchedulerOwner:
    """One entry, whose calls go through the scheduler; nothing that the scheduler runs may hold its owner."""

    def __init__(self, rows: Rows, scheduler: Scheduler) -> None:
        self._rows, self.scheduler = rows, scheduler
        stop_with(self, scheduler)

    @property
    def entry(self) -> Entry:
        """Names and types of what a call takes and gives, without state."""
        return self._rows.entry

    @property
    def rows(self) -> Rows:
        """How the inputs of a call become rows of one that is shared."""
        return self._rows

    @property
    def waiting(self) -> int:
        """Calls that were accepted and have not begun."""
        return self.scheduler.waiting

    @property
    def counters(self) -> Counters:
        """Calls accepted, refused and expired; shared calls (`groups`), and the calls and rows in them."""
        return self.scheduler.counters

    def close(self) -> None:
        """Take no more calls; come back when all that were accepted have their results."""
        self.scheduler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
