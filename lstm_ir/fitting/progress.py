"""The line that says how far a run is: loss, accuracy, steps per second, share of the processor's peak."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from lstm_ir.ir.types import DType
from lstm_ir.measurement.machine import peak

if TYPE_CHECKING:
    from lstm_ir.backends.run.calls import Function
    from lstm_ir.backends.run.executable import Session

_PAUSE = 0.2  # seconds between two changes of the line on a terminal
_SIZE = 1024  # of the product whose speed is the peak: it takes 0.1 s rather than 1 s


class Clock:
    """Seconds and steps of training alone, since the last report and since the line was last shown."""

    def __init__(self) -> None:
        self.seconds, self.steps = 0.0, 0
        self._began = time.perf_counter()

    def go(self) -> None:
        """A step begins."""
        self._began = time.perf_counter()

    def tick(self) -> None:
        """It has ended."""
        self.seconds += time.perf_counter() - self._began
        self.steps += 1

    def taken(self) -> float:
        """Steps per second; counting begins anew."""
        rate = self.steps / self.seconds if self.seconds > 0 else 0.0
        self.seconds, self.steps = 0.0, 0
        return rate


class Share:
    """The share of the processor's peak that steps reach; None where operations or the peak are not known.

    The peak is an f32 product by NumPy: so a program of f64 has none here.
    """

    def __init__(self, function: Function, session: Session) -> None:
        kinds = {p.type.dtype for p in function.inputs} | {v.dtype for v in _floats(session)}
        self._function, self._known = function, function.on_cpu and DType.f64 not in kinds
        self._peak: float | None = None

    def of(self, batch: Mapping[str, Any], rate: float) -> float | None:
        """The share at `rate` steps per second with such batches."""
        operations = self._function.operations(batch) if self._known else None
        if operations is None:
            return None
        if self._peak is None:
            self._peak = peak(_SIZE)
        return operations * rate / (self._peak * 1e9)


def _floats(session: Session) -> list[Any]:
    return [v.type for v in session.state.variables.values()]


class Progress:
    """One line on standard error: rewritten on a terminal, a line for each report elsewhere."""

    def __init__(self, share: Share, of: str, stream: TextIO | None = None) -> None:
        self._share, self._of = share, of
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._last, self._width = time.monotonic(), 0

    def due(self) -> bool:
        """Whether a terminal's line is old."""
        return self._terminal and time.monotonic() - self._last > _PAUSE

    def show(
        self, step: int, epoch: int, values: Mapping[str, float], rate: float, batch: Mapping[str, Any] | None,
        *, report: bool,
    ) -> None:  # fmt: skip
        """Write the line; a report stays where the next line comes below it."""
        share = None if batch is None else self._share.of(batch, rate)
        shown = {n: v for n, v in values.items() if n.rpartition("/")[2] in ("loss", "accuracy")}
        parts = [f"epoch {epoch}", f"step {step}{self._of}", *(f"{n} {v:.4g}" for n, v in shown.items())]
        parts.append(f"{rate:.3g} steps/s" if rate < 1000 else f"{rate:.0f} steps/s")
        parts += [] if share is None else [f"{share:.0%} of peak"]
        self._write("  ".join(parts), stays=report)

    def say(self, text: str) -> None:
        """A line of its own."""
        self._write(text, stays=True)

    def _write(self, text: str, *, stays: bool) -> None:
        if not (self._terminal or stays):
            return
        start = "\r" if self._terminal else ""
        self._stream.write(start + text.ljust(self._width if self._terminal else 0) + ("\n" if stays else ""))
        self._stream.flush()
        self._width = 0 if stays else len(text)
        self._last = time.monotonic()
