"""Inference requests and responses of the Open Inference Protocol v2, with binary tensors.

body = JSON [+ bytes of its binary tensors, in their order] ─read_request─> InferRequest
outputs ─write_response─> the same form
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstm_ir.backends.files import strict_json
from lstm_ir.ir.errors import PackageError
from lstm_ir.ir.signature import Entry
from lstm_ir.serving import tensors
from lstm_ir.serving.tensors import RequestError

Array = np.ndarray[Any, Any]
_SHARED_MEMORY = "shared_memory_region"
_NUMBER = 20  # bytes of a number in JSON, with what parts it from the next


@dataclass(frozen=True)
class InferRequest:
    """What a client asks for."""

    id: str
    inputs: dict[str, Array]
    outputs: dict[str, bool]  # names, and whether each comes back as bytes
    parameters: Mapping[str, Any]

    @property
    def timeout(self) -> float | None:
        """Seconds; the protocol has microseconds."""
        value = self.parameters.get("timeout")
        if value is None:
            return None
        if type(value) is not int or not 0 < value < 2**63:
            raise RequestError(f"parameter timeout is {str(value)[:80]}; expected a number of microseconds")
        return value / 1e6

    def flag(self, name: str) -> bool:
        """A parameter that is true or false."""
        return _flag(self.parameters, name, False, "parameter")

    @property
    def sequence(self) -> str | int | None:
        """The sequence that the request is part of; 0 and "" are none."""
        value = self.parameters.get("sequence_id")
        if value is not None and type(value) not in (int, str):
            raise RequestError(f"parameter sequence_id is {str(value)[:80]}; expected a number or a text")
        return (sequence_name(value) if isinstance(value, str) else value) or None


def sequence_name(text: str) -> str | int | None:
    """A sequence's name as paths and texts have it: what looks like a number is that number; 0 and "" are none."""
    number = text.isascii() and text.isdigit() and len(text) <= 20
    return (int(text) if number and str(int(text)) == text else text) or None


def read_request(
    body: bytes | memoryview, header: int | None, entry: Entry, outputs: tuple[str, ...], max_json: int, *,
    binary: bool = False, json_alone: bool = False,
) -> InferRequest:  # fmt: skip
    """The request in `body`, whose first `header` bytes are JSON (all, where it is None).

    outputs: those that the model gives; binary: they come back as bytes where nothing is said; json_alone: none may.
    Outputs that its answer could not hold are refused here, before anything is computed.
    """
    view = memoryview(body)
    length = len(view) if header is None else header
    if length > len(view):
        raise RequestError(f"the JSON is said to have {length} bytes, the body has {len(view)}")
    if length > max_json:
        raise RequestError(
            f"the JSON has {length} bytes; at most {max_json} are read, send tensors as binary data", 413
        )
    try:
        data = strict_json.read(bytes(view[:length]), "the JSON", minus_zero=True)
    except PackageError as e:
        raise RequestError(str(e)) from None
    name = data.get("id", "")
    if not isinstance(name, str) or len(name) > 256:
        raise RequestError("id is no text of at most 256 characters")
    parameters = _parameters(data, "the request")
    given = _inputs(data.get("inputs"), view[length:], entry)
    wanted = _outputs(data.get("outputs"), outputs, _flag(parameters, "binary_data_output", binary, "parameter"))
    if json_alone and any(wanted.values()):
        raise RequestError("binary tensors are answers to binary messages")
    for port in entry.outputs:
        if wanted.get(port.name) is False:
            tensors.need_json_numbers(port.name, tensors.WORDS[port.type.dtype])
    return InferRequest(name, given, wanted, parameters)


