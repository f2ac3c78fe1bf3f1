"""Columns of a data set as inputs of an entry: a batch of rows in, columns of its outputs out.

    {"frames": rows} ─take─> requests of `Rows` ─groups by key─> a call each ─> columns, in the order of the rows

A column is an array whose first axis counts the rows, or one of objects, or a list, whose elements are the rows and
may differ in their sizes. Rows of an entry's call lie along its axis B. Columns of arrays make one call. Rows that
differ make one call for each length class (`Rows`, as the server has them): they are filled up to the longest of
their call, the input with their lengths says so, and outputs are cut back.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from lstm_ir.ir.arrays import Conform, take
from lstm_ir.ir.errors import CallError
from lstm_ir.ir.signature import Entry, Port
from lstm_ir.serving.batcher import BatchedModel, together
from lstm_ir.serving.rows import Array, Prepared, Rows

Batch = Mapping[str, Any]


class Columns:
    """An entry over batches of rows; columns are looked at before anything is computed."""

    def __init__(
        self,
        rows: Rows,
        inputs: Mapping[str, str] | None,
        outputs: Mapping[str, str],
        constants: Mapping[str, Any],
        keep: Sequence[str],
        max_rows: int | None,
    ) -> None:
        """`inputs` and `outputs`: the column of each; `constants`: values of inputs that have no batch axis."""
        entry = rows.entry
        self.rows, self._max, self._keep = rows, max_rows, tuple(keep)
        ports = {p.name: (p, a) for p, a in zip(entry.inputs, rows.inputs, strict=True)}
        per_row = {n: p for n, (p, a) in ports.items() if a.batch is not None}
        for name in {**(inputs or {}), **constants}:
            if name not in ports:
                raise CallError(f"{entry.name}: there is no input {name!r}; there is {', '.join(ports)}")
        for name in constants:
            if name in per_row:
                raise CallError(f"{entry.name}: input {ports[name][0]} has a value for each row: name its column")
        chosen = {n: n for n in per_row if n != rows.lengths} if inputs is None else dict(inputs)
        for name, (p, axes) in ports.items():
            if axes.batch is None and name in chosen:
                raise CallError(f"{entry.name}: input {p} is one value for all rows: give it among constants")
            given = name in constants if axes.batch is None else name in chosen or name == rows.lengths
            if not given:
                where = "constants" if axes.batch is None else "inputs"
                raise CallError(f"{entry.name}: input {p} is missing: name it among {where}")
        self._constants = dict(constants)
        self._taken = [_Column(p, chosen[n], ports[n][1].batch or 0) for n, p in per_row.items() if n in chosen]
        if not self._taken:  # only the lengths have a value for each row, and nobody says how many
            named = ", ".join(f"{n!r}: COLUMN" for n in per_row)
            raise CallError(f"{entry.name}: no column tells how many rows there are: name one, inputs={{{named}}}")
        self._columns = {n: outputs[n] for n in rows.wanted}
        names = [*self._keep, *self._columns.values()]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise CallError(f"{entry.name}: two columns of the result are called {twice!r}")

    def __call__(self, batch: Batch, model: BatchedModel) -> dict[str, Array]:
        """The outputs' columns, and those that are kept, for the rows of `batch`."""
        if not isinstance(batch, Mapping):
            raise CallError(f"a batch is columns by name; got {type(batch).__name__}")
        found = [c.find(batch) for c in self._taken]
        count = self._count(found)
        kept = {n: _present(batch, n) for n in self._keep}
        for name, column in kept.items():
            if len(column) != count:
                raise CallError(f"column {name!r} has {len(column)} rows, column {self._taken[0].name!r} {count}")
        if count == 0:
            return {**kept, **{c: self._nothing(n) for n, c in self._columns.items()}}
        whole = [c.whole(a) for c, a in zip(self._taken, found, strict=True)]
        if all(isinstance(a, np.ndarray) and a.dtype != object for a in whole):
            return {**kept, **self._even(whole, count, model)}
        return {**kept, **self._uneven(whole, count, model)}

    def _count(self, columns: Sequence[Any]) -> int:
        counts = [len(a) for a in columns]
        for c, n in zip(self._taken, counts, strict=True):
            if n != counts[0]:
                raise CallError(f"column {c.name!r} has {n} rows, column {self._taken[0].name!r} {counts[0]}")
        return counts[0]

    def _nothing(self, output: str) -> Array:
        """The column of an output for no rows; open sizes are 0."""
        port, axis = self._port(output)
        sizes = [n if isinstance(n, int) else 0 for n in port.type.shape]
        del sizes[axis]
        return np.zeros((0, *sizes), port.type.dtype.numpy)

    def _port(self, output: str) -> tuple[Port, int]:
        port = next(p for p in self.rows.entry.outputs if p.name == output)
        return port, self.rows.outputs[output].batch or 0

    def _prepare(self, values: Sequence[Array], where: str) -> Prepared:
        arrays = {c.port.name: a for c, a in zip(self._taken, values, strict=True)}
        try:
            return self.rows.prepare({**self._constants, **arrays})
        except CallError as e:
            raise CallError(f"{where}: {e}") from None

    def _even(self, whole: Sequence[Array], count: int, model: BatchedModel) -> dict[str, Array]:
        """By one call, or as many as `max_rows` asks for."""
        names = "column" + "s" * (len(self._taken) > 1) + " " + ", ".join(repr(c.name) for c in self._taken)
        size = count if self._max is None else self._max
        parts = []
        for start in range(0, count, size):
            values = [np.moveaxis(a[start : start + size], 0, c.axis) for a, c in zip(whole, self._taken, strict=True)]
            parts += together(self.rows, model, [self._prepare(values, names)])
        out = {}
        for name, column in self._columns.items():
            axis = self._port(name)[1]
            out[column] = np.concatenate([np.moveaxis(p[name], axis, 0) for p in parts])
        return out

    def _uneven(self, whole: Sequence[Any], count: int, model: BatchedModel) -> dict[str, Array]:
        """By a call for each class of lengths."""
        groups: dict[Hashable, list[tuple[int, Prepared]]] = {}
        for i in range(count):
            values = [np.expand_dims(c.row(a, i), c.axis) for a, c in zip(whole, self._taken, strict=True)]
            prepared = self._prepare(values, f"row {i}")
            groups.setdefault(prepared.key, []).append((i, prepared))
        found: list[dict[str, Array]] = [{}] * count
        for group in groups.values():
            group.sort(key=lambda item: item[1].steps)
            size = len(group) if self._max is None else self._max
            for start in range(0, len(group), size):
                some = group[start : start + size]
                for (i, _), outputs in zip(some, together(self.rows, model, [p for _, p in some]), strict=True):
                    found[i] = outputs
        return {column: self._gathered(name, found) for name, column in self._columns.items()}

    def _gathered(self, name: str, outputs: Sequence[Mapping[str, Array]]) -> Array:
        """Rows of one output: an array, or objects where sizes are open, whether they differ in this batch or not."""
        port, axis = self._port(name)
        rows = [np.take(r[name], 0, axis) for r in outputs]
        if all(isinstance(n, int) for i, n in enumerate(port.type.shape) if i != axis):
            return np.stack(rows)
        out = np.empty(len(rows), object)
        for i, r in enumerate(rows):
            out[i] = r
        return out


