"""Messages of TensorFlow's files whose fields are a little wrong: found and changed by their descriptors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mutation import Rng
from protobuf_mutation import REALS, some_changes, varint

from lstm_ir.importers.tensorflow import handlers
from lstm_ir.importers.tensorflow.messages import message
from lstm_ir.importers.tensorflow.table import TABLE

assert handlers
OPS = [*sorted(TABLE), "", "Stft", "blocklstm", "LSTM\0", "NonMaxSuppression", "x" * 3000]
NUMBERS = (0, 1, -1, 2, 3, 5, 9, 14, 20, 21, 255, -2, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
WORDS = (
    "", "x", "T", "y:0", "y:7", "^x", "^nobody", "x:-1", "x:99999999999", "serve", "SAME", "NHWC", "NCHW",
    "../variables", "/etc/hostname", "\n", "%s", "n" * 300, "\0", "while/Identity", "value", "dtype", "body", "loc:@w",
)  # fmt: skip
NODES = ("NodeDef", "AttrValue", "GraphDef", "FunctionDef", "TensorProto")  # changed more often than the rest


def changed(rng: Rng, kind: str, data: bytes) -> bytes:
    """The message after one to three changes of fields."""
    root = message(kind)
    root.ParseFromString(data)
    some_changes(rng, lambda: _change(rng, _picked(rng, root)))
    return bytes(root.SerializeToString())


def nested(rng: Rng, kind: str) -> bytes:
    """A message in itself, as bytes: deeper than the reader goes."""
    depth = int(rng.choice([2, 50, 99, 101, 1000, 20000]))
    number = {"SavedModel": 2, "GraphDef": 2}[kind]
    data = b""
    for _ in range(depth):
        data = bytes([number << 3 | 2]) + varint(len(data)) + data
    return data


def _of(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def _messages(root: Any) -> Iterator[Any]:
    todo = [root]
    while todo:
        m = todo.pop()
        yield m
        for field, value in m.ListFields():
            if field.message_type is None:
                continue
            if field.message_type.GetOptions().map_entry:
                todo += [v for v in value.values() if hasattr(v, "ListFields")]
            else:
                todo += list(value) if field.is_repeated else [value]


def _picked(rng: Rng, root: Any) -> Any:
    """A message of the tree, its kind drawn first."""
    kinds: dict[str, list[Any]] = {}
    for m in _messages(root):
        kinds.setdefault(type(m).DESCRIPTOR.name, []).append(m)
    some = [k for k in NODES if k in kinds] if rng.random() < 0.8 else list(kinds)
    return _of(rng, kinds[_of(rng, some or list(kinds))])


def _change(rng: Rng, m: Any) -> None:
    fields = [f for f in type(m).DESCRIPTOR.fields if rng.random() < 0.2 or m.ListFields()]
    field = _of(rng, fields or list(type(m).DESCRIPTOR.fields))
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        _change_map(rng, getattr(m, field.name))
    elif field.is_repeated:
        _change_list(rng, getattr(m, field.name), field)
    elif rng.random() < 0.1:
        m.ClearField(field.name)
    elif field.message_type is None:
        setattr(m, field.name, _value(rng, field, getattr(m, field.name)))
    else:
        _change(rng, getattr(m, field.name))


def _change_map(rng: Rng, held: Any) -> None:
    keys = list(held)
    if not keys:
        return
    a, b = _of(rng, keys), _of(rng, keys)
    if rng.random() < 0.3:
        del held[a]
    elif hasattr(held[a], "CopyFrom"):
        held[a].CopyFrom(held[b])
    else:
        held[a] = _of(rng, (held[b], *WORDS))


def _change_list(rng: Rng, held: Any, field: Any) -> None:
    way, size = rng.integers(4), len(held)
    if way == 0 and size:
        del held[int(rng.integers(size))]
    elif way == 1 and size:
        held.append(held[int(rng.integers(size))])
    elif field.message_type is not None:
        if size > 1:
            held[int(rng.integers(size))].CopyFrom(held[int(rng.integers(size))])
    elif size:
        at = int(rng.integers(size))
        held[at] = _of(rng, held) if rng.random() < 0.5 else _value(rng, field, held[at])
    else:
        held.append(_value(rng, field, None))


def _value(rng: Rng, field: Any, now: Any) -> Any:
    if field.name == "op" or (field.type == field.TYPE_STRING and rng.random() < 0.2):
        return _of(rng, OPS)
    if field.type == field.TYPE_STRING:
        return _of(rng, WORDS)
    if field.type == field.TYPE_BYTES:
        return _of(rng, (b"", b"SAME", b"\xff\xfe", bytes(7), bytes(400), now[:-1] if now else b"x", (now or b"") * 2))
    if field.type == field.TYPE_BOOL:
        return not now
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return _of(rng, REALS)
    return _of(rng, (*NUMBERS, *range(25)))