def _parameters(data: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    found = data.get("parameters", {})
    if not isinstance(found, dict):
        raise RequestError(f"parameters of {where} are no object")
    if _SHARED_MEMORY in found:
        raise RequestError(f"{where}: shared memory is not served")
    if "classification" in found:
        raise RequestError(f"{where}: classification is not served")
    return found


def _inputs(items: object, tail: memoryview, entry: Entry) -> dict[str, Array]:
    ports = {p.name: p for p in entry.inputs}
    out: dict[str, Array] = {}
    start = 0
    for item in _objects(items, "inputs"):
        name = item.get("name")
        if not isinstance(name, str) or name not in ports:
            raise RequestError(f"there is no input {str(name)[:80]!r}; the inputs are ({tensors.names(entry.inputs)})")
        if name in out:
            raise RequestError(f"input {name} is given twice")
        where, port = f"input {name}", ports[name]
        shape = tensors.shape_of(item.get("shape"), where)
        word = tensors.WORDS[port.type.dtype]
        if item.get("datatype") != word:
            raise RequestError(
                f"{where}: datatype is {str(item.get('datatype'))[:20]!r}; expected {word} for {port.type}"
            )
        size = _parameters(item, where).get("binary_data_size")
        if size is None:
            out[name] = tensors.from_json(item.get("data"), port, shape, where)
            continue
        if type(size) is not int or not 0 <= size <= len(tail) - start:
            left = len(tail) - start
            raise RequestError(f"{where}: binary_data_size is {str(size)[:40]}; {left} bytes follow")
        if "data" in item:
            raise RequestError(f"{where}: it has data and binary_data_size")
        out[name] = tensors.from_bytes(tail[start : start + size], port, shape, where)
        start += size
    if start != len(tail):
        raise RequestError(f"{len(tail) - start} bytes behind the last binary tensor")
    return out


def _outputs(items: object, known: tuple[str, ...], binary: bool) -> dict[str, bool]:
    if items is None or items == []:
        return dict.fromkeys(known, binary)
    out: dict[str, bool] = {}
    for item in _objects(items, "outputs"):
        name = item.get("name")
        if not isinstance(name, str) or name not in known:
            raise RequestError(f"there is no output {str(name)[:80]!r}; there is {', '.join(known)}")
        where = f"output {name}"
        out[name] = _flag(_parameters(item, where), "binary_data", binary, f"{where}:")
    return out


def _flag(parameters: Mapping[str, Any], name: str, default: bool, where: str) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise RequestError(f"{where} {name} is {str(value)[:80]}; expected true or false")
    return value


def _objects(items: object, what: str) -> list[dict[str, Any]]:
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise RequestError(f"{what} is no list of objects")
    return items


def confirm_json(request: InferRequest, outputs: Mapping[str, Array]) -> None:
    """RequestError for outputs that the answer would hold as JSON and cannot: NaN and infinity."""
    for name, binary in request.outputs.items():
        if not binary:
            tensors.need_finite(name, outputs[name])


def write_response(
    model: str, request: InferRequest, outputs: Mapping[str, Array], parameters: Mapping[str, Any]
) -> tuple[bytes, list[bytes]]:
    """The JSON of a response, and the bytes of its binary tensors."""
    parts: list[bytes] = []
    items = []
    for name, binary in request.outputs.items():
        a = outputs[name]
        item: dict[str, Any] = {
            "name": name, "datatype": tensors.word_of(a), "shape": list(a.shape)
        }  # fmt: skip
        if binary:
            parts.append(tensors.to_bytes(a))
            item["parameters"] = {"binary_data_size": len(parts[-1])}
            items.append(json.dumps(item))
        else:
            items.append(f'{json.dumps(item)[:-1]}, "data": {tensors.to_json(name, a)}}}')
    whole: dict[str, Any] = {"model_name": model, "model_version": "1"}
    if request.id:
        whole["id"] = request.id
    if parameters:
        whole["parameters"] = dict(parameters)
    return f'{json.dumps(whole)[:-1]}, "outputs": [{", ".join(items)}]}}'.encode(), parts


def text_size(request: InferRequest, outputs: Mapping[str, Array]) -> tuple[int, int]:
    """About how many bytes the outputs are as JSON, and how many as tensors behind it."""
    text = sum(outputs[n].size for n, binary in request.outputs.items() if not binary)
    return _NUMBER * text, sum(outputs[n].nbytes for n, binary in request.outputs.items() if binary)
