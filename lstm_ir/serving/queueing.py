"""From the bytes of a request to its place in the queue, and from outputs to bytes.

What takes long is done by a thread (`LargeWork`). Requests to a model that keeps state take their turns in the order
of their coming, so that none is queued before a larger one that came first.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from lstm_ir.serving import session as states
from lstm_ir.serving.inference import InferRequest, read_request, text_size, write_response
from lstm_ir.serving.served_model import Array, ServedModel, result
from lstm_ir.serving.session import ClientSession
from lstm_ir.serving.tensors import RequestError

if TYPE_CHECKING:
    from lstm_ir.serving.server_state import ServerState

_LENGTH = 8  # bytes before the header of a state


async def queue(
    state: ServerState, model: ServedModel, body: memoryview, header: int | None,
    session: ClientSession | None = None, *, binary: bool = False, begun: float | None = None,
) -> tuple[InferRequest, Future[dict[str, Array]]]:  # fmt: skip
    """The request, and a future of its outputs. header: bytes of its JSON; None: all are.

    session: that of a stream; its text messages are answered by JSON alone. binary: it is no text message, and
    outputs are bytes where nothing is said. begun: when the body was there, from which on its timeout counts.
    """

    def read() -> tuple[InferRequest, Future[dict[str, Array]]]:
        json_alone = session is not None and not binary
        limit = state.limits.max_json
        asked = read_request(body, header, model.entry, model.outputs, limit, binary=binary, json_alone=json_alone)
        return asked, model.submit(asked, begun) if session is None else model.step(session, asked, begun)

    text = len(body) if header is None else min(header, len(body))
    # A stream's next message is read when the last is answered: an order of its own, none among other requests.
    async with state.turn(model) if session is None else nullcontext():
        return await state.work.run(text, len(body) - text, read)


async def written(
    state: ServerState, model: ServedModel, asked: InferRequest, outputs: Mapping[str, Array],
    parameters: Mapping[str, Any],
) -> tuple[int | None, bytes]:  # fmt: skip
    """An answer, and the length of its JSON where bytes of tensors stand behind it."""

    def write() -> tuple[int | None, bytes]:
        text, parts = write_response(model.name, asked, outputs, parameters)
        return (len(text), b"".join([text, *parts])) if parts else (None, text)

    text, data = text_size(asked, outputs)
    return await state.work.run(text, data, write)


async def get_state(state: ServerState, model: ServedModel, name: str | int) -> bytes:
    """A sequence's state as safetensors."""
    async with state.turn(model):
        future = model.sessions.get(name).ask_state()
    arrays = await result(future)
    size = sum(a.nbytes for a in arrays.values())
    return await state.work.run(0, size, lambda: states.to_bytes(arrays))


async def put_state(state: ServerState, model: ServedModel, name: str | int, data: bytearray) -> None:
    """Let a sequence go on from a state; one that is not open is opened."""
    text = min(int.from_bytes(data[:_LENGTH], "little"), len(data))
    if state.limits.max_json < text < len(data):
        raise RequestError(f"the header of the state has {text} bytes; at most {state.limits.max_json} are read", 413)
    async with state.turn(model):
        future = await state.work.run(text, len(data) - text, lambda: model.set_state(name, bytes(data)))
    await result(future)
