"""Validation: the entry `evaluate` over batches, means of what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lstm_ir.fitting.batches import Batch, BatchSource, naming, need_batch
from lstm_ir.fitting.history import Means
from lstm_ir.ir.errors import CallError
from lstm_ir.ir.signature import Port, bind_dims

if TYPE_CHECKING:
    from lstm_ir.backends.run.calls import Function
    from lstm_ir.backends.run.executable import Session

PREFIX = "validation/"


class Validation:
    """The loss and other numbers over the batches of `source`, as `validation/NAME`.

    What the program carries from call to call begins anew with each validation, and goes from batch to batch.
    """

    def __init__(self, session: Session, source: BatchSource) -> None:
        self._session, self._source = session, source
        self._entry: Function = session.entries["evaluate"]
        carried = session.entries["train"].entry.reads
        self._carried = [p for p in self._entry.inputs if p.name in carried]
        self._names = scalars(self._entry)

    @property
    def names(self) -> list[str]:
        """Names of the numbers."""
        return [PREFIX + n for n in self._names]

    def check(self) -> None:
        """The first batch of a list is run: one that does not fit is found before an epoch of training."""
        first = self._source.first()
        if first is not None:
            self._evaluated(first, "validation batch 1", None)

    def run(self, epoch: int) -> dict[str, float]:
        """Means over the batches, each counted once."""
        means = Means()
        held: dict[str, Any] | None = None
        for k, given in enumerate(self._source.open(epoch)):
            out = self._evaluated(given, f"validation batch {k + 1}", held)
            held = {p.name: out[p.name] for p in self._carried}
            means.add({PREFIX + n: float(out[n]) for n in self._names})
        if not means.count:
            raise CallError("fit: validation gave no batch")
        return means.taken()

    def _evaluated(self, given: object, what: str, held: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """The results of a batch; `held` is what the one before it left, None of the first."""
        batch = need_batch(given, what)
        with naming(what):
            return self._entry({**batch, **(self._start(batch) if held is None else held)})

    def _start(self, batch: Batch) -> dict[str, Any]:
        """What is carried into the first batch."""
        if not self._carried:
            return {}
        gone = {p.name for p in self._carried}
        others = [p for p in self._entry.inputs if p.name not in gone]
        sizes = _sizes(others, batch)
        return {n: self._session.state.start(n, sizes) for n in sorted(gone)}


def _sizes(ports: list[Port], batch: Batch) -> Mapping[str, int]:
    known = [p for p in ports if p.name in batch]  # one that is missing is the call's error
    return bind_dims(known, {p.name: np.shape(batch[p.name]) for p in known})


def scalars(entry: Function) -> list[str]:
    """The names of the outputs that are numbers; the first is the loss."""
    return [p.name for p in entry.outputs if p.type.rank == 0]
