"""Workers that are Ray's actors: arrays pass through its object store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lstm_ir.ir.errors import DeviceError, LstmIrError
from lstm_ir.ir.foreign_errors import become, refusals_become
from lstm_ir.parallel.links import LostError
from lstm_ir.parallel.replica import Opening, Replica, Reply

Array = np.ndarray[Any, Any]


class Member:
    """What an actor is: one copy of the state."""

    def __init__(self, opening: Opening) -> None:
        self._failed: Reply | None = None
        try:
            self._replica = Replica(opening)
        except LstmIrError as e:  # the reply to each message says it
            self._failed = Reply(0, {}, error=(type(e).__name__, str(e)))

    def answer(self, verb: str, step: int, arrays: Mapping[str, Array]) -> Reply:
        """As `Replica.answer`."""
        return self._replica.answer(verb, step, arrays) if self._failed is None else self._failed


class Actors:
    """Workers in the cluster that this process is connected to, or connects to now."""

    def __init__(self, opening: Opening, num_cpus: float, timeout: float) -> None:
        with refusals_become(DeviceError, "lstm_ir.ray.Trainer"):
            import ray
        if not ray.is_initialized():
            ray.init()
        self._ray, self._timeout, self._opening = ray, timeout, opening
        self._kind = ray.remote(num_cpus=num_cpus, max_restarts=0, max_task_retries=0)(Member)  # we replace it

    def start(self) -> ActorLink:
        """An actor that begins to load the package."""
        with become(DeviceError, "an actor cannot be started"):
            return ActorLink(self._ray, self._kind.remote(self._opening), self._timeout)

    def share(self, arrays: Mapping[str, Array]) -> Any:
        """The arrays in the object store."""
        with become(DeviceError, "Ray's object store does not take what is sent to the workers"):
            return self._ray.put(dict(arrays))


class ActorLink:
    """One actor."""

    def __init__(self, ray: Any, actor: Any, timeout: float) -> None:
        self._ray, self._actor, self._timeout = ray, actor, timeout
        self._reply: Any = None

    def send(self, verb: str, step: int, shared: Any) -> None:
        """A task of the actor; it runs when the ones before it are done."""
        try:
            self._reply = self._actor.answer.remote(verb, step, shared)
        except self._ray.exceptions.RayError as e:
            raise LostError(_first_line(e)) from e

    def receive(self) -> Reply:
        """What the last task gave."""
        errors = self._ray.exceptions
        try:
            found: Reply = self._ray.get(self._reply, timeout=self._timeout)
        except errors.GetTimeoutError as e:
            raise LostError(f"it did not answer for {self._timeout:g} s{self._processors()}") from e
        except errors.RayError as e:
            raise LostError(_first_line(e)) from e
        return found

    def _processors(self) -> str:
        """What the cluster has: an actor that waits for processors does not answer either."""
        try:
            whole, free = self._ray.cluster_resources(), self._ray.available_resources()
        except Exception:  # of a cluster that is gone
            return ""
        return f"; the cluster has {whole.get('CPU', 0):g} processors, {free.get('CPU', 0):g} of them free"

    def end(self) -> None:
        """Kill the actor."""
        if self._ray.is_initialized():
            self._ray.kill(self._actor, no_restart=True)


def _first_line(e: Exception) -> str:
    return str(e).strip().partition("\n")[0][:200]
