"""Packages on many machines: `Predictor`, the class that Ray Data's `map_batches` takes, and `Trainer` on Ray's actors.

    ds.map_batches(lstm_ir.ray.Predictor, fn_constructor_args=["/models/m.lirpkg"],
                   fn_constructor_kwargs={"inputs": {"x": "frames"}}, batch_size=256, concurrency=4, num_cpus=2)

`Predictor` needs no Ray: it is a callable that takes and gives columns by name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lstm_ir.backends.run import runtime
from lstm_ir.ir.errors import CallError, PackageError
from lstm_ir.ir.options import is_int
from lstm_ir.loading import load
from lstm_ir.parallel import trainer
from lstm_ir.parallel.cpu_share import use_threads
from lstm_ir.parallel.links import Transport
from lstm_ir.parallel.parts import Weigh
from lstm_ir.parallel.ray_actors import Actors
from lstm_ir.parallel.replica import Opening
from lstm_ir.serving.batcher import model_of
from lstm_ir.serving.columns import Columns, ports_of
from lstm_ir.serving.row_check import confirm_rows
from lstm_ir.serving.rows import Rows

__all__ = ["Predictor", "Trainer"]

Array = np.ndarray[Any, Any]


class Predictor:
    """One entry of a package, called with a batch of rows: columns by name in, columns by name out."""

    def __init__(
        self,
        path: str | Path,
        entry: str | None = None,
        inputs: Mapping[str, str] | None = None,
        outputs: Sequence[str] | Mapping[str, str] | None = None,
        *,
        constants: Mapping[str, Any] | None = None,
        keep: Sequence[str] = (),
        batch: str = "B",
        time: str = "T",
        lengths: str | None = None,
        max_rows: int | None = None,
        threads: int | None = None,
        device: str | None = None,
        require_key: bytes | str | None = None,
        map_weights: bool = True,
        check: bool = True,
    ) -> None:
        """`path`: the package, where each process finds it. `entry`: its name; the default is `main`, or the only one.

        inputs: the column of each input; the default is one of the same name. outputs: those that are wanted, or the
        column of each; the default is all, by their names. constants: values of inputs without an axis for the
        batch. keep: columns that go into the result as they are. batch, time: names of the sizes that are rows and
        steps. lengths: the input with the steps of each row; the default is the one that a recurrent layer reads; it
        is made where it has no column. max_rows: of one call; the default is all rows of a batch that may share one.
        threads: workers on the CPU; the default is the actor's share in Ray, otherwise what the process has.
        device, require_key: as in `li.load`. map_weights: processes share the memory of the weights; nobody may
        write into the file (it may be replaced). check: try, when the package is loaded, that rows of a call do not
        change each other.
        CallError for an entry that keeps state or whose rows cannot share a call, and for names that do not fit.
        """
        self._given: dict[str, Any] = {
            "path": _absolute(path), "entry": entry, "inputs": inputs, "outputs": outputs, "constants": constants,
            "keep": keep, "batch": batch, "time": time, "lengths": lengths, "max_rows": max_rows, "threads": threads,
            "device": device, "require_key": require_key, "map_weights": map_weights, "check": check,
        }  # fmt: skip
        self._lock = threading.Lock()
        self._opened: _Opened | None = _Opened(**self._given)

    def __getstate__(self) -> dict[str, Any]:
        """What the constructor was given: the other process loads the package at its first call."""
        return dict(self._given)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._given, self._lock, self._opened = state, threading.Lock(), None

    @property
    def threads(self) -> int:
        """Workers that calls on the CPU use in this process."""
        self._open()
        return runtime.threads()

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Array]:
        """The columns of the outputs, in the order of the rows, for columns by name.

        A column is an array [rows, ...], or an array of objects or a list with an array or list for each row; those
        may differ in sizes that have names. Outputs then are arrays of objects where a row has such sizes.
        CallError names the column, and the row, that does not fit.
        """
        opened = self._open()
        return opened.columns(batch, opened.model)

    def _open(self) -> _Opened:
        with self._lock:
            if self._opened is None:
                self._opened = _Opened(**self._given)
            return self._opened


class Trainer(trainer.Trainer):
    """As `lstm_ir.parallel.Trainer`, with Ray's actors as workers, on any machine of the cluster."""

    def __init__(
        self,
        package: str | Path,
        workers: int = 2,
        *,
        num_cpus: float = 1,
        batch: str = "B",
        weigh: Weigh | None = None,
        reduction: str = "mean",
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 1,
        resume: bool = False,
        device: str | None = None,
        require_key: bytes | str | None = None,
        timeout: float = 600.0,
    ) -> None:
        """`package`: found at the same path on every machine. num_cpus: of each actor, which uses so many threads.

        Ray is connected to as `ray.init()` does, where it is not yet. Parts, gradients and their average pass
        through Ray's object store: actors of one machine read the average from one place. The other parameters and
        the errors are those of `lstm_ir.parallel.Trainer`; MissingLibraryError without Ray.
        """
        if isinstance(num_cpus, bool) or not isinstance(num_cpus, (int, float)) or not 0 <= num_cpus < 1e6:
            raise CallError(f"num_cpus is {num_cpus!r:.80}; expected a number of processors")
        self._num_cpus = num_cpus
        super().__init__(
            package, workers, batch=batch, weigh=weigh, reduction=reduction, checkpoint=checkpoint,
            checkpoint_every=checkpoint_every, resume=resume, device=device, require_key=require_key, timeout=timeout,
        )  # fmt: skip

    def _reach(self, opening: Opening, timeout: float) -> Transport:
        return Actors(opening._replace(threads=None), self._num_cpus, timeout)


