"""Messages between a trainer and its workers: a header in JSON, then arrays as safetensors, over a socket.

Nothing is pickled. Both ends are processes of one user over a socket pair that nobody else can open.
"""

from __future__ import annotations

import io
import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from lstm_ir.backends.files import safetensors
from lstm_ir.backends.memory import empty

Array = np.ndarray[Any, Any]
Buffer = bytes | memoryview
OPEN = "open"  # the first message: what to load
_SIZES = struct.Struct("<QQ")  # bytes of the header and of the arrays


def packed(arrays: Mapping[str, Array]) -> Buffer:
    """The arrays as they are sent; made once for several receivers."""
    if not arrays:
        return b""
    out = io.BytesIO()
    safetensors.write(out, arrays)
    return out.getbuffer()


def send(s: socket.socket, header: Mapping[str, Any], payload: Buffer) -> None:
    """The whole message; OSError where the other end is gone or takes nothing for the socket's time."""
    text = json.dumps(header).encode()
    s.sendall(_SIZES.pack(len(text), len(payload)) + text)
    s.sendall(payload)


def receive(s: socket.socket) -> tuple[dict[str, Any], dict[str, Array]]:
    """The next message, its arrays read-only; EOFError where the other end is gone."""
    head, body = _SIZES.unpack(bytes(_exactly(s, _SIZES.size)))
    header: dict[str, Any] = json.loads(bytes(_exactly(s, head)))
    data = _exactly(s, body)
    return header, safetensors.views(data, 0, body, "a message") if body else {}


def _exactly(s: socket.socket, count: int) -> Array:
    """So many bytes, in memory that is aligned for the runtime."""
    data = empty((count,), np.dtype(np.uint8))
    view, done = data.data, 0
    while done < count:
        got = s.recv_into(view[done:])
        if got == 0:
            raise EOFError
        done += got
    return data
