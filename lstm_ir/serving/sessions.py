"""`li.Sessions`: the state of many clients over one executable, their calls gathered into one.

    session(x=a) (any thread) ─> its lane ─> Scheduler ─> state of each session beside its inputs ─> Rows.merge
      ─> one call of the entry as a function of its state ─> Rows.split ─> outputs to callers, new state to sessions

Each session owns its arrays. So a session starts from what the program says, never from what another has left, and
what a closed session held is gone. State changes when a call has succeeded, not before. Reads and writes of state
stand in the session's lane as its calls do, so they happen between two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from lstm_ir.backends.run.pure_function import PREFIX, PureFunction
from lstm_ir.ir.called import told
from lstm_ir.ir.errors import CallError
from lstm_ir.ir.flags import confirm_flags
from lstm_ir.serving.batcher import WORDS, Outputs, limits, need_same, whole
from lstm_ir.serving.durations import seconds
from lstm_ir.serving.owner import SchedulerOwner
from lstm_ir.serving.row_check import confirm_rows
from lstm_ir.serving.rows import Prepared, Rows
from lstm_ir.serving.scheduler import Scheduler
from lstm_ir.serving.session import ClientSession, Name
from lstm_ir.serving.session_keeper import SessionKeeper

Array = np.ndarray[Any, Any]


class Sessions(SchedulerOwner):
    """Sessions of one executable whose program keeps state, at most `max_sessions` at once."""

    @told({**WORDS, "ttl": "idle_timeout, seconds", "max_count": "max_sessions"}, "Sessions")
    def __init__(
        self,
        exe: Any,
        *,
        entry: str | None = None,
        max_sessions: int = 1000,
        idle_timeout: float | None = 600.0,
        batch: str = "B",
        time: str = "T",
        lengths: str | None = None,
        outputs: Sequence[str] | None = None,
        max_batch: int = 64,
        max_delay: float = 0.001,
        max_waiting: int = 1024,
        pad: bool = True,
        check: bool = True,
    ) -> None:
        """`exe`: an executable whose state has the size `batch`; `entry` reads and writes it, by default `step`.

        idle_timeout: seconds after which a session that asks for nothing is closed; None: never. The others are those
        of `Batcher`. CallError for an entry whose sessions cannot share a call.
        """
        max_delay = limits(max_batch, max_delay, max_waiting)
        confirm_flags(pad=pad, check=check)
        whole("max_sessions", max_sessions)
        if idle_timeout is not None:
            idle_timeout = seconds("idle_timeout", idle_timeout)
        function = _stateful(exe, entry)
        pure: PureFunction = function.pure()
        self._chosen = entry
        inputs = Rows(function.entry, batch, time, lengths, outputs)
        written = [PREFIX + n for n in function.entry.writes]
        rows = Rows(pure.entry, batch, time, lengths, [*inputs.wanted, *written])
        for name in function.entry.reads:
            if batch not in pure.state[name].type.names:
                raise CallError(
                    f"{function.entry.name}: state {name}: {pure.state[name].type} has no axis of size {batch}, "
                    "so it is not that of one session"
                )
        if not (pad and rows.pads):
            rows.without_padding()
            inputs.without_padding()
        if check:
            confirm_rows(rows, pure)
        self._keeper = SessionKeeper(pure, inputs, rows, function.entry, max_batch, max_sessions, idle_timeout)
        scheduler = Scheduler(
            self._keeper.run, "sessions", max_rows=max_batch, max_delay=max_delay, max_waiting=max_waiting,
            tidy=self._keeper.evict, settled=self._keeper.settled,
        )  # fmt: skip
        self._keeper.scheduler = scheduler
        super().__init__(inputs, scheduler)

    @property
    def evicted(self) -> int:
        """Sessions that were closed since they asked for nothing."""
        return self._keeper.evicted

    def __len__(self) -> int:
        return len(self._keeper.open)

    def open(self, name: Name | None = None, *, restart: bool = False) -> ClientSession:
        """A session that starts as the program says; without a name it gets one that no other is equal to.

        restart: one that is open under this name is closed. CallError for a name that is taken, BusyError where as
        many are open as may.
        """
        confirm_flags(restart=restart)
        return ClientSession(self._keeper.add(name, restart), self._keeper, self)

    def get(self, name: Name) -> ClientSession:
        """The session that is open under this name; UnknownSessionError where none is."""
        return ClientSession(self._keeper.find(name), self._keeper, self)

    def has(self, name: Name) -> bool:
        """Whether a session is open under this name."""
        return name in self._keeper.open

    def close(self) -> None:
        """Take no more calls; come back when all that were accepted have their results."""
        super().close()
        for session in list(self._keeper.open.values()):
            self._keeper.remove(session, "all were closed")


def step(
    sessions: Sessions, name: Name, inputs: Prepared, until: float | None, *, begins: bool = False,
    ends: bool = False, confirm: Callable[[Outputs], None] | None = None,
) -> Future[Outputs]:  # fmt: skip
    """Queue a step of the session of this name, whose inputs were checked.

    begins: it starts as the program says, and the session is opened where it is not. ends: the session is closed
    with it. Both happen when the step succeeds: one that fails leaves the session as it was, or not open. confirm
    raises for outputs with which the step fails.
    """
    return sessions._keeper.step(name, inputs, until, begins, ends, confirm)


def whole_state(sessions: Sessions, arrays: Mapping[str, Any], where: str) -> tuple[dict[str, Array], int, int]:
    """Copies of the arrays, and their rows and steps; PackageError, which begins with `where`, for no whole state."""
    held = sessions._keeper.checked(arrays, where)
    return held, *sessions._keeper.reach_of(held)


def put_state(sessions: Sessions, name: Name, held: dict[str, Array]) -> Future[None]:
    """Queue that the session of this name goes on from this state, checked; it is opened where it is not."""
    return sessions._keeper.put(name, held)


def renew(sessions: Sessions, exe: Any) -> None:
    """Let sessions call this executable from now on, with their state; DeviceError where its entry is another."""
    function = _stateful(exe, sessions._chosen)
    need_same(sessions.entry, function.entry)
    sessions._keeper.pure = function.pure()


def _stateful(exe: Any, entry: str | None) -> Any:
    """The entry of an executable that reads and writes state."""
    entries = getattr(exe, "entries", None)
    if entries is None:
        raise CallError(f"sessions take an executable, got {type(exe).__name__}")
    if entry is not None:
        found = entries[entry]
        if not (found.entry.reads and found.entry.writes):
            raise CallError(f"{entry}: it does not keep state from call to call; li.Batcher serves it")
        return found
    known = steps(exe)
    if len(known) != 1 and "step" not in known:
        kept = f"there are {', '.join(known)}" if known else "there is none; li.Batcher serves such programs"
        raise CallError(f"sessions take the entry that reads and writes state: {kept}")
    return entries["step" if "step" in known else known[0]]


def steps(exe: Any) -> list[str]:
    """Names of the entries that read and write state."""
    return [n for n, f in exe.entries.items() if f.entry.reads and f.entry.writes]
