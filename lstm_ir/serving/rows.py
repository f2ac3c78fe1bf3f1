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
from lstm_ir.ir.errors import CallError
from lstm_ir.ir.signature import Entry, Port, confirm, native
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

        CallError names the input or output that has no axis of its own for the batch.
        """
        self.entry, self.batch, self.time = entry, batch, time
        self.inputs = [axes_of(entry, p, batch, time) for p in entry.inputs]
        if all(a.batch is None for a in self.inputs):
            raise CallError(f"{entry.name}: no input has an axis of size {batch}, so requests cannot share a call")
        named = {p.name: p for p in entry.outputs}
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
        self.lengths = _lengths(entry, batch, time, lengths)
        why = _unpadded(entry, self.inputs, batch, time) if self.lengths is not None else None
        if why is not None and lengths is not None:
            raise CallError(f"{entry.name}: time cannot be padded: {why}")
        self.pads = self.lengths is not None and why is None

    def without_padding(self) -> None:
        """From now on requests go together where their steps are equal."""
        self.pads = False

    def prepare(self, arrays: Mapping[str, Any]) -> Prepared:
        """A request's inputs, checked as by a call of its own; lengths that are left out are all steps."""
        entry = self.entry
        if self.lengths is not None and self.lengths not in arrays:
            arrays = {**arrays, self.lengths: self._all_steps(arrays)}
        values = native(entry, arrays)
        bound = entry.bound(tuple([a.shape for a in values]))
        if bound.checks:
            confirm(entry, bound, values)
        sizes = dict(bound.env)
        rows, steps = sizes.pop(self.batch), sizes.get(self.time, 0)
        if self.pads:
            sizes[self.time] = length_class(steps)
        shared = [a for a, axes in zip(values, self.inputs, strict=True) if axes.batch is None]
        return Prepared(values, rows, steps, (*sizes.items(), *map(_content, shared)))

    def _all_steps(self, arrays: Mapping[str, Any]) -> Array:
        port = next(p for p in self.entry.inputs if p.name == self.lengths)
        for p, axes in zip(self.entry.inputs, self.inputs, strict=True):
            if p.name in arrays and axes.batch is not None and axes.time is not None:
                shape = np.shape(arrays[p.name])
                if len(shape) == p.type.rank:
                    return np.full(shape[axes.batch], shape[axes.time], port.type.dtype.numpy)
        return np.zeros(0, port.type.dtype.numpy)  # another input does not fit, which the check says

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


def _lengths(entry: Entry, batch: str, time: str, lengths: str | None) -> str | None:
    """The input with the steps of each row."""
    rows = {p.name: p for p in entry.inputs if p.type.shape == (dims.name(batch),) and p.type.dtype.is_int}
    if lengths is not None:
        if lengths not in rows:
            raise CallError(f"{entry.name}: {lengths!r} is no input of integers [{batch}], so it cannot hold lengths")
        return lengths
    read = checked(entry)
    candidates = [n for n in rows if any(b.lengths and b.high == dims.name(time) for b in read.get(n, ()))]
    return candidates[0] if len(candidates) == 1 else None


def _unpadded(entry: Entry, inputs: Iterable[PortAxes], batch: str, time: str) -> str | None:
    """Why time cannot be padded; None where it can."""
    t = dims.name(time)
    for p in (*entry.inputs, *entry.outputs):
        held = [d for d in p.type.shape if time in dims.names(d)]
        if held and held != [t]:
            return f"{p} has {time} in an expression, or twice"
    for p, axes in zip(entry.inputs, inputs, strict=True):
        if axes.time is not None and axes.batch is None:
            return f"{p} has no axis of size {batch}"
        for c in entry.checks:
            if axes.time is not None and c.input == p.name and (c.low not in (None, 0) and c.low != 0):
                return f"{p} may not hold 0, but {c.low} and more: {c.what}"
    return None


def _content(a: Array) -> Hashable:
    data = a.tobytes()
    return a.shape, data if len(data) <= _WHOLE else hashlib.sha256(data).digest()


def _filled(a: Array, time: int | None, steps: int) -> Array:
    if time is None or a.shape[time] == steps:
        return a
    shape = list(a.shape)
    shape[time] = steps - a.shape[time]
    return np.concatenate([a, np.zeros(shape, a.dtype)], time)
