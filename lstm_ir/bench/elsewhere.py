"""A point from its package, in a process of its own: what is deployed.

The process takes its turns when it is told to (side_by_side.py), and waits in between without using a processor.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lstm_ir.bench import models
from lstm_ir.bench.models import Array
from lstm_ir.bench.points import Point
from lstm_ir.measurement.side_by_side import Here


class PackageProcess:
    """A process that has loaded a package of the point, whose sizes T and B are names."""

    def __init__(self, point: Point, package: Path, threads: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._calls, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, point, str(package), threads), daemon=True)
        self._process.start()
        theirs.close()

    def warm(self) -> None:
        """Call with every input once."""
        self._ask("warm")

    def turn(self, turn: int) -> list[float]:
        """Seconds of each counted call of a turn, measured there."""
        times: list[float] = self._ask("turn", turn)
        return times

    def result(self, call: int) -> dict[str, Array]:
        """What the call of this number gives."""
        found: dict[str, Array] = self._ask("result", call)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._calls.close()  # ends the loop there
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()

    def _ask(self, *question: Any) -> Any:
        self._calls.send(question)
        try:
            return self._calls.recv()
        except EOFError:
            self._process.join(10)
            raise RuntimeError(f"the process of the package ended with code {self._process.exitcode}") from None


def _serve(calls: Connection, point: Point, package: str, threads: int) -> None:
    import lstm_ir as li
    from lstm_ir.loading import set_threads

    set_threads(threads)
    runner = models.of_executable(point, models.weights(point), li.load(package))
    here = Here(runner.run, models.calls(point))
    while True:
        try:
            word, *values = calls.recv()
        except EOFError:
            return
        if word == "warm":
            here.warm()
            calls.send(None)
        elif word == "turn":
            calls.send(here.turn(*values))
        else:
            calls.send(runner.read(runner.run(here.inputs[values[0]])))
