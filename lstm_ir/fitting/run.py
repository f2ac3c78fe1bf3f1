"""One run of `fit`: steps, reports between them, and its end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lstm_ir.fitting import checkpoint
from lstm_ir.fitting.batches import Batch, BatchSource, naming, need_batch
from lstm_ir.fitting.checkpoint import Position
from lstm_ir.fitting.history import History, Means, Record
from lstm_ir.fitting.interrupts import Interrupts
from lstm_ir.fitting.logs import NoLog
from lstm_ir.fitting.progress import Clock, Progress, Share
from lstm_ir.fitting.validation import PREFIX, Validation, scalars
from lstm_ir.ir.errors import CallError, LstmIrError

if TYPE_CHECKING:
    from lstm_ir.backends.run.executable import Session

Array = np.ndarray[Any, Any]


class RunLimits(NamedTuple):
    """When a run ends, and how often it reports; None is never, or after each epoch."""

    epochs: int | None
    steps: int | None
    every: int | None
    patience: int | None


class Run:
    """A session that is trained, and where in its data it is."""

    def __init__(
        self, session: Session, source: BatchSource, limits: RunLimits, validation: Validation | None,
        path: Path | None, log: NoLog, *, progress: bool,
    ) -> None:  # fmt: skip
        self._session, self._source, self._limits = session, source, limits
        self._validation, self._path, self._log = validation, path, log
        self._train = session.entries["train"]
        self._names = scalars(self._train)
        if not self._names or self._train.outputs[0].name != self._names[0]:
            raise CallError("fit: the first output of train is no number, so it is not the loss")
        if validation is not None and validation.names[:1] != [PREFIX + self._names[0]]:
            raise CallError(f"fit: the first output of evaluate is not {self._names[0]}, the loss of train")
        of = "" if limits.steps is None else f"/{limits.steps}"
        self._progress = Progress(Share(self._train, session), of) if progress else None
        self._at, self._means, self._clock = Position(), Means(), Clock()
        self._history = History(session)
        self._saved: int | None = None  # the step of the checkpoint
        self._kept: dict[str, Array] | None = None  # the best state, where no file has it
        self._last: Batch | None = None
        self._pending: tuple[int, int, dict[str, float]] | None = None  # a step that the log does not have yet

    def whole(self, interrupts: Interrupts, *, resume: bool) -> History:
        """Steps until the run ends."""
        if resume:
            assert self._path is not None
            self._at = checkpoint.load(self._path, self._session, need_best=self._limits.patience is not None)
            self._means = Means(self._at.sums, self._at.count)
            self._saved = self._at.step
            if self._at.best_step == self._at.step:  # the run may have ended before this state was written there
                self._keep_best()
        if self._validation is not None:
            self._validation.check()
        at = self._at
        if at.last:  # the last step has a row in the log, which may lack what its report adds
            self._pending = (at.step, at.last_epoch + 1, dict(at.last))
        names = [*self._names, *(self._validation.names if self._validation is not None else ())]
        self._log.begin(names, at.step - bool(at.last))
        try:
            self._loop(interrupts)
        except KeyboardInterrupt:
            whole = not interrupts.cut
            with interrupts.held():
                self._interrupted(whole)
            raise
        finally:
            self._log_pending()
            self._log.close()
        if self._limits.patience is not None:
            self._restore_best()
        self._history.best = self._at.best_step
        return self._history

    def _loop(self, interrupts: Interrupts) -> None:
        if self._at.due:
            self._report(interrupts)
        while not self._ends():
            self._epoch(interrupts)
        if self._means.count:
            self._last_report(interrupts)

    def _epoch(self, interrupts: Interrupts) -> None:
        """The rest of the present epoch, as far as the run goes."""
        at = self._at
        rest = self._source.open(at.epoch, at.batch)
        for given in rest:
            what = f"epoch {at.epoch + 1}, batch {at.batch + 1}"
            batch = need_batch(given, what)
            with interrupts.held():
                self._step(batch, what)
            if at.due:
                self._report(interrupts)
            elif self._progress is not None and self._progress.due():
                self._show(self._running(), report=False)
            if self._ends():
                if at.batch != self._source.count:
                    return
                break
        if not at.batch:
            raise CallError(f"fit: batches gave no batch in epoch {at.epoch + 1}")
        with interrupts.held():
            new = self._means.count > 0  # else a run that ended here has reported already
            at.epoch, at.batch, at.due = at.epoch + 1, 0, self._limits.every is None and new
        if at.due:
            self._report(interrupts)
        if self._source.once and not self._ends():
            done = f"{at.step} of {self._limits.steps} steps" if self._limits.epochs is None else f"{at.epoch} epoch"
            raise CallError(f"fit: batches ended after {done}; an iterator cannot be begun again")

    def _step(self, batch: Batch, what: str) -> None:
        """One call of `train`, and where the run is after it."""
        at, every = self._at, self._limits.every
        self._log_pending()
        if not at.batch:
            self._begin_carried()
        self._clock.go()
        with naming(what):
            out = self._train(batch)
        self._clock.tick()
        at.batch, at.step = at.batch + 1, at.step + 1
        values = {n: float(out[n]) for n in self._names}
        self._means.add(values)
        at.due = every is not None and at.step % every == 0
        self._history.losses.append(values[self._names[0]])
        self._pending, self._last = (at.step, at.epoch + 1, values), batch

    def _begin_carried(self) -> None:
        """What the program carries from call to call starts again with each epoch."""
        reset = self._session.entries.get("reset")
        if reset is not None and reset.restarts and reset.entry.reads:
            reset()

    def _report(self, interrupts: Interrupts) -> None:
        """Validation, plateau, record, checkpoint. An interrupt in the validation leaves it due."""
        at = self._at
        at.due = True
        found = {} if self._validation is None else self._validation.run(at.last_epoch)
        with interrupts.held():
            rate, values = self._record(found)
            loss = values[PREFIX + self._names[0]] if found else values[self._names[0]]
            self._tell_plateau(loss)
            at.due, at.sums, at.count, at.last = False, {}, 0, {}
            is_best = bool(found) and self._weigh(loss)
            self._log_pending()
            self._write()
            if is_best:
                self._keep_best()  # behind the checkpoint, which has the same state where this is not reached
            self._show(values, rate, report=True)

    def _last_report(self, interrupts: Interrupts) -> None:
        """Of the steps since the last one. The checkpoint is older: a run that goes on does not know of it.

        So the file with the best state stays: if this state is better, it is the checkpoint's and the session's.
        """
        with interrupts.held():
            self._save()
        found = {} if self._validation is None else self._validation.run(self._at.last_epoch)
        with interrupts.held():
            rate, values = self._record(found)
            if found:
                self._weigh(values[PREFIX + self._names[0]])
            self._show(values, rate, report=True)

    def _record(self, found: dict[str, float]) -> tuple[float, dict[str, float]]:
        """Note the means, and what a validation found, in history and log; steps per second, and the numbers."""
        at = self._at
        rate, values = self._clock.taken(), self._means.taken() | found
        self._history.records.append(Record(at.step, at.last_epoch + 1, values, rate))
        if self._pending is not None:
            self._pending[2].update(found)
        return rate, values

    def _save(self) -> None:
        """A checkpoint between two reports."""
        if self._path is not None and self._at.step:
            self._at.sums, self._at.count = dict(self._means.sums), self._means.count
            self._at.last = {} if self._pending is None else dict(self._pending[2])
            self._write()

    def _write(self) -> None:
        """The checkpoint, behind the rows that a run which goes on expects in the log."""
        self._log.flush()
        if self._path is not None:
            checkpoint.save(self._path, self._session, self._at)
            self._saved = self._at.step

    def _weigh(self, loss: float) -> bool:
        """Note whether the validation was the best so far."""
        at = self._at
        if not checkpoint.better(loss, at):
            at.waited += 1
            return False
        at.best, at.best_step, at.waited = loss, at.step, 0
        return True

    def _keep_best(self) -> None:
        """The present state, which is the best so far."""
        if self._path is not None:
            checkpoint.save(checkpoint.best_path(self._path), self._session, self._at)
        elif self._limits.patience is not None:
            self._kept = self._session.state.snapshot()

    def _restore_best(self) -> None:
        if self._at.best_step is None or self._at.best_step == self._at.step:
            return
        if self._path is not None:
            checkpoint.load_best(self._path, self._session, self._at.best_step)
        elif self._kept is not None:
            self._session.state.update_all(self._kept, "the best state")

    def _tell_plateau(self, loss: float) -> None:
        entry = self._session.entries.get("plateau")
        if entry is not None and [p.name for p in entry.inputs] == ["metric"]:
            entry(metric=entry.inputs[0].type.dtype.numpy.type(loss))

    def _ends(self) -> bool:
        at, limits = self._at, self._limits
        ends = {
            "patience": limits.patience is not None and at.waited >= limits.patience,
            "steps": limits.steps is not None and at.step >= limits.steps,
            "epochs": limits.epochs is not None and at.epoch >= limits.epochs,
        }
        self._history.stopped = next((n for n, is_so in ends.items() if is_so), "")
        return any(ends.values())

    def _interrupted(self, whole: bool) -> None:
        """Save, and say how to go on. Not `whole`: state and position may be of two steps, which are not saved."""
        problem = None
        if whole:
            try:
                self._save()
            except LstmIrError as e:  # it is said: what is raised is the interrupt
                whole, problem = False, e
        step, on = self._at.step, "the same call with resume=True goes on"
        text = f"fit: stopped after step {step}" + ("" if problem is None else f", not saved: {problem}")
        if self._path is None:
            text += "; no checkpoint was asked for, the state stays in the session"
        elif self._saved is None:
            text += "; there is no checkpoint yet"
        elif whole:
            text += f", saved in {self._path}: {on}"
        else:
            text += " and before the next was done, not saved" if problem is None else ""
            text += f"; {self._path} has step {self._saved}: {on}"
        if self._progress is not None:
            self._progress.say(text)
        else:
            print(text, file=sys.stderr)

    def _log_pending(self) -> None:
        if self._pending is not None:
            self._log.write(*self._pending)
            self._pending = None

    def _running(self) -> dict[str, float]:
        return {n: v / self._means.count for n, v in self._means.sums.items()}

    def _show(self, values: dict[str, float], rate: float | None = None, *, report: bool) -> None:
        if self._progress is None:
            return
        if rate is None:
            rate = self._clock.steps / self._clock.seconds if self._clock.seconds > 0 else 0.0
        loss = {self._names[0]: "loss", PREFIX + self._names[0]: f"{PREFIX}loss"}
        named = {loss.get(n, n): v for n, v in values.items()}
        at = self._at
        epoch = (at.last_epoch if report else at.epoch) + 1
        self._progress.show(at.step, epoch, named, rate, self._last, report=report)
