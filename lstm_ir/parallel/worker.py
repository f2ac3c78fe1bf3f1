"""A worker's process: `python -m lstm_ir.parallel.worker SOCKET` answers until the trainer is gone."""

from __future__ import annotations

import signal
import socket
import sys
from typing import Any

from lstm_ir.ir.errors import LstmIrError
from lstm_ir.parallel.messages import OPEN, packed, receive, send
from lstm_ir.parallel.replica import Opening, Replica, Reply


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


def main() -> None:
    """Serve the socket whose number is the argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the trainer decides
    with socket.socket(fileno=int(sys.argv[1])) as s:
        try:
            serve(s)
        except (BrokenPipeError, ConnectionResetError):
            return  # the trainer is gone


if __name__ == "__main__":
    main()
