"""Batches of a training loop: where they come from, and errors that say which one is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from itertools import islice
from typing import Any

from lstm_ir.ir.errors import CallError, ValueRangeError

Batch = Mapping[str, Any]
Batches = Iterable[Batch] | Callable[[int], Iterable[Batch]]


class BatchSource:
    """Batches for each epoch: something that can be iterated again, an iterator, or a function of the epoch."""

    def __init__(self, batches: Any, what: str) -> None:
        self._batches, self._what = batches, what
        if isinstance(batches, (Mapping, str, bytes)) or not (isinstance(batches, Iterable) or callable(batches)):
            got = "one batch" if isinstance(batches, Mapping) else type(batches).__name__
            raise CallError(f"fit: {what} is {got}; expected an iterable of batches, or a function of the epoch")
        made = not callable(batches) or isinstance(batches, Iterable)
        self.once = made and isinstance(batches, Iterator)  # it cannot be iterated again
        self.count: int | None = None  # of the batches of the epoch that was opened last, where they say it

    def first(self) -> object | None:
        """The first batch of a list; None where to see it would make or load batches."""
        return self._batches[0] if isinstance(self._batches, (list, tuple)) and self._batches else None

    def open(self, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch (from 0), without the first `skip`."""
        found = self._batches if isinstance(self._batches, Iterable) else self._batches(epoch)
        if not isinstance(found, Iterable) or isinstance(found, (Mapping, str, bytes)):
            got = type(found).__name__
            raise CallError(f"fit: {self._what} gave {got} for epoch {epoch + 1}; expected an iterable of batches")
        self.count = len(found) if isinstance(found, Sized) else None
        rest = iter(found)
        passed = sum(1 for _ in islice(rest, skip))
        if passed < skip:
            found = f"{self._what} gave {passed} batches in epoch {epoch + 1}"
            raise CallError(f"fit: {found}, where the checkpoint was made after {skip}")
        return rest


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Errors of a call begin with the batch that it was given."""
    try:
        yield
    except (CallError, ValueRangeError) as e:
        raise type(e)(f"fit: {what}: {e}") from None


def need_batch(batch: object, what: str) -> Batch:
    """CallError for what is not arrays by name."""
    if not isinstance(batch, Mapping):
        raise CallError(f"fit: {what}: a batch is arrays by name, got {type(batch).__name__}")
    return batch
