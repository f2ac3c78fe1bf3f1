"""`li.fit`: the loop around a program that trains."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstm_ir.backends.files.state_file import need_place
from lstm_ir.backends.run.executable import Session
from lstm_ir.fitting.batches import Batches, BatchSource
from lstm_ir.fitting.checkpoint import best_path
from lstm_ir.fitting.history import History
from lstm_ir.fitting.interrupts import Interrupts
from lstm_ir.fitting.logs import log_of
from lstm_ir.fitting.run import Run, RunLimits
from lstm_ir.fitting.validation import Validation
from lstm_ir.ir.called import told
from lstm_ir.ir.errors import CallError, PackageError
from lstm_ir.ir.flags import confirm_flags
from lstm_ir.ir.options import is_int

if TYPE_CHECKING:
    from lstm_ir.ir.program import Program


_WORDS = {
    **dict.fromkeys(("n_epochs", "num_epochs", "max_epochs", "nb_epoch"), "epochs"),
    **dict.fromkeys(("max_steps", "num_steps", "n_steps"), "steps"),
    **dict.fromkeys(("validation_data", "val_data", "val", "eval_data", "valid"), "validation, batches too"),
    **dict.fromkeys(("verbose", "progress_bar"), "progress, True or False"),
    "callbacks": "log, checkpoint, patience or every, or call the entry train in a loop of your own",
    "batch_size": "nothing: `batches` are arrays by name, already cut into batches",
    "early_stopping": "patience, a number of validations",
}
"""Of other libraries, and what stands here in their place."""


@told(_WORDS)
def fit(
    program: Program | Session,
    batches: Batches,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    validation: Batches | None = None,
    patience: int | None = None,
    every: int | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    log: Any = None,
    progress: bool = True,
) -> History:
    """Call `train` for batch after batch, until `epochs` or `steps`, in all, are done.

    program: of `train_step`, which is compiled for this machine without `grads` and `apply`; or an executable or a
    session, from a package too. batches: arrays by name, all inputs of `train`; an iterable, or a function that gives
    one for each epoch (from 0). steps: calls of `train`. every: after so many steps comes a report, without it after
    each epoch: validation, plateau, log, checkpoint. validation: batches for the entry `evaluate`. patience: after so
    many validations without a lower loss the run stops; at its end the state with the lowest loss is restored.
    checkpoint: a file with the state and the place in the data, `run.safetensors`, beside which the best state is
    `run.best.safetensors`; resume: go on from there. log: the path of a CSV file, or a writer with
    `add_scalar(name, number, step)`. progress: a line on standard error. Ctrl-C saves a checkpoint after the present
    step, says how to go on, and is raised as KeyboardInterrupt. CallError for arguments
    and batches that do not fit, PackageError for files.
    """
    limits = RunLimits(
        *(_whole(n, v) for n, v in (("epochs", epochs), ("steps", steps), ("every", every), ("patience", patience)))
    )
    if limits.epochs is None and limits.steps is None:
        raise CallError("fit: neither epochs nor steps say when the run ends")
    confirm_flags("fit: ", resume=resume, progress=progress)
    path = None if checkpoint is None else need_place(checkpoint, "fit: checkpoint")
    if resume and path is None:
        raise CallError("fit: resume goes on from a checkpoint; give its path")
    if resume and path is not None and not path.exists():
        raise PackageError(
            f"fit: there is no checkpoint {path} to resume from; the first run is made with resume=False"
        )
    if limits.patience is not None and validation is None:
        raise CallError("fit: patience counts validations; give batches for them")
    source = BatchSource(batches, "batches")
    if source.once and limits.steps is None and limits.epochs != 1:
        raise CallError(
            f"fit: batches is an iterator, which ends with its first epoch, and epochs is {limits.epochs}; give "
            "something that can be iterated again, or a function of the epoch"
        )
    checks = None if validation is None else BatchSource(validation, "validation")
    if checks is not None and checks.once:
        raise CallError("fit: validation is an iterator, which ends with its first use; give a list")
    if path is not None and isinstance(log, (str, os.PathLike)):
        for what, taken in (("the checkpoint", path), ("the best state", best_path(path))):
            if os.path.realpath(log) == os.path.realpath(taken):
                raise CallError(f"fit: log is the file of {what}, {taken}; give another path")
    writer = log_of(log)
    session = _session(program, checks is not None)
    checked = None if checks is None else Validation(session, checks)
    run = Run(session, source, limits, checked, path, writer, progress=progress)
    with Interrupts() as interrupts:
        return run.whole(interrupts, resume=resume)


def _session(program: Any, validates: bool) -> Session:
    """What is trained; CallError where an entry is missing."""
    names = program.entries if isinstance(program, Session) else getattr(program, "entries", None)
    if names is None:
        got = type(program).__name__
        raise CallError(f"fit: takes a program of li.train_step, or what was compiled or loaded of it, got {got}")
    if "train" not in names:
        raise CallError(f"fit: there is no entry train; there are {', '.join(names)}")
    if validates and "evaluate" not in names:
        raise CallError("fit: validation takes the entry evaluate: li.train_step(..., evaluate=True)")
    if isinstance(program, Session):
        return program
    from lstm_ir.api import compile  # of programs alone: a package needs no compiler

    made: Session = compile(program.only(*(n for n in names if n not in ("grads", "apply"))))
    return made


def _whole(name: str, value: Any) -> int | None:
    if value is not None and (not is_int(value) or value < 1):
        raise CallError(f"fit: {name} is {value!r:.80}; expected a whole number, at least 1")
    return None if value is None else int(value)
