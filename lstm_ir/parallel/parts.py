"""A batch in parts, one for each worker, and the average of what comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lstm_ir.ir.errors import CallError
from lstm_ir.ir.foreign_errors import become
from lstm_ir.ir.signature import Entry, confirm, native
from lstm_ir.serving.rows import axes_of

Array = np.ndarray[Any, Any]
Weigh = Callable[[Mapping[str, Array]], float]


class BatchParts:
    """How the inputs of `grads` are cut along the batch, and how much each part counts."""

    def __init__(self, entry: Entry, batch: str, count: int, weigh: Weigh | None, reduction: str) -> None:
        """`count` parts. CallError for an entry without an axis of size `batch`."""
        if reduction not in ("mean", "sum"):
            raise CallError(f"reduction is {reduction!r:.80}; expected 'mean' or 'sum'")
        if weigh is not None and (not callable(weigh) or reduction == "sum"):
            raise CallError("weigh is a function of a part's arrays, for losses that are means")
        self._entry, self._count, self._weigh, self._reduction = entry, count, weigh, reduction
        self._axes = {p.name: axes_of(entry, p, batch, "").batch for p in entry.inputs}
        if all(a is None for a in self._axes.values()):
            raise CallError(f"{entry.name}: no input has an axis of size {batch}, so a batch has no parts")
        self._batch = batch

    def of(self, arrays: Mapping[str, Any]) -> list[tuple[float, dict[str, Array]]]:
        """How much each part counts, and its inputs; a part that counts 0 is not computed.

        Parts differ by one row at most, the first ones are the longer ones. Raises as a call of `grads` does.
        """
        values, shapes = native(self._entry, arrays)
        bound = self._entry.bound(shapes)
        if bound.checks:
            confirm(self._entry, bound, values)
        rows = bound.env[self._batch]
        size, longer = divmod(rows, self._count)
        out: list[tuple[float, dict[str, Array]]] = []
        start = 0
        for i in range(self._count):
            end = start + size + (i < longer)
            part = {p.name: self._cut(p.name, a, start, end) for p, a in zip(self._entry.inputs, values, strict=True)}
            out.append((self._weight(part, end - start), part))
            start = end
        if not any(w for w, _ in out):
            raise CallError(f"{self._entry.name}: no part of the batch counts: it has {rows} rows")
        return out

    def _cut(self, name: str, a: Array, start: int, end: int) -> Array:
        axis = self._axes[name]
        if axis is None:
            return a
        key: list[Any] = [slice(None)] * a.ndim
        key[axis] = slice(start, end)
        return np.ascontiguousarray(a[tuple(key)])

    def _weight(self, part: Mapping[str, Array], rows: int) -> float:
        if rows == 0:
            return 0.0
        if self._reduction == "sum":
            return 1.0
        if self._weigh is None:
            return float(rows)
        with become(CallError, "weigh"):
            found = float(self._weigh(part))
        if not (found >= 0 and np.isfinite(found)):
            raise CallError(f"weigh gave {found}; a part counts a number of 0 or more")
        return found

    def joined(self, weights: Sequence[float], answers: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """The average of the answers (their sum, where the loss is a sum), added in the order of the parts."""
        total = 1.0 if self._reduction == "sum" else sum(weights)
        out: dict[str, Array] = {}
        for weight, answer in zip(weights, answers, strict=True):
            for name, a in answer.items():
                share = a * a.dtype.type(weight / total)
                if name in out:
                    out[name] += share
                else:
                    out[name] = np.array(share, a.dtype)
        return out
