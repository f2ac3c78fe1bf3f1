"""`lstm_ir.parallel.Trainer`: one step of training over several workers, none lost and none done twice.

The protocol. State is at step n everywhere: in the trainer and in every worker. A step has two phases:

    grads(n)   each worker computes the gradients of its part of the batch        nothing changes
               the trainer averages them, in the order of the workers, weighted by their rows
    apply(n)   the trainer and every worker apply the average                      the state is at n + 1

* **The trainer's own copy decides.** A step is done once the trainer has applied it. The workers' copies hold the same
  bits, since they apply the same average by the same module.
* **Every message has its step**, and a worker knows its own from its state. `grads(n)` to a worker at another step
  is answered with that step; the trainer sends its state, and asks again. `apply(n)` to a worker at n + 1 does nothing.
* **A worker that is lost** (it ended, or did not answer for `timeout` seconds) is replaced: another one starts, takes
  the trainer's state, and is asked again for what is missing. Lost before its gradients came: it computes that part,
  and no other. Lost after that: its gradients are here, and are used. Lost while it applies: the trainer's state is at
  n or n + 1, as a whole, and the new worker takes it from there.
* **A state that is loaded** may have the step that workers are at. So each of them counts as stale until it has
  answered that it took the trainer's state, and a stale one is asked for nothing else. So does one that was sent
  `apply(n)`, until its answer and the trainer's own copy have one step: an exception may end the trainer's part.
* **A step that fails** (a loss that is not finite, say) changes no copy: the error is raised once all replies are in,
  and a worker that differs is sent the state.
* **The trainer itself** is what a checkpoint is for: a safetensors file of its state, written in one step, after every
  `checkpoint_every` steps. A trainer that resumes is at the step of that file, and `step_number` says which batch
  comes next. A step is done whether its checkpoint could be written or not: it gives its results, and the checkpoint
  is written before anything else is done. Where that fails too, it is the error of the next step, which does nothing,
  or of `close`.

Equal input gives equal bits: parts are cut alike, sums have one order, and a lost worker changes neither.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstm_ir.backends.files.state_file import need_place
from lstm_ir.backends.targets import cpus
from lstm_ir.ir.arrays import Conform, take
from lstm_ir.ir.errors import CallError, DeviceError, LstmIrError, PackageError
from lstm_ir.ir.flags import confirm_flags
from lstm_ir.ir.options import is_int
from lstm_ir.parallel.checkpoint import Checkpoint
from lstm_ir.parallel.links import Link, LostError, Processes, Transport
from lstm_ir.parallel.parts import BatchParts, Weigh
from lstm_ir.parallel.replica import APPLY, GRADS, LOAD, PREFIX, Opening, Replica, Reply, error_of, gradients

if TYPE_CHECKING:
    from typing import Self

Array = np.ndarray[Any, Any]
_STARTS = 4  # of one worker within one phase, until its losses are an error


class Trainer:
    """A package of `li.train_step`, trained by several processes of this machine."""

    def __init__(
        self,
        package: str | Path,
        workers: int = 2,
        *,
        batch: str = "B",
        weigh: Weigh | None = None,
        reduction: str = "mean",
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 1,
        resume: bool = False,
        threads: int | None = None,
        device: str | None = None,
        require_key: bytes | str | None = None,
        timeout: float = 600.0,
    ) -> None:
        """`package`: one with the entries `grads` and `apply`. `workers`: processes that compute gradients.

        batch: the name of the size that is cut into parts. reduction: whether the loss is a mean over the rows of a
        batch, or their sum. weigh: of a mean, how much a part counts, from its arrays by name; the default is its
        number of rows (a loss with a mask counts elements). checkpoint: a file that is written after every
        `checkpoint_every` steps; resume: begin with it, where it is there. threads: workers on the CPU of each
        process; the default is an equal share. device, require_key: as in `li.load`. timeout: seconds after which a
        worker that does not answer is replaced.
        CallError for a package without these entries, or without that axis, and for what these entries do not do as
        `train` does: running statistics of batch norms, `accumulate` above 1, state that is carried from call to call.
        The others as `li.load`.
        """
        _check_numbers(workers, timeout, checkpoint_every)
        workers, every = int(workers), int(checkpoint_every)
        confirm_flags(resume=resume)
        if resume and checkpoint is None:
            raise CallError("resume begins with a checkpoint: name it")
        if not isinstance(package, (str, os.PathLike)):
            raise PackageError(f"Trainer: takes the path of a package, got {type(package).__name__}")
        key = require_key.encode() if isinstance(require_key, str) else require_key
        file = None if checkpoint is None else need_place(checkpoint, "Trainer: checkpoint")
        opening = Opening(os.path.abspath(package), device, key)
        self._lock = threading.RLock()  # the handler of a signal may close it in the midst of a step
        self._stepping = self._closing = False
        self._links: list[Link | None] = []
        self._stale: set[int] = set()  # workers whose state may be another than the trainer's at an equal step
        self._replaced = 0
        self._why = "it could not be started"  # the last one was lost
        self._replica = Replica(opening)
        try:
            self._parts = BatchParts(self._replica.grads, batch, workers, weigh, reduction)
            self._names = gradients(self._replica.grads)
            self._checkpoint = Checkpoint(self._replica, file, every)
            if resume and file is not None and file.exists():
                self._replica.load(file)
            share = max(1, cpus.cores() // workers) if threads is None else threads
            self._transport = self._reach(opening._replace(threads=share, digest=self._replica.digest), float(timeout))
            for _ in range(workers):
                self._links.append(self._transport.start())
            self._exchange(LOAD, [self._transport.share(self._replica.state())] * workers)
        except BaseException:
            self._end_links()
            self._replica.close()
            raise

    def _reach(self, opening: Opening, timeout: float) -> Transport:
        return Processes(opening, timeout)

    @property
    def step_number(self) -> int:
        """Steps that are done, those before a checkpoint too."""
        return self._replica.step

    @property
    def replaced(self) -> int:
        """Workers that were lost and replaced."""
        return self._replaced

    @property
    def state(self) -> dict[str, Array]:
        """Weights, the optimizer's moments and `step`, by name, as after the last step; copies."""
        return self._replica.state()

    def step(self, arrays: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, Array]:
        """One step over the whole batch: the loss, weighted as the gradients are, and what `apply` gives (`grad_norm`).

        Takes the inputs of the entry `train`. Raises what a call of it does: then the state is that before the step.
        DeviceError where a worker is lost again and again. PackageError where the checkpoint of the step before
        cannot be written, then and now: no step is done, and the same call does it once there is room.
        """
        given = {**(arrays or {}), **named}
        more = {p.name: p.type for p in self._replica.apply.inputs if not p.name.startswith(PREFIX)}
        missing = sorted(set(more) - set(given))
        if missing:
            raise CallError(f"step: missing input {missing[0]}")
        rest = {n: take(Conform(n, t.dtype), given.pop(n)) for n, t in more.items()}
        with self._lock:
            self._open()
            parts = self._parts.of(given)
            self._checkpoint.write()
            self._stepping = True
            try:
                found = self._gather(parts)
                average = {n: found[n] for n in self._names}
                done = self._apply({**average, **rest})
                with suppress(PackageError):  # the next call tries again, and says it
                    self._checkpoint.write()
            finally:
                self._stepping = False
                if self._closing:
                    self._finish()
        return {**{n: a for n, a in found.items() if n not in average}, **done}

    def _gather(self, parts: Sequence[tuple[float, dict[str, Array]]]) -> dict[str, Array]:
        """The first phase: the average of what the workers' parts give."""
        shared = [self._transport.share(part) if weight else None for weight, part in parts]
        replies = self._exchange(GRADS, shared)
        answers = [r.arrays for r in replies if r is not None]
        return self._parts.joined([w for w, _ in parts if w], answers)

    def _apply(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The second phase: the trainer's copy decides whether the step is done."""
        shared = self._transport.share(arrays)
        step = self._replica.step
        late = [not self._sent(i, APPLY, step, shared) for i in range(len(self._links))]
        reply = self._replica.answer(APPLY, step, arrays)
        if reply.error is None:
            self._checkpoint.stepped()
        for i, lost in enumerate(late):
            received = None if lost else self._received(i)
            if received is not None and received.step == reply.step:
                self._stale.discard(i)
            else:
                with suppress(LstmIrError):  # the step is done, or refused, all the same; the next one tries again
                    self._bring(i)
        if reply.error is not None:
            raise error_of(reply.error)
        return reply.arrays

    def _exchange(self, verb: str, shared: Sequence[Any]) -> list[Reply | None]:
        """A message to each worker that has one, at once; the replies, those of workers that replace lost ones too."""
        step = self._replica.step
        busy = [i for i, s in enumerate(shared) if s is not None]
        sent = {i: self._sent(i, verb, step, shared[i]) for i in busy}
        first = {i: self._received(i) if sent[i] else None for i in busy}
        out: list[Reply | None] = [None] * len(shared)
        for i in busy:
            reply = first[i]
            for _ in range(_STARTS):
                if reply is not None and reply.done:
                    break
                self._bring(i)
                reply = self._received(i) if self._sent(i, verb, step, shared[i]) else None
            if reply is None or not reply.done:
                raise DeviceError(f"worker {i} was lost {_STARTS + 1} times in one step: {self._why}")
            out[i] = reply
        for i, reply in enumerate(out):
            if reply is None:
                continue
            if reply.error is not None:
                raise error_of(reply.error, f"worker {i}")
            if verb == LOAD:
                self._stale.discard(i)
        return out

    def _bring(self, i: int) -> None:
        """Worker `i`, a new one where it was lost, takes the trainer's state."""
        shared = self._transport.share(self._replica.state())
        for _ in range(_STARTS):
            if self._link(i) is None:
                self._stale.add(i)
                started = self._transport.start()
                if not self._links:  # closed meanwhile
                    started.end()
                self._open()
                self._links[i] = started
                self._replaced += 1
            reply = self._received(i) if self._sent(i, LOAD, self._replica.step, shared) else None
            if reply is not None:
                if reply.error is not None:
                    self._dismiss(i)
                    raise error_of(reply.error, f"worker {i}")
                self._stale.discard(i)
                return
        raise DeviceError(f"worker {i} was lost {_STARTS} times while it started: {self._why}")

    def _sent(self, i: int, verb: str, step: int, shared: Any) -> bool:
        """Whether the worker is there, may get the message, and was sent it."""
        link = self._link(i)
        if link is None or (verb != LOAD and i in self._stale):
            return False
        if verb == APPLY:
            self._stale.add(i)  # until it is known that the trainer's copy has applied the same
        try:
            link.send(verb, step, shared)
        except LostError as e:
            self._forget(i, link, e)
            return False
        return True

    def _received(self, i: int) -> Reply | None:
        link = self._link(i)
        if link is None:
            return None
        try:
            return link.receive()
        except LostError as e:
            self._forget(i, link, e)
            return None

    def _link(self, i: int) -> Link | None:
        self._open()
        return self._links[i]

    def _dismiss(self, i: int) -> None:
        """End a worker that did not take the state: it may not have the package. The next step starts another."""
        link = self._link(i)
        self._links[i] = None
        if link is not None:
            link.end()

    def _forget(self, i: int, link: Link, why: LostError) -> None:
        self._why = str(why)
        link.end()
        self._open()  # closed while it was waited for
        self._links[i] = None

    def save_state(self, path: str | Path) -> None:
        """The state as a safetensors file, as `exe.save_state` writes it; `exe.load_state` reads it too."""
        with self._lock:
            self._open()
            self._replica.save(path)

    def load_state(self, path: str | Path) -> None:
        """The state of a file, here and in all workers; PackageError, and no change, if it does not fit."""
        with self._lock:
            self._open()
            self._stale.update(range(len(self._links)))  # an interrupt may come before all have this state
            self._replica.load(path)
            self._checkpoint.due = False  # that state is another now
            shared = self._transport.share(self._replica.state())
            self._exchange(LOAD, [shared] * len(self._links))

    def _open(self) -> None:
        if not self._links:
            raise DeviceError("the trainer is closed")

    def close(self) -> None:
        """End the workers, once the step that runs is over; later calls are errors.

        PackageError where the checkpoint of the last step cannot be written; it is closed all the same.
        """
        with self._lock:
            were = self._end_links()
            # The handler of a signal, in the midst of a step: the replica may be at work under a lock of its own.
            self._closing = were and self._stepping
            if were and not self._stepping:
                self._finish()

    def _end_links(self) -> bool:
        """End the workers; whether there were any."""
        links, self._links = self._links, []
        for link in links:
            if link is not None:
                link.end()
        return bool(links)

    def _finish(self) -> None:
        self._closing = False
        try:
            self._checkpoint.write()
        finally:
            self._replica.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(PackageError) if kind is not None else nullcontext():  # what ended the block is said
            self.close()

    def __del__(self) -> None:
        if hasattr(self, "_links"):
            self._end_links()


def _check_numbers(workers: object, timeout: object, checkpoint_every: object) -> None:
    """CallError for numbers of a trainer that are none."""
    if not is_int(workers) or not 1 <= workers <= 1024:
        raise CallError(f"workers is {workers!r:.80}; expected a number from 1 to 1024")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < 1e9:
        raise CallError(f"timeout is {timeout!r:.80}; expected seconds, a number above 0")
    if not is_int(checkpoint_every) or checkpoint_every < 1:
        raise CallError(f"checkpoint_every is {checkpoint_every!r:.80}; expected a number of steps above 0")
