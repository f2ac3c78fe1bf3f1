"""A runner in a process of its own: a package as it is deployed, or a peer that changes its process.

The process takes its turns when it is told to (side_by_side.py), and waits in between without using a processor.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lstm_ir.bench.subject import Array, Subject, TimedRun
from lstm_ir.measurement.side_by_side import Here

PACKAGE = "package"


class ElsewhereError(RuntimeError):
    """What went wrong in the process, or that it took too long."""


class OtherProcess:
    """A process that has loaded a package of the subject, or made one of its peers."""

    def __init__(self, subject: Subject, who: str, threads: int, package: Path | None = None) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._calls, theirs = spawn.Pipe()
        path = None if package is None else str(package)
        self._process = spawn.Process(target=_serve, args=(theirs, subject, who, threads, path), daemon=True)
        self._process.start()
        theirs.close()

    def warm(self) -> None:
        """Call with every input once."""
        self._ask("warm")

    def turn(self, turn: int) -> list[float]:
        """Seconds of each counted call of a turn, measured there."""
        times: list[float] = self._ask("turn", turn)
        return times

    def results(self, limit: float | None = None) -> list[dict[str, Array]]:
        """What the calls give, in order; ElsewhereError where that takes more seconds than `limit`."""
        found: list[dict[str, Array]] = self._ask("results", limit=limit)
        return found

    def close(self) -> None:
        """End the process."""
        self._calls.close()  # ends the loop there
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ask(self, *question: Any, limit: float | None = None) -> Any:
        try:
            self._calls.send(question)
            if limit is not None and not self._calls.poll(limit):
                self._process.kill()
                raise ElsewhereError(f"no result within {limit:g} s")
            problem, found = self._calls.recv()
        except (EOFError, BrokenPipeError):
            self._process.join(10)
            raise ElsewhereError(f"its process ended with code {self._process.exitcode}") from None
        if problem is not None:
            raise ElsewhereError(problem)
        return found


def _serve(calls: Connection, subject: Subject, who: str, threads: int, package: str | None) -> None:
    side: _Side | None = None
    while True:
        try:
            word, *values = calls.recv()
        except EOFError:
            return
        try:
            side = _Side(subject, who, threads, package) if side is None else side
            answer: tuple[str | None, Any] = (None, getattr(side, word)(*values))
        except Exception as e:  # whatever a compiler raises is told, not lost
            answer = (f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else ''}", None)
        calls.send(answer)


class _Side:
    """What answers there."""

    def __init__(self, subject: Subject, who: str, threads: int, package: str | None) -> None:
        self.runner = _runner(subject, who, threads, package)
        self.here = Here(self.runner.run, subject.calls(), subject.turn_calls)

    def warm(self) -> None:
        self.here.warm()

    def turn(self, turn: int) -> list[float]:
        return self.here.turn(turn)

    def results(self) -> list[dict[str, Array]]:
        return [self.runner.read(self.runner.run(call)) for call in self.here.inputs]


def _runner(subject: Subject, who: str, threads: int, package: str | None) -> TimedRun:
    if who == PACKAGE:
        import lstm_ir as li
        from lstm_ir.loading import set_threads

        assert package is not None
        set_threads(threads)
        return subject.runner(li.load(package))
    made = subject.peers_elsewhere()[who](threads)
    if made is None:
        raise LookupError(f"{who} does not run {subject.name}")
    return made
