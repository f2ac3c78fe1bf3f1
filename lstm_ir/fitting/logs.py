"""Logs of a run: a CSV file with a row for each step, or a writer of TensorBoard."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from lstm_ir.ir.errors import CallError, PackageError
from lstm_ir.ir.foreign_errors import become
from lstm_ir.ir.output_file import replacing

_FIRST = ("step", "epoch")


class NoLog:
    """Writes nothing."""

    def begin(self, names: Sequence[str], step: int) -> None:
        """Get ready for numbers of these names after `step`."""

    def write(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Keep the numbers of a step."""

    def flush(self) -> None:
        """Make everything readable for others."""

    def close(self) -> None:
        """Write no more."""


class ScalarLog(NoLog):
    """Every number goes to `add_scalar(name, number, step)` of a writer: TensorBoard's and others like it."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """As in the class."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)


class CsvLog(NoLog):
    """A row for each step; the columns of a validation are empty in steps without one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None
        self._rows: Any = None
        self._names: list[str] = []

    def begin(self, names: Sequence[str], step: int) -> None:
        """A new file, or, for a run that goes on after `step`, the old one without the rows that come later."""
        self._names = [*_FIRST, *names]
        kept = self._kept(step) if step else []
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([self._names, *kept])
        with become(PackageError, str(self._path)):
            with replacing(self._path, durable=False) as f:
                f.write(text.getvalue().encode())
            self._file = open(self._path, "a", encoding="utf-8", newline="")
            self._rows = csv.writer(self._file, lineterminator="\n")

    def _kept(self, step: int) -> list[list[str]]:
        with become(PackageError, str(self._path)):
            try:
                text = self._path.read_text(encoding="utf-8")
            except FileNotFoundError:
                return []
        rows = list(csv.reader(io.StringIO(text, newline="")))
        if not rows or rows[0] != self._names:
            have = ",".join(rows[0]) if rows else "nothing"
            problem = f"its columns are {have:.200}, this run has {','.join(self._names)}"
            raise PackageError(f"{self._path}: {problem}; give another log")
        whole = [r for r in rows[1:] if len(r) == len(self._names) and r[0].isdecimal()]
        return [r for r in whole if int(r[0]) <= step]

    def write(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """As in the class."""
        found: dict[str, Any] = {"step": step, "epoch": epoch, **values}
        with become(PackageError, str(self._path)):
            self._rows.writerow([repr(v) if isinstance(v := found.get(n, ""), float) else v for n in self._names])

    def flush(self) -> None:
        """As in the class."""
        if self._file is not None:
            with become(PackageError, str(self._path)):
                self._file.flush()

    def close(self) -> None:
        """As in the class."""
        if self._file is not None:
            with become(PackageError, str(self._path)):
                self._file.close()


def log_of(log: object) -> NoLog:
    """The log for a path, a writer, or None."""
    if log is None:
        return NoLog()
    if isinstance(log, (str, Path)):
        return CsvLog(Path(log))
    if callable(getattr(log, "add_scalar", None)):
        return ScalarLog(log)
    raise CallError(f"fit: log is {log!r:.80}; expected a path, or a writer with add_scalar(name, number, step)")