class _Column:
    """A column that an input is taken from."""

    def __init__(self, port: Port, name: str, axis: int) -> None:
        self.port, self.name, self.axis = port, name, axis
        self._dims = [n for i, n in enumerate(port.type.shape) if i != axis]

    def find(self, batch: Batch) -> Any:
        """The column: an array with rows, or a list."""
        return _present(batch, self.name)

    def whole(self, column: Any) -> Any:
        """The column as one array of the input's dtype, or as it is where each row is an object of its own."""
        if isinstance(column, np.ndarray) and column.dtype != object:
            a = take(Conform(f"column {self.name!r}", self.port.type.dtype), column)
            self._fits(a.shape[1:], f"column {self.name!r}")
            return a
        if not self._dims:  # a number for each row
            rows = [self.row(column, i) for i in range(len(column))]
            return np.array(rows, self.port.type.dtype.numpy)
        return column

    def row(self, column: Any, i: int) -> Array:
        """One row, as an array of the input's dtype."""
        where = f"column {self.name!r}, row {i}"
        value = column[i]
        if isinstance(value, np.ndarray) and value.dtype == object:
            value = list(value)
        if isinstance(value, (list, tuple)):
            if not value:
                value = self._nothing()
            elif any(isinstance(v, np.ndarray) for v in value):
                value = _stacked(value, where)
        a = take(Conform(where, self.port.type.dtype), value)
        self._fits(a.shape, where)
        return a

    def _nothing(self) -> Array:
        """A row of no steps, of which a list does not say how wide they would be."""
        first, *rest = self._dims or [0]
        sizes = [n for n in rest if isinstance(n, int)]
        whole = not isinstance(first, int) and len(sizes) == len(rest)
        return np.zeros((0, *sizes) if whole else (0,), self.port.type.dtype.numpy)

    def _fits(self, shape: tuple[int, ...], where: str) -> None:
        expected = f"a row of [{','.join(map(str, self._dims))}] for input {self.port}"
        if len(shape) != len(self._dims):
            raise CallError(f"{where}: expected {expected}, got [{','.join(map(str, shape))}]")
        for want, n in zip(self._dims, shape, strict=True):
            if isinstance(want, int) and want != n:
                raise CallError(f"{where}: expected {expected}, got [{','.join(map(str, shape))}]")


def _stacked(rows: Sequence[Any], where: str) -> Array:
    """A row that is a list of arrays, as readers of nested lists give it."""
    try:
        return np.stack(rows)
    except (ValueError, TypeError) as e:
        raise CallError(f"{where}: its parts make no array: {e}") from None


def _present(batch: Batch, name: str) -> Any:
    if name not in batch:
        raise CallError(f"there is no column {name!r}; the batch has {', '.join(map(str, batch)) or 'none'}")
    column = batch[name]
    listed = isinstance(column, (list, tuple)) or (isinstance(column, np.ndarray) and column.ndim > 0)
    if not listed:
        got = "an array without axes" if isinstance(column, np.ndarray) else f"a {type(column).__name__}"
        raise CallError(f"column {name!r} is {got}; expected an array or a list with an element for each row")
    return column


def ports_of(entry: Entry, outputs: Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
    """The column of each output that is wanted: its own name where there is no other."""
    if isinstance(outputs, Mapping):
        return dict(outputs)
    return {n: n for n in ([p.name for p in entry.outputs] if outputs is None else outputs)}
