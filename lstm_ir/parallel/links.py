"""How a trainer reaches its workers: what it needs of them, and workers that are processes of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import lstm_ir
from lstm_ir.ir.errors import DeviceError
from lstm_ir.ir.foreign_errors import become
from lstm_ir.parallel import messages
from lstm_ir.parallel.replica import Opening, Reply

Array = np.ndarray[Any, Any]
_EXIT_SECONDS = 5.0  # seconds that a worker has to end by itself


class LostError(Exception):
    """A worker that ended, hangs, or cannot be reached; the text says how."""


class Link(Protocol):
    """One worker. A message is sent, then its reply received; both raise LostError where the worker is lost."""

    def send(self, verb: str, step: int, shared: Any) -> None:
        """`shared`: of the transport's `share`."""

    def receive(self) -> Reply:
        """The reply to the last message."""

    def end(self) -> None:
        """End the worker, whatever it does."""


class Transport(Protocol):
    """A way to start workers and to hand them arrays."""

    def start(self) -> Link:
        """A new worker that loads the package; its first reply says how that went."""

    def share(self, arrays: Mapping[str, Array]) -> Any:
        """The arrays as links send them, made once for all of them."""


class Processes:
    """Workers on this machine, one process each, over socket pairs."""

    def __init__(self, opening: Opening, timeout: float) -> None:
        self._opening, self._timeout = opening, timeout

    def start(self) -> ProcessLink:
        """A process that begins to load the package."""
        return ProcessLink(self._opening, self._timeout)

    def share(self, arrays: Mapping[str, Array]) -> messages.Buffer:
        """The bytes of the arrays."""
        return messages.packed(arrays)


class ProcessLink:
    """One process."""

    def __init__(self, opening: Opening, timeout: float) -> None:
        with become(DeviceError, "a worker cannot be started"), ExitStack() as opened:
            ours, theirs = socket.socketpair()
            opened.enter_context(ours)
            with theirs:
                command = [sys.executable, "-m", "lstm_ir.parallel.worker", str(theirs.fileno()), str(os.getpid())]
                self._process = subprocess.Popen(
                    command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=_environment()
                )  # fmt: skip
            opened.pop_all()
        self._socket = ours
        self._socket.settimeout(timeout)
        self._pending = False  # whether a reply is still to come
        self._broken: str | None = None  # why nothing more can be sent or received
        key = opening.require_key
        given = {**opening._asdict(), "require_key": None if key is None else key.hex()}
        with suppress(LostError):  # `receive` says it
            self._send({"verb": messages.OPEN, "step": 0, "opening": given}, b"")

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def send(self, verb: str, step: int, shared: messages.Buffer) -> None:
        """A message; LostError where the process is gone or takes nothing.

        A reply that nobody has waited for is read before, and dropped: until then the worker may take no message.
        """
        if self._pending:
            self.receive()
        self._send({"verb": verb, "step": step}, shared)

    def _send(self, header: dict[str, Any], payload: messages.Buffer) -> None:
        self._begin()
        try:
            messages.send(self._socket, header, payload)
        except OSError as e:
            raise self._lost(e) from e
        self._pending, self._broken = True, None

    def _begin(self) -> None:
        if self._broken is not None:
            raise LostError(self._broken)
        self._broken = "a message was cut off"  # where an exception ends what follows

    def receive(self) -> Reply:
        """The reply to the last message."""
        self._begin()
        try:
            header, arrays = messages.receive(self._socket)
        except (OSError, EOFError) as e:
            raise self._lost(e) from e
        self._pending, self._broken = False, None
        error = header["error"]
        return Reply(header["step"], arrays, header["done"], None if error is None else (error[0], error[1]))

    def _lost(self, e: BaseException) -> LostError:
        self._broken = "it closed its socket"
        if isinstance(e, TimeoutError):
            self._broken = f"it did not answer for {self._socket.gettimeout():g} s"
        else:
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(_EXIT_SECONDS)
                self._broken = f"signal {-code} ended it" if code < 0 else f"it ended with exit code {code}"
        return LostError(self._broken)

    def end(self) -> None:
        """Close the socket, at which the process ends; kill it where it does not."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _environment() -> dict[str, str]:
    """This process's, where the same lstm_ir is imported."""
    root = str(Path(lstm_ir.__file__).parents[1])
    given = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root if not given else f"{root}{os.pathsep}{given}"}