class _Opened:
    """The package in this process."""

    def __init__(
        self, path: str, entry: str | None, inputs: Mapping[str, str] | None,
        outputs: Sequence[str] | Mapping[str, str] | None, constants: Mapping[str, Any] | None, keep: Sequence[str],
        batch: str, time: str, lengths: str | None, max_rows: int | None, threads: int | None, device: str | None,
        require_key: bytes | str | None, map_weights: bool, check: bool,
    ) -> None:  # fmt: skip
        _words("inputs", inputs, mapping=True)
        _words("outputs", outputs, mapping=isinstance(outputs, Mapping))
        _words("keep", keep, mapping=False)
        if constants is not None and not isinstance(constants, Mapping):
            raise CallError(f"constants is a {type(constants).__name__}; expected values by the inputs' names")
        if max_rows is not None and (not is_int(max_rows) or max_rows < 1):
            raise CallError(f"max_rows is {max_rows!r}; expected a number of rows above 0")
        use_threads(threads)
        exe = load(path, device, {"map_weights": map_weights}, require_key=require_key)
        self.model = model_of(exe, entry)
        found = self.model.entry
        if found.writes:
            raise CallError(f"{found.name}: it keeps state between calls, so the order of rows would change results")
        columns = ports_of(found, outputs)
        rows = Rows(found, batch, time, lengths, tuple(columns))
        if check:
            confirm_rows(rows, self.model)
        self.columns = Columns(rows, inputs, columns, constants or {}, keep, max_rows)


def _absolute(path: object) -> str:
    """Workers have other folders that relative paths begin from."""
    if not isinstance(path, (str, os.PathLike)):
        raise PackageError(f"Predictor: takes the path of a package, got {type(path).__name__}")
    return os.path.abspath(os.fspath(path))


def _words(name: str, value: object, *, mapping: bool) -> None:
    if value is None:
        return
    words: list[object] = [None]
    if mapping and isinstance(value, Mapping):
        words = [*value, *value.values()]
    elif not mapping and isinstance(value, (list, tuple)):
        words = list(value)
    if not all(isinstance(w, str) for w in words):
        expected = "texts by name" if mapping else "a list of names"
        raise CallError(f"{name} is {value!r:.80}; expected {expected}")
