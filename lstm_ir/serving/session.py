"""One client's state: what `li.Sessions` opens."""

from __future__ import annotations

import io
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lstm_ir.backends.files import safetensors, state_file
from lstm_ir.ir.errors import CallError
from lstm_ir.ir.signature import by_name
from lstm_ir.serving.batcher import Outputs, outcome
from lstm_ir.serving.durations import deadline
from lstm_ir.serving.rows import Prepared, Rows
from lstm_ir.serving.scheduler import Job

if TYPE_CHECKING:
    from typing import Self

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Unnamed:
    """The name of a session that was given none: no other is equal to it, and no request can spell it."""

    number: int

    def __repr__(self) -> str:
        return f"<unnamed {self.number}>"


Name = str | int | Unnamed


class KeptSession:
    """What is kept of an open session, apart from what its client holds."""

    def __init__(self, name: Name, *, begun: bool) -> None:
        """begun: false where only a step that begins it, or a whole state, may come first."""
        self.name, self.begun = name, begun
        self.lane: deque[Job] = deque()  # what it has asked for and is not done
        self.held: dict[str, Array] | None = None  # nothing before the first call
        self.used = time.monotonic()
        self.gone: str | None = None  # why it is closed


@dataclass(frozen=True, eq=False)
class SessionStep:
    """A call that a session asks for."""

    session: KeptSession
    inputs: Prepared
    begins: bool = False  # from the state that the program says, whatever the session holds
    ends: bool = False  # the session, once the call has succeeded
    confirm: Callable[[Outputs], None] | None = None  # raises for outputs that cannot be told: then no state changes


@dataclass(frozen=True, eq=False)
class Action:
    """What is done to a session between two of its calls."""

    session: KeptSession
    run: Callable[[], Any]
    begins: bool = False


class Keeper(Protocol):
    """What a session needs of the `Sessions` that opened it."""

    inputs: Rows  # of a call, without state

    def prepare(self, arrays: Mapping[str, Any], *, copied: bool = False) -> Prepared:
        """As `Rows.prepare` of the inputs of a call."""

    def submit(self, work: SessionStep | Action, until: float | None) -> Future[Any]:
        """Queue the work, behind what the session has asked for before."""

    def checked(self, arrays: Mapping[str, Any], where: str) -> dict[str, Array]:
        """Copies of arrays that are a whole state."""

    def snapshot(self, session: KeptSession) -> dict[str, Array]:
        """Copies of the session's state."""

    def remove(self, session: KeptSession, why: str) -> None:
        """Close it."""


class ClientSession:
    """The state of one client. Its calls, and reads and writes of its state, happen in the order of their making."""

    def __init__(self, kept: KeptSession, keeper: Keeper, owner: object) -> None:
        """owner: the `Sessions`, which are there as long as this is. What the worker holds holds no owner."""
        self.name, self._kept, self._keeper, self._owner = kept.name, kept, keeper, owner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientSession) and other._kept is self._kept

    def __hash__(self) -> int:
        return hash(self._kept)

    def submit(self, arrays: Mapping[str, Any], timeout: float | None = None) -> Future[Outputs]:
        """A future of the outputs; arrays, `timeout` and errors are those of `Batcher.submit`."""
        until = deadline(timeout)
        return submit_prepared(self, self._keeper.prepare(arrays, copied=True), until)

    def __call__(
        self, arrays: Mapping[str, Any] | None = None, /, *more: Any, timeout: float | None = None, **named: Any
    ) -> Outputs:
        """The outputs by name; the state is then that after this call."""
        given = named if arrays is None and not more else by_name(self._keeper.inputs.entry, (arrays, *more), named)
        until = deadline(timeout)
        found: Outputs = outcome(submit_prepared(self, self._keeper.prepare(given), until), timeout)
        return found

    def ask_state(self, timeout: float | None = None) -> Future[dict[str, Array]]:
        """A future of what `state` gives."""
        return self._alone(partial(self._keeper.snapshot, self._kept), timeout)

    def ask_set_state(self, arrays: Mapping[str, Any], where: str, timeout: float | None = None) -> Future[None]:
        """A future of the end of `set_state`; messages begin with `where`."""
        if not isinstance(arrays, Mapping):
            raise CallError(f"{where}: takes arrays by name, got {type(arrays).__name__}")
        held = self._keeper.checked(arrays, where)
        return self._alone(partial(go_on_from, self._kept, held), timeout, begins=True)

    def state(self, timeout: float | None = None) -> dict[str, Array]:
        """Copies of the state by name; before the first call, that of one row."""
        found: dict[str, Array] = outcome(self.ask_state(timeout), timeout)
        return found

    def set_state(self, arrays: Mapping[str, Any], timeout: float | None = None) -> None:
        """Go on from this state; PackageError, and no change, for names, shapes or dtypes that are others."""
        outcome(self.ask_set_state(arrays, f"session {self.name!r}", timeout), timeout)

    def save_state(self, path: str | Path) -> None:
        """Write the state to a .safetensors file, in one step."""
        state_file.write(path, self.state())

    def load_state(self, path: str | Path) -> None:
        """Go on from the state of a file; PackageError, and no change, if it does not fit."""
        outcome(self.ask_set_state(state_file.read(path), str(path)), None)

    def close(self) -> None:
        """Take no more calls; those that were accepted are made, then the state goes."""
        self._keeper.remove(self._kept, "it was closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _alone(self, run: Callable[[], Any], timeout: float | None, *, begins: bool = False) -> Future[Any]:
        until = deadline(timeout)
        return self._keeper.submit(Action(self._kept, run, begins), until)


def submit_prepared(
    session: ClientSession, inputs: Prepared, until: float | None, confirm: Callable[[Outputs], None] | None = None
) -> Future[Outputs]:
    """What `ClientSession.submit` gives, for inputs that were checked; a step fails where `confirm` raises."""
    return session._keeper.submit(SessionStep(session._kept, inputs, confirm=confirm), until)


def go_on_from(session: KeptSession, held: dict[str, Array]) -> None:
    """For the worker, between two calls: let the session have this state, which is then its own."""
    session.held, session.begun = held, True


def to_bytes(arrays: Mapping[str, Array]) -> bytes:
    """State as a safetensors file."""
    out = io.BytesIO()
    safetensors.write(out, arrays)
    return out.getvalue()


def from_bytes(data: bytes, where: str) -> dict[str, Array]:
    """The arrays of a safetensors file; PackageError for bytes that are none."""
    return safetensors.read_from(io.BytesIO(data), len(data), where)
