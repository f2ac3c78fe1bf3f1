"""Which axis of each input and output is the batch, and which is time: how requests become one call.

    values of each request ─prepare─> Prepared ─merge─> inputs of one call ─> outputs ─split─> outputs of each

`prepare` checks a request as its own call would be checked, so that one which does not fit is refused before it
meets others. Two requests go together where their `key` is equal: all named sizes but those of the batch and of
padded time, and the inputs without a batch axis, element by element. `merge` joins along the batch, and fills up
time with zeros to the longest of the call, where the graph has lengths that tell it to look no further; `split`
takes each request's rows and steps out again, as arrays of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import CallError
from lstm_ir.ir.signature import Entry, Port, bind_dims, confirm, native
from lstm_ir.verification.bounds import checked

Array = np.ndarray[Any, Any]
_WHOLE = 64  # bytes of an input without a batch axis that a key holds; of longer ones it holds the hash


@dataclass(frozen=True)
class PortAxes:
    """Places of the batch and of time in a port's shape."""

    batch: int | None
    time: int | None


@dataclass(frozen=True)
class Prepared:
    """One request: its checked inputs in order, its rows and steps, and what it may share a call with."""

    values: list[Array]
    rows: int
    steps: int
    key: Hashable


def length_class(steps: int) -> int:
    """The least of 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, … that is not below `steps`: a quarter above at most."""
    if steps <= 8:
        return steps
    unit = 1 << ((steps - 1).bit_length() - 3)
    return -(-steps // unit) * unit


class Rows:
    """How requests to an entry become one call, and its outputs those of each."""

    def __init__(
        self, entry: Entry, batch: str = "B", time: str = "T", lengths: str | None = None,
        outputs: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """`lengths` is the input with the steps of each row; where it is None, the one that a layer reads.

        A request that leaves it out has all steps: as many as layers take at most, the size `time` where none says so.
        CallError names the input or output that has no axis of its own for the batch.
        """
        if batch == time:
            raise CallError(f"{entry.name}: the batch and time are two sizes, and both are called {batch!r}")
        self.entry, self.batch, self.time = entry, batch, time
        self.inputs = [axes_of(entry, p, batch, time) for p in entry.inputs]
        if all(a.batch is None for a in self.inputs):
            raise CallError(f"{entry.name}: no input has an axis of size {batch}, so requests cannot share a call")
        named = {p.name: p for p in entry.outputs}
        outputs = [outputs] if isinstance(outputs, str) else outputs
        unknown = [n for n in outputs or () if n not in named]
        if unknown:
            raise CallError(f"{entry.name}: there is no output {unknown[0]!r}; there is {', '.join(named)}")
        self.wanted = tuple(named if outputs is None else outputs)
        self.outputs = {n: axes_of(entry, named[n], batch, time) for n in self.wanted}
        for name, axes in self.outputs.items():
            if axes.batch is None:
                raise CallError(
                    f"{entry.name}: output {named[name]} has no axis of size {batch}, so it is not that of one request"
                    " in a call; name the outputs that are wanted, without it: outputs=[...], --output of lstm-ir serve"
                )
        self.lengths, self._steps = _lengths(entry, batch, lengths)
        plain = self.lengths is not None and _padded(entry, self.inputs, time)
        if self._steps is None and plain:
            self._steps = dims.name(time)
        self.pads = plain and self._steps == dims.name(time)

    def without_padding(self) -> None:
        """From now on requests go together where their steps are equal."""
        self.pads = False

    def prepare(self, arrays: Mapping[str, Any], *, copied: bool = False) -> Prepared:
        """A request's inputs, checked as by a call of its own; lengths that are left out are all steps.

        copied: none of them is in memory that the caller may write into later.
        """
        entry = self.entry
        if self.lengths is not None and self._steps is not None and self.lengths not in arrays:
            arrays = {**arrays, self.lengths: self._all_steps(arrays, self._steps)}
        values, shapes = native(entry, arrays)
        if copied:
            values = [_own(a, arrays[p.name]) for p, a in zip(entry.inputs, values, strict=True)]
        bound = entry.bound(shapes)
        if bound.checks:
            confirm(entry, bound, values)
        sizes = dict(bound.env)
        rows, steps = sizes.pop(self.batch), sizes.get(self.time, 0)
        if self.pads:
            sizes[self.time] = length_class(steps)
        shared = [a for a, axes in zip(values, self.inputs, strict=True) if axes.batch is None]
        return Prepared(values, rows, steps, (*sizes.items(), *map(_content, shared)))

    def _all_steps(self, arrays: Mapping[str, Any], steps: Dim) -> Array:
        port = next(p for p in self.entry.inputs if p.name == self.lengths)
        given = [p for p in self.entry.inputs if p.name in arrays]
        try:
            sizes = bind_dims(given, {p.name: np.shape(arrays[p.name]) for p in given})
            return np.full(sizes[self.batch], dims.evaluate(steps, sizes), port.type.dtype.numpy)
        except (CallError, KeyError):
            return np.zeros(0, port.type.dtype.numpy)  # another input is missing or does not fit, which the check says

    def merge(self, requests: Sequence[Prepared]) -> dict[str, Array]:
        """The inputs of one call for all; their keys are equal."""
        names = [p.name for p in self.entry.inputs]
        if len(requests) == 1:
            return dict(zip(names, requests[0].values, strict=True))
        longest = max(r.steps for r in requests)
        out = {}
        for i, (name, axes) in enumerate(zip(names, self.inputs, strict=True)):
            if axes.batch is None:
                out[name] = requests[0].values[i]
                continue
            parts = [_filled(r.values[i], axes.time if self.pads else None, longest) for r in requests]
            out[name] = np.concatenate(parts, axes.batch)
        return out

    def split(self, outputs: Mapping[str, Array], requests: Sequence[Prepared]) -> list[dict[str, Array]]:
        """The outputs of each request."""
        if len(requests) == 1:
            return [{n: outputs[n] for n in self.wanted}]
        found = []
        start = 0
        for r in requests:
            end = start + r.rows
            found.append({n: self._part(n, outputs[n], start, end, r.steps) for n in self.wanted})
            start = end
        return found

    def _part(self, name: str, a: Array, start: int, end: int, steps: int) -> Array:
        axes = self.outputs[name]
        key: list[Any] = [slice(None)] * a.ndim
        key[axes.batch or 0] = slice(start, end)
        if self.pads and axes.time is not None:
            key[axes.time] = slice(0, steps)
        found: Array = a[tuple(key)]
        return found.copy()  # a view would keep the whole call's memory


def axes_of(entry: Entry, port: Port, batch: str, time: str) -> PortAxes:
    """Where the batch and time are in a port; CallError where the batch has no axis of its own."""
    at = {n: [i for i, d in enumerate(port.type.shape) if n in dims.names(d)] for n in (batch, time)}
    plain = [i for i in at[batch] if port.type.shape[i] == dims.name(batch)]
    if len(at[batch]) > 1 or plain != at[batch]:
        raise CallError(f"{entry.name}: {port}: {batch} has no axis of its own, so requests cannot share a call")
    return PortAxes(plain[0] if plain else None, at[time][0] if len(at[time]) == 1 else None)


def _lengths(entry: Entry, batch: str, lengths: str | None) -> tuple[str | None, Dim | None]:
    """The input with the steps of each row, and how many are all, where layers say one number."""
    rows = {p.name: p for p in entry.inputs if p.type.shape == (dims.name(batch),) and p.type.dtype.is_int}
    if lengths is not None:
        if lengths not in rows:
            raise CallError(f"{entry.name}: {lengths!r} is no input of integers [{batch}], so it cannot hold lengths")
    found = {n: {b.high for b in known if b.lengths and b.high is not None} for n, known in checked(entry).items()}
    read = {n: highs.pop() for n, highs in found.items() if n in rows and len(highs) == 1}
    if lengths is not None:
        return lengths, read.get(lengths)
    return next(iter(read.items())) if len(read) == 1 else (None, None)


def _padded(entry: Entry, inputs: Iterable[PortAxes], time: str) -> bool:
    """Whether steps may stand behind the last of a request: time is an axis of each row, whose elements may be 0."""
    t = dims.name(time)
    for p in (*entry.inputs, *entry.outputs):
        held = [d for d in p.type.shape if time in dims.names(d)]
        if held and held != [t]:
            return False
    timed = {p.name for p, axes in zip(entry.inputs, inputs, strict=True) if axes.time is not None}
    if not timed or any(axes.time is not None and axes.batch is None for axes in inputs):
        return False
    return all(c.low in (None, 0) for c in entry.checks if c.input in timed)


def _own(a: Array, given: object) -> Array:
    """The array, where it is known that no memory of it is the caller's; else a copy.

    What has an `__array__` may give memory of its own, which nobody else sees.
    """
    if isinstance(given, np.ndarray):
        own = not np.may_share_memory(a, given)
    else:
        own = isinstance(given, (list, tuple, int, float, np.generic))
    return a if own else a.copy()


def _content(a: Array) -> Hashable:
    data = a.tobytes()
    return a.shape, data if len(data) <= _WHOLE else hashlib.sha256(data).digest()


def _filled(a: Array, time: int | None, steps: int) -> Array:
    if time is None or a.shape[time] == steps:
        return a
    shape = list(a.shape)
    shape[time] = steps - a.shape[time]
    return np.concatenate([a, np.zeros(shape, a.dtype)], time)
