"""A model behind the server: one entry, its batcher or its sessions, and what requests mean to it."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np

from lstm_ir.ir.errors import DeadlineError
from lstm_ir.ir.signature import Entry
from lstm_ir.serving import session as states
from lstm_ir.serving import tensors
from lstm_ir.serving.batcher import Batcher, deadline
from lstm_ir.serving.inference import InferRequest, confirm_json
from lstm_ir.serving.rows import Prepared
from lstm_ir.serving.session import ClientSession
from lstm_ir.serving.sessions import Sessions
from lstm_ir.serving.tensors import RequestError

Array = np.ndarray[Any, Any]


class ServedModel:
    """`server` answers requests: a Batcher for those that stand alone, Sessions for sequences."""

    def __init__(self, name: str, server: Batcher | Sessions) -> None:
        self.name, self.server = name, server

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

    def submit(self, request: InferRequest) -> Future[dict[str, Array]]:
        """Queue the request: alone, or as the next step of its sequence."""
        name, timeout = request.sequence, request.timeout
        start, end = request.flag("sequence_start"), request.flag("sequence_end")
        if isinstance(self.server, Batcher):
            if name is not None:
                raise RequestError(f"model {self.name} keeps no state, so it has no sequences")
            return self.server.submit_prepared(self._prepared(request), deadline(timeout))
        if name is None:
            raise RequestError(f"model {self.name} keeps state: give sequence_id, and sequence_start at its start")
        if not start:
            self.server.get(name)
        inputs, confirm = self._prepared(request), partial(confirm_json, request)
        return self.server.step(name, inputs, deadline(timeout), begins=start, ends=end, confirm=confirm)

    def step(self, session: ClientSession, request: InferRequest) -> Future[dict[str, Array]]:
        """Queue the next step of a sequence."""
        confirm = partial(confirm_json, request)
        return session.submit_prepared(self._prepared(request), deadline(request.timeout), confirm)

    def _prepared(self, request: InferRequest) -> Prepared:
        return self.server.rows.prepare(request.inputs)

    async def state(self, name: str | int) -> bytes:
        """A sequence's state as safetensors."""
        return states.to_bytes(await result(self.sessions.get(name).ask_state()))

    async def set_state(self, name: str | int, data: bytes) -> None:
        """Let a sequence go on from a state; one that is not open is opened."""
        arrays = states.from_bytes(data, f"state of sequence {name}")
        sessions = self.sessions
        known = sessions.has(name)
        session = sessions.get(name) if known else sessions.open(name)
        try:
            await result(session.ask_set_state(arrays, f"state of sequence {name}"))
        except Exception:
            if not known:
                session.close()
            raise

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


async def result(future: Future[Any], timeout: float | None = None) -> Any:
    """The future's result, in a task; DeadlineError where its call has not begun after so many seconds."""
    wrapped = asyncio.wrap_future(future)
    if timeout is not None:
        done, _ = await asyncio.wait({wrapped}, timeout=timeout)
        if not done and future.cancel():
            raise DeadlineError(f"the request waited {timeout:.3g} s, and its call had not begun")
    return await wrapped
