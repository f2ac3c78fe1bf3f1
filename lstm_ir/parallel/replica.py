"""One copy of the state that is trained, and what it answers: gradients of some rows, an update, a state to take.

Every message names the step that it belongs to, and every copy knows its own from its state (`step` of
`li.train_step`). So a message that comes twice does nothing twice, and a copy that is behind says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from lstm_ir.ir.errors import (
    CallError,
    DeviceError,
    LstmIrError,
    MissingLibraryError,
    PackageError,
    TargetError,
    ValueRangeError,
)
from lstm_ir.ir.signature import Entry
from lstm_ir.loading import load
from lstm_ir.parallel.cpu_share import use_threads

Array = np.ndarray[Any, Any]
GRADS, APPLY, LOAD = "grads", "apply", "load"
PLATEAU = "plateau"  # the entry that reports a metric to a learning rate
STEP = "step"  # the state variable that counts
MICRO = "micro_step"  # the one that counts calls of an update that takes several
PREFIX = "d_"  # of the gradient of a weight
_KINDS = (CallError, DeviceError, MissingLibraryError, PackageError, TargetError, ValueRangeError)  # of a reply


class Opening(NamedTuple):
    """What a copy is made of, as plain data."""

    path: str
    device: str | None = None
    require_key: bytes | None = None
    threads: int | None = None
    digest: str | None = None  # of the package, where it has to be one that another copy has loaded


class Reply(NamedTuple):
    """What came of a message; `step`: that of the copy now."""

    step: int
    arrays: dict[str, Array]
    done: bool = True  # False: the copy is at another step than the message
    error: tuple[str, str] | None = None  # class and text; nothing has changed


class Replica:
    """A package of `li.train_step` with its state, in this process."""

    def __init__(self, opening: Opening) -> None:
        """PackageError and DeviceError as in `li.load`.

        CallError for a package that does not train in two entries, or whose state these two do not change as `train`
        does.
        """
        use_threads(opening.threads)
        self._exe = load(opening.path, opening.device, require_key=opening.require_key)
        self.digest = self._exe.digest
        if opening.digest not in (None, self.digest):
            self._exe.close()
            raise PackageError(f"{opening.path}: it is another package than the one that the trainer has loaded")
        entries = self._exe.entries
        problem = _unfit(self._exe.state, {n: f.entry for n, f in entries.items()})
        if problem is not None:
            self._exe.close()
            raise CallError(f"{opening.path}: {problem}")
        self.grads, self.apply = entries[GRADS].entry, entries[APPLY].entry

    @property
    def step(self) -> int:
        """Steps that are done."""
        return int(self._exe.state[STEP])

    def state(self) -> dict[str, Array]:
        """Every state variable, as of one moment."""
        return self._exe.state.snapshot()

    def save(self, path: Any) -> None:
        """The state as a safetensors file, in one step."""
        self._exe.save_state(path)

    def load(self, path: Any) -> None:
        """The state from a file; PackageError, and no change, if it does not fit."""
        self._exe.load_state(path)

    def answer(self, verb: str, step: int, arrays: Mapping[str, Array]) -> Reply:
        """Do what the message says, if this copy is at its step; what the project refuses is in the reply."""
        try:
            here = self.step
            if verb == LOAD:
                self._exe.state.update_all(arrays, "the state of the trainer")
                return Reply(self.step, {})
            if verb == APPLY and here == step + 1:
                return Reply(here, {})  # done before
            if here != step:
                return Reply(here, {}, done=False)
            found = self._exe.entries[verb](arrays)
            return Reply(self.step, found)
        except LstmIrError as e:
            return Reply(self.step, {}, error=(type(e).__name__, str(e)))

    def close(self) -> None:
        """Free its memory."""
        self._exe.close()


def _unfit(state: Collection[str], entries: Mapping[str, Entry]) -> str | None:
    """Why steps of `grads` and `apply` cannot be those of `train`; None where they are."""
    if not {GRADS, APPLY} <= set(entries) or STEP not in state:
        there = f"it has {', '.join(entries)}"
        return f"no package of li.train_step(..., grads=True), with the entries grads and apply; {there}"
    grads, apply = entries[GRADS], entries[APPLY]
    both = sorted({p.name for p in grads.inputs} & {p.name for p in grads.outputs})
    if both:
        return f"it carries {both[0]!r} from call to call, which a Trainer does not: parts of a batch are in any order"
    moved = {n for e in (apply, entries.get(PLATEAU)) if e is not None for n in (*e.reads, *e.writes)}
    still = sorted(set(state) - moved)
    if MICRO in still:
        return (
            "several calls of its `train` make one update (accumulate), which a Trainer does not support: each of its "
            "steps is an update; make the package without accumulate, and step over larger batches"
        )
    if still:
        return (
            f"its `train` moves {still[0]!r}, a running statistic, which a Trainer does not support: the entries grads "
            "and apply leave it as it is"
        )
    return None


def gradients(entry: Entry) -> list[str]:
    """Of `grads` or `apply`: the names of what is averaged, in order."""
    ports = entry.outputs if entry.name == GRADS else entry.inputs
    return [p.name for p in ports if p.name.startswith(PREFIX)]


def error_of(error: tuple[str, str], where: str = "") -> LstmIrError:
    """The error of a reply, as it was raised."""
    kind = next((k for k in _KINDS if k.__name__ == error[0]), LstmIrError)
    return kind(f"{where}: {error[1]}" if where else error[1])
