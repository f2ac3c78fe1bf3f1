"""Checkpoints: a state file whose metadata say where in the data the run is."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstm_ir.backends.files import state_file
from lstm_ir.ir.errors import PackageError

if TYPE_CHECKING:
    from lstm_ir.backends.run.executable import Session

Array = np.ndarray[Any, Any]
_NAME = "fit"  # of the entry of the metadata


@dataclass
class Position:
    """Where a run is. `batch` counts those of the present epoch, `step` all; `due`: a report has to come first."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    due: bool = False
    sums: dict[str, float] = field(default_factory=dict)  # since the last report
    count: int = 0
    last: dict[str, float] = field(default_factory=dict)  # of the last step, where it was interrupted
    best: float | None = None  # the lowest loss of a validation, and its step
    best_step: int | None = None
    waited: int = 0  # validations since then

    @property
    def last_epoch(self) -> int:
        """The epoch of the last step, from 0. `epoch` is the next one once all batches are done."""
        return self.epoch if self.batch else self.epoch - 1


def best_path(path: str | Path) -> Path:
    """Where the best state lies beside a checkpoint: run.best.safetensors of run.safetensors."""
    file = Path(path)
    return file.with_name(f"{file.stem}.best{file.suffix}")


def save(path: str | Path, session: Session, position: Position) -> None:
    """State and position in one file, which is replaced in one step."""
    state_file.write(path, session.state.snapshot(), {_NAME: json.dumps(asdict(position))})


def load(path: str | Path, session: Session, *, need_best: bool = False) -> Position:
    """The state of the file, and its position; PackageError, and no change, for a file that is no checkpoint.

    need_best: the best state that it speaks of has to lie beside it, unless it is the checkpoint's own.
    """
    arrays, metadata = state_file.read_with_metadata(path)
    position = _position(metadata.get(_NAME), str(path))
    if need_best and position.best_step is not None and position.best_step != position.step:
        _read_best(path, position.best_step)
    session.state.update_all(arrays, str(path))
    return position


def load_best(path: str | Path, session: Session, step: int) -> None:
    """The best state beside a checkpoint; PackageError, and no change, where none is there or it is of another step."""
    session.state.update_all(_read_best(path, step), str(best_path(path)))


def _read_best(path: str | Path, step: int) -> dict[str, Array]:
    best = best_path(path)
    wanted = f"the state of step {step}, with which a run with patience ends"
    remedy = f"put it beside {path}, or resume without patience"
    if not best.is_file():
        raise PackageError(f"{best} is missing: {wanted}; {remedy}")
    arrays, metadata = state_file.read_with_metadata(best)
    found = _position(metadata.get(_NAME), str(best)).step
    if found != step:
        raise PackageError(f"{best} is the state of step {found}, not {wanted}; {remedy}")
    return arrays


def _position(text: str | None, where: str) -> Position:
    if text is None:
        raise PackageError(f"{where}: a state file that fit did not write; load_state reads it")
    try:
        found: Any = json.loads(text)
        position = Position(**found)
    except (ValueError, TypeError, RecursionError):
        raise PackageError(f"{where}: the position of the run is damaged") from None
    counts = (position.epoch, position.batch, position.step, position.count, position.waited)
    both = isinstance(position.sums, dict) and isinstance(position.last, dict)
    numbers: list[Any] = [*position.sums.values(), *position.last.values()] if both else [None]
    numbers += [] if position.best is None else [position.best]
    good = all(type(n) is int and n >= 0 for n in counts) and isinstance(position.due, bool)
    good = good and all(isinstance(v, float) and not isinstance(v, bool) for v in numbers)
    if not good or not (position.best_step is None or type(position.best_step) is int):
        raise PackageError(f"{where}: the position of the run is damaged")
    return position


def better(loss: float, position: Position) -> bool:
    """Whether this loss is the lowest so far; one that is no number is not."""
    return not math.isnan(loss) and (position.best is None or loss < position.best)
