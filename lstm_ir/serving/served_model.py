"""A model behind the server: one entry, its batcher or its sessions, and what requests mean to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np

from lstm_ir.ir.errors import DeadlineError, LostDeviceError
from lstm_ir.ir.signature import Entry
from lstm_ir.serving import batcher, sessions, tensors
from lstm_ir.serving import session as states
from lstm_ir.serving.batcher import Batcher
from lstm_ir.serving.durations import deadline
from lstm_ir.serving.inference import InferRequest, confirm_json
from lstm_ir.serving.rows import Prepared
from lstm_ir.serving.session import ClientSession
from lstm_ir.serving.sessions import Sessions
from lstm_ir.serving.tensors import RequestError

Array = np.ndarray[Any, Any]
MAX_STEPS = 65536  # of one request: eleven minutes of frames of 10 ms
GONE = 499  # status of a request whose client went, as nginx has it; nobody reads it


class ServedModel:
    """`server` answers requests: a Batcher for those that stand alone, Sessions for sequences."""

    def __init__(
        self, name: str, server: Batcher | Sessions, *, max_steps: int = MAX_STEPS,
        again: Callable[[], Any] | None = None,
    ) -> None:  # fmt: skip
        """max_steps: of one request. again: loads the executable anew, for a device that was lost."""
        self.name, self.server, self._max_steps, self._again = name, server, max_steps, again
        self.lost = False  # whether the last call found its device lost

    @property
    def entry(self) -> Entry:
        """What a request takes and gives."""
        return self.server.entry

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of what a request may ask for."""
        return self.server.rows.wanted

    @property
    def sessions(self) -> Sessions:
        """Of a model that keeps state; RequestError for one that does not."""
        if not isinstance(self.server, Sessions):
            raise RequestError(f"model {self.name} keeps no state, so it has no sequences")
        return self.server

    def metadata(self) -> dict[str, Any]:
        """As the protocol has it."""
        given = {p.name: p for p in self.entry.outputs}
        return {
            "name": self.name, "versions": ["1"], "platform": "lstm_ir",
            "inputs": [tensors.described(p) for p in self.entry.inputs],
            "outputs": [tensors.described(given[n]) for n in self.outputs],
        }  # fmt: skip

    def submit(self, request: InferRequest, begun: float | None = None) -> Future[dict[str, Array]]:
        """Queue the request: alone, or as the next step of its sequence. Its timeout counts from `begun`, or now."""
        name, until = request.sequence, deadline(request.timeout, begun)
        start, end = request.flag("sequence_start"), request.flag("sequence_end")
        if isinstance(self.server, Batcher):
            if name is not None:
                raise RequestError(f"model {self.name} keeps no state, so it has no sequences")
            return self._watched(batcher.submit_prepared(self.server, self._prepared(request), until))
        if name is None:
            raise RequestError(f"model {self.name} keeps state: give sequence_id, and sequence_start at its start")
        if not start:
            self.server.get(name)
        inputs, confirm = self._prepared(request), partial(confirm_json, request)
        return self._watched(sessions.step(self.server, name, inputs, until, begins=start, ends=end, confirm=confirm))

    def step(
        self, session: ClientSession, request: InferRequest, begun: float | None = None
    ) -> Future[dict[str, Array]]:
        """Queue the next step of a sequence; `begun` as in `submit`."""
        confirm = partial(confirm_json, request)
        until, inputs = deadline(request.timeout, begun), self._prepared(request)
        return self._watched(states.submit_prepared(session, inputs, until, confirm))

    def _prepared(self, request: InferRequest) -> Prepared:
        """The inputs, checked; RequestError (413) for more rows or steps than one request may have."""
        found = self.server.rows.prepare(request.inputs)
        self._need_room("the request", found.rows, found.steps)
        return found

    def _need_room(self, what: str, rows: int, steps: int) -> None:
        """RequestError (413) for more rows or steps than one request may have."""
        for count, word, most, option in (
            (rows, "rows", self.server.scheduler.max_rows, "--max-batch"),
            (steps, "steps", self._max_steps, "--max-steps"),
        ):
            if count > most:
                raise RequestError(f"{what} has {count} {word}; at most {most} are taken, {option}", 413)

    def _watched(self, future: Future[dict[str, Array]]) -> Future[dict[str, Array]]:
        future.add_done_callback(self._called)
        return future

    def _called(self, future: Future[dict[str, Array]]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None or isinstance(error, LostDeviceError):
            self.lost = error is not None

    @property
    def renews(self) -> bool:
        """Whether its device was lost, and `renew` may bring another."""
        return self.lost and self._again is not None

    def renew(self) -> None:
        """Load the executable anew; state of sequences is kept, since it is not on the device."""
        if self._again is not None:
            exe = self._again()
            if isinstance(self.server, Batcher):
                batcher.renew(self.server, exe)
            else:
                sessions.renew(self.server, exe)
            self.lost = False

    def set_state(self, name: str | int, data: bytes) -> Future[None]:
        """Queue that a sequence goes on from a state, a safetensors file; one that is not open is opened.

        RequestError (413) for more rows or steps than one request may have, which would stay in memory.
        """
        where = f"state of sequence {name}"
        held, rows, steps = sessions.whole_state(self.sessions, states.from_bytes(data, where), where)
        self._need_room(f"{where}: it", rows, steps)
        return sessions.put_state(self.sessions, name, held)

    def stop(self) -> None:
        """Take no more requests; those that were accepted are answered."""
        self.server.scheduler.stop()

    def abandon(self) -> None:
        """Answer nothing more."""
        self.server.scheduler.abandon()

    @property
    def done(self) -> bool:
        """Whether it was stopped, and has answered what was accepted."""
        return self.server.scheduler.done


async def result(
    future: Future[Any], timeout: float | None = None, begun: float | None = None,
    gone: asyncio.Future[None] | None = None,
) -> Any:  # fmt: skip
    """The future's result, in a task; DeadlineError where its call has not begun so many seconds after `begun`.

    gone: is done once nobody waits for the result any more: a call that has not begun by then is not made, and the
    error is a RequestError (499).
    """

    def cancel(_: object) -> None:
        future.cancel()

    wrapped = asyncio.wrap_future(future)
    until = deadline(timeout, begun)
    if gone is not None:
        gone.add_done_callback(cancel)
    try:
        if until is not None:
            done, _ = await asyncio.wait({wrapped}, timeout=max(0.0, until - time.monotonic()))
            if not done and future.cancel():
                raise DeadlineError(f"the request waited {timeout:.3g} s, and its call had not begun")
        return await wrapped
    except asyncio.CancelledError:
        if gone is not None and gone.done() and future.cancelled():
            raise RequestError("the client is gone", GONE) from None
        raise
    finally:
        if gone is not None:
            gone.remove_done_callback(cancel)
