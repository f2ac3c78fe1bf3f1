"""Bodies of inference requests: what was written is read again, and whatever is not is a RequestError."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lstm_ir.ir import dims
from lstm_ir.ir.signature import Entry, Port
from lstm_ir.ir.types import TensorType
from lstm_ir.serving import tensors
from lstm_ir.serving.inference import InferRequest, read_request, sequence_name, write_response
from lstm_ir.serving.tensors import RequestError

Array = np.ndarray[Any, Any]
B = dims.name("B")
KINDS = {
    "BOOL": np.bool_, "INT8": np.int8, "UINT8": np.uint8, "INT32": np.int32, "UINT32": np.uint32, "INT64": np.int64,
    "FP16": np.float16, "BF16": ml_dtypes.bfloat16, "FP32": np.float32, "FP64": np.float64,
}  # fmt: skip
ENTRY = Entry(
    "main", tuple(Port(word.lower(), TensorType((B, 3), tensors.DATATYPES[word])) for word in KINDS), (), dims=("B",)
)
NAMES = tuple(p.name for p in ENTRY.inputs)


def arrays(rng: np.random.Generator) -> dict[str, Array]:
    out = {}
    for word, kind in KINDS.items():
        if word == "BOOL":
            out["bool"] = rng.integers(0, 2, (2, 3)).astype(bool)
        elif "INT" in word:
            info = np.iinfo(kind)
            out[word.lower()] = rng.integers(info.min, info.max, (2, 3), dtype=kind, endpoint=True)
        else:
            out[word.lower()] = rng.standard_normal((2, 3)).astype(kind)
    return out


def body(given: dict[str, Array], binary: set[str], **more: Any) -> tuple[bytes, int]:
    """A request, and the length of its JSON."""
    items, tail = [], b""
    for name, a in given.items():
        item: dict[str, Any] = {"name": name, "shape": list(a.shape), "datatype": name.upper()}
        if name in binary:
            item["parameters"] = {"binary_data_size": a.nbytes}
            tail += a.tobytes()
        else:
            item["data"] = a.tolist()
        items.append(item)
    text = json.dumps({"inputs": items, **more}).encode()
    return text + tail, len(text)


def read(data: bytes, header: int | None) -> InferRequest:
    return read_request(data, header, ENTRY, NAMES, 1 << 20)


def test_every_datatype_there_and_back(rng: np.random.Generator) -> None:
    given = arrays(rng)
    for binary in (set(given), {"fp16", "bf16"}):
        found = read(*body(given, binary))
        assert found.inputs.keys() == given.keys()
        for name, a in given.items():
            assert found.inputs[name].dtype == a.dtype
            np.testing.assert_array_equal(found.inputs[name], a)
            assert found.inputs[name].flags.aligned
    asked = InferRequest("", {}, {n: n in ("fp16", "bf16", "int64") for n in given}, {})
    text, parts = write_response("m", asked, given, {})
    items = {o["name"]: o for o in json.loads(text)["outputs"]}
    for name, a in given.items():
        item = items[name]
        assert (item["datatype"], item["shape"]) == (name.upper(), [2, 3])
        if asked.outputs[name]:
            assert item["parameters"] == {"binary_data_size": a.nbytes}
        else:
            np.testing.assert_array_equal(np.array(item["data"], a.dtype).reshape(2, 3), a)
    assert b"".join(parts) == b"".join(a.tobytes() for n, a in given.items() if asked.outputs[n])


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_halves_are_no_json_numbers(rng: np.random.Generator, name: str) -> None:
    a = arrays(rng)[name]
    data, _ = body({name: a}, {name})
    text = json.dumps({"inputs": [{"name": name, "shape": [2, 3], "datatype": name.upper(), "data": [1.0] * 6}]})
    with pytest.raises(RequestError, match="is sent as binary data, not as JSON numbers"):
        read(text.encode(), None)
    with pytest.raises(RequestError, match="is given as binary data; ask for binary_data"):
        write_response("m", InferRequest("", {}, {name: False}, {}), {name: a}, {})
    assert data


@pytest.mark.parametrize("binary", [set(NAMES), {"fp16", "bf16"}], ids=["bytes", "json"])
def test_changed_bytes_are_read_or_refused(rng: np.random.Generator, binary: set[str]) -> None:
    """Three thousand bodies with a few bytes changed, cut out or repeated, or another length of the JSON."""
    whole, header = body(arrays(rng), binary, id="a", parameters={"sequence_id": 3, "timeout": 5})
    taken = refused = 0
    for _ in range(3000):
        data, length = bytearray(whole), header
        for _ in range(int(rng.integers(1, 4))):
            at = int(rng.integers(0, max(header - 1, 1)))
            kind = int(rng.integers(0, 4))
            if kind == 0:
                data[at] = int(rng.integers(0, 256))
            elif kind == 1:
                data[at : at + 1] = bytes(rng.choice(np.frombuffer(b'[]{}",:0-9.eE', np.uint8), 1))
            elif kind == 2:
                del data[at : at + int(rng.integers(1, 20))]
            else:
                length = int(rng.integers(0, len(data) + 5))
        try:
            found = read(bytes(data), length)
            _ = found.timeout, found.sequence, found.flag("sequence_start")
            taken += 1
            for name, a in found.inputs.items():
                assert a.dtype == KINDS[name.upper()]
        except RequestError:
            refused += 1
    assert taken + refused == 3000
    assert refused > 1000
    assert taken > 20


def test_booleans_are_booleans() -> None:
    text = {"name": "bool", "shape": [1, 3], "datatype": "BOOL"}
    with pytest.raises(RequestError, match="data of BOOL has int"):
        read(json.dumps({"inputs": [{**text, "data": [0, 1, 1]}]}).encode(), None)
    head = json.dumps({"inputs": [{**text, "parameters": {"binary_data_size": 3}}]}).encode()
    with pytest.raises(RequestError, match="a boolean that is neither 0 nor 1"):
        read(head + b"\0\1\2", len(head))


@pytest.mark.parametrize("word", KINDS)
def test_minus_zero(word: str) -> None:
    """JSON has it as a whole number; floats keep its sign, and no boolean is one."""
    data = f"[-0, {'1.5' if 'FP' in word else 127}, 0]"
    text = f'{{"inputs": [{{"name": "{word.lower()}", "shape": [1, 3], "datatype": "{word}", "data": {data}}}]}}'
    if word in ("BOOL", "FP16", "BF16"):
        with pytest.raises(RequestError):
            read(text.encode(), None)
        return
    found = read(text.encode(), None).inputs[word.lower()]
    np.testing.assert_array_equal(found, [[0, 1.5 if "FP" in word else 127, 0]])
    np.testing.assert_array_equal(np.signbit(found.astype(np.float64)), [["FP" in word, False, False]])


def test_minus_zero_beside_a_large_number() -> None:
    """No integer passes through a float."""
    text = (
        '{"inputs": [{"name": "int64", "shape": [1, 3], "datatype": "INT64", "data": [-0, 9223372036854775807, -1]}]}'
    )
    np.testing.assert_array_equal(read(text.encode(), None).inputs["int64"], [[0, 2**63 - 1, -1]])
    with pytest.raises(RequestError, match="a number does not fit INT64"):
        read(text.replace("807", "808").encode(), None)


@pytest.mark.parametrize(("shape", "size", "said"), [("-0", 0, "a list of sizes"), ("1", "-0", "bytes follow")])
def test_minus_zero_is_no_size(shape: str, size: object, said: str) -> None:
    item = f'"name": "fp32", "datatype": "FP32", "shape": [{shape}, 3], "parameters": {{"binary_data_size": {size}}}'
    with pytest.raises(RequestError, match=said):
        read(f'{{"inputs": [{{{item}}}]}}'.encode(), None)


@pytest.mark.parametrize(
    ("text", "name"),
    [("7", 7), ("07", "07"), ("0", None), ("", None), ("a", "a"), ("²", "²"), ("9" * 30, "9" * 30), ("-1", "-1")],
)
def test_sequences_have_one_name_in_paths_and_parameters(text: str, name: str | int | None) -> None:
    """0 and "" are no sequence, as a number and as a text."""
    assert sequence_name(text) == name
    assert InferRequest("", {}, {}, {"sequence_id": text}).sequence == name
    if isinstance(name, int) or text == "0":
        assert InferRequest("", {}, {}, {"sequence_id": int(text)}).sequence == name


@pytest.mark.parametrize("value", ["true", 1, None, []])
def test_binary_data_output_is_true_or_false(value: object) -> None:
    text = json.dumps({"inputs": [], "parameters": {"binary_data_output": value}})
    with pytest.raises(RequestError, match=r"parameter binary_data_output is .*; expected true or false"):
        read(text.encode(), None)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"timeout": True}, "parameter timeout is True; expected a number of microseconds"),
        ({"sequence_id": 1.5}, r"parameter sequence_id is 1\.5; expected a number or a text"),
        ({"sequence_start": 1}, "parameter sequence_start is 1; expected true or false"),
    ],
)
def test_wrong_parameters(parameters: dict[str, Any], message: str) -> None:
    found = InferRequest("", {}, {}, parameters)
    with pytest.raises(RequestError, match=message):
        _ = found.timeout, found.sequence, found.flag("sequence_start")
