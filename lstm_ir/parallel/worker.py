"""A worker's process: `python -m lstm_ir.parallel.worker SOCKET TRAINER` answers until the trainer is gone."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from typing import Any

from lstm_ir.ir.errors import LstmIrError
from lstm_ir.parallel.messages import OPEN, packed, receive, send
from lstm_ir.parallel.replica import Opening, Replica, Reply

_LOOK = 1.0  # seconds between two looks for the trainer


def serve(s: socket.socket) -> None:
    """One reply to each message; the first one says what to load. Where that failed, every reply says so."""
    replica, reply = None, Reply(0, {}, done=False)
    while True:
        try:
            header, arrays = receive(s)
        except EOFError:
            return
        if header["verb"] == OPEN:
            replica, reply = _opened(header["opening"])
        elif replica is not None:
            reply = replica.answer(header["verb"], header["step"], arrays)
        about = {"step": reply.step, "done": reply.done, "error": reply.error}
        send(s, about, packed(reply.arrays))


def _opened(fields: dict[str, Any]) -> tuple[Replica | None, Reply]:
    key = fields["require_key"]
    opening = Opening(**{**fields, "require_key": None if key is None else bytes.fromhex(key)})
    try:
        replica = Replica(opening)
    except LstmIrError as e:
        return None, Reply(0, {}, error=(type(e).__name__, str(e)))
    return replica, Reply(replica.step, {})


def _end_with(trainer: int) -> None:
    """End this process after the trainer's, wherever it is.

    The socket alone does not tell: a process that the trainer has forked holds its other end open.
    """
    while os.getppid() == trainer:
        time.sleep(_LOOK)
    os._exit(0)


def main() -> None:
    """Serve the socket whose number is the first argument, for the process whose number is the second."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the trainer decides
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    with socket.socket(fileno=int(sys.argv[1])) as s:
        try:
            serve(s)
        except (BrokenPipeError, ConnectionResetError):
            return  # the trainer is gone


if __name__ == "__main__":
    main()
