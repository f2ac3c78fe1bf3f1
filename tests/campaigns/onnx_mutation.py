"""ONNX models whose fields are a little wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mutation import Rng
from protobuf_mutation import REALS, some_changes, varint

from lstm_ir.importers.onnx import handlers
from lstm_ir.importers.onnx.table import TABLE

assert handlers
OPS = [*sorted({name for _, name in TABLE}), "", "Stft", "lstm", "LSTM\0", "NonZero", "SequenceAt", "x" * 3000]
NUMBERS = (0, 1, -1, 2, 3, 4, 5, 7, 16, 17, 255, -2, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
WORDS = (
    "", "T", "B", "T*B", "T+1", "T-9", "-1", "0", "x", "é", "a b", "forward", "reverse", "bidirectional", "Tanh",
    "relu", "SAME_UPPER", "linear", "../data.bin", "/etc/hostname", "data.bin", "outside", "\n", "%s", "T" * 300, "9T",
    "T//2", "bi,io->ob", "...i->", "constant", "reflect", "add", "none", "\0", "floor(T/2)",
)  # fmt: skip


def _of(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def changed(rng: Rng, data: bytes) -> bytes:
    """The model after one to three changes of fields."""
    import onnx

    model = onnx.ModelProto()
    model.ParseFromString(data)
    some_changes(rng, lambda: _of(rng, CHANGES)(rng, model))
    return bytes(model.SerializeToString())


def nested(rng: Rng, data: bytes) -> bytes:
    """A model whose graph is If inside of If, written as bytes: deeper than the library copies."""
    import onnx

    model = onnx.ModelProto()
    model.ParseFromString(data)
    if not model.graph.node:
        return data
    last = model.graph.node[-1]
    results = b"".join(_field(12, _field(1, n.encode())) for n in last.output)
    names = b"".join(_field(2, n.encode()) for n in last.output)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "true"))
    del model.graph.node[-1]
    rest = _field(2, b"g") + results  # of a graph, after its node
    other = _field(5, _field(1, b"else_branch") + _number(20, 5) + _field(6, rest))
    before, after = [last.SerializeToString()], [b""]
    size = len(before[0])
    for _ in range(int(rng.choice([2, 20, 31, 33, 48, 60, 95, 120, 400, 5000]))):
        node = _head(1, size)
        graph = _head(6, len(node) + size + len(rest))
        branch = _field(1, b"then_branch") + _number(20, 5) + graph
        attribute = _head(5, len(branch) + len(node) + size + len(rest))
        before.append(_field(1, b"true") + names + _field(4, b"If") + attribute + branch + node)
        after.append(rest + other)
        size += len(before[-1]) + len(after[-1])
    deep = b"".join([*reversed(before), *after])
    return bytes(model.SerializeToString()) + _field(7, _field(1, deep))  # a graph in two parts is one


def _head(number: int, size: int) -> bytes:
    """What stands before so many bytes of a field."""
    return varint(number << 3 | 2) + varint(size)


def _field(number: int, content: bytes) -> bytes:
    return _head(number, len(content)) + content


def _number(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def _graphs(model: Any) -> list[Any]:
    """The graph, its subgraphs, and functions, which have nodes too."""
    found, todo = [], [model.graph, *model.functions]
    while todo:
        g = todo.pop()
        found.append(g)
        for node in g.node:
            for a in node.attribute:
                todo += ([a.g] if a.HasField("g") else []) + list(a.graphs)
    return found


def _node(rng: Rng, model: Any) -> Any:
    return _of(rng, _of(rng, [g for g in _graphs(model) if g.node]).node)


def _names(model: Any) -> list[str]:
    return [n for g in _graphs(model) for node in g.node for n in (*node.input, *node.output)] + ["nobody", ""]


def _op(rng: Rng, model: Any) -> None:
    _node(rng, model).op_type = _of(rng, OPS)


def _domain(rng: Rng, model: Any) -> None:
    _node(rng, model).domain = _of(rng, ("", "ai.onnx", "com.microsoft", "my", "ai.onnx.ml", "é"))


def _operands(rng: Rng, model: Any) -> None:
    node = _node(rng, model)
    names = _of(rng, (node.input, node.output, node.input))
    way = rng.integers(4)
    if way == 0 or not names:
        names.append(_of(rng, _names(model)))
    elif way == 1:
        del names[int(rng.integers(len(names)))]
    else:
        names[int(rng.integers(len(names)))] = _of(rng, _names(model))


def _nodes(rng: Rng, model: Any) -> None:
    g = _of(rng, [g for g in _graphs(model) if g.node])
    way = rng.integers(4)
    a = int(rng.integers(len(g.node)))
    if way == 0:
        del g.node[a]
    elif way == 1:
        g.node.add().CopyFrom(g.node[a])
    elif way == 2:
        nodes = [type(n).FromString(n.SerializeToString()) for n in g.node]
        del g.node[:]
        g.node.extend(nodes[i] for i in rng.permutation(len(nodes)))
    else:
        g.node[a].name = _of(rng, WORDS)


def _attribute(rng: Rng, model: Any) -> None:
    some = [n for g in _graphs(model) for n in g.node if n.attribute]
    if not some:
        return
    node = _of(rng, some)
    a = _of(rng, node.attribute)
    way = rng.integers(9)
    if way == 0:
        a.name = _of(rng, (*WORDS, *(b.name for n in some for b in n.attribute)))
    elif way == 1:
        a.type = int(rng.integers(0, 15))
    elif way == 2:
        node.attribute.remove(a)
    elif way == 3:
        data = _of(rng, _of(rng, some).attribute).SerializeToString()  # it may hold `node`: CopyFrom would crash
        node.attribute.add().ParseFromString(data)
    elif way == 4:
        a.ref_attr_name = _of(rng, WORDS)
    elif way == 5:
        del a.ints[: int(rng.integers(3))]
        a.ints.extend(int(_of(rng, NUMBERS)) for _ in range(rng.integers(4)))
    elif way == 6:
        a.i, a.f = int(_of(rng, NUMBERS)), float(_of(rng, REALS))
    elif way == 7:
        a.s = _of(rng, WORDS).encode()
        a.strings.append(_of(rng, WORDS).encode() + bytes([int(rng.integers(256))] * int(rng.integers(2))))
    elif a.HasField("t"):
        _damage_tensor(rng, a.t)
    elif a.ints:
        a.ints[int(rng.integers(len(a.ints)))] = int(_of(rng, NUMBERS))


def _tensor(rng: Rng, model: Any) -> None:
    some = [t for g in _graphs(model) if hasattr(g, "initializer") for t in g.initializer]
    if some:
        _damage_tensor(rng, _of(rng, some))


def _damage_tensor(rng: Rng, t: Any) -> None:
    way = rng.integers(9)
    if way == 0 and t.dims:
        t.dims[int(rng.integers(len(t.dims)))] = int(_of(rng, NUMBERS))
    elif way == 1:
        t.dims.append(int(_of(rng, NUMBERS)))
    elif way == 2:
        t.data_type = int(_of(rng, (*range(0, 30), 99, -1)))
    elif way == 3:
        t.raw_data = t.raw_data[: int(rng.integers(len(t.raw_data) + 1))]
    elif way == 4:
        t.raw_data = t.raw_data + bytes(int(rng.integers(1, 40)))
    elif way == 5:
        t.float_data.extend([1.0] * int(rng.integers(1, 9)))
    elif way == 6:
        t.name = _of(rng, WORDS)
    elif way == 7:
        size = len(t.raw_data)
        drawn = (
            rng.normal(size=size // 4).astype("<f4") if t.data_type == 1 else rng.integers(256, size=size, dtype="u1")
        )
        t.raw_data = drawn.tobytes()
    else:
        t.data_location = 1
        t.ClearField("raw_data")
        for key in ("location", "offset", "length"):
            if rng.random() < 0.8:
                t.external_data.add(key=key, value=str(_of(rng, WORDS if key == "location" else NUMBERS)))


def _interface(rng: Rng, model: Any) -> None:
    g = _of(rng, [g for g in _graphs(model) if hasattr(g, "initializer")])
    values = _of(rng, (g.input, g.input, g.output))
    if not values:
        return
    v = _of(rng, values)
    way = rng.integers(9)
    shape = v.type.tensor_type.shape
    if way == 0:
        v.name = _of(rng, (*WORDS, *_names(model)))
    elif way == 1:
        v.type.tensor_type.elem_type = int(rng.integers(0, 30))
    elif way == 2:
        v.type.tensor_type.ClearField("shape")
    elif way == 3:
        values.remove(v)
    elif way == 4:
        values.add().CopyFrom(v)
    elif way == 5:
        v.type.sequence_type.elem_type.tensor_type.elem_type = 1
    elif shape.dim:
        d = _of(rng, shape.dim)
        if rng.random() < 0.4:
            d.dim_param = _of(rng, WORDS)
        elif rng.random() < 0.8:
            d.dim_value = int(_of(rng, NUMBERS))
        else:
            d.Clear()


def _versions(rng: Rng, model: Any) -> None:
    way = rng.integers(5)
    if way == 0 or not model.opset_import:
        model.opset_import.add(domain=_of(rng, ("", "ai.onnx", "com.microsoft", "my")), version=int(rng.integers(30)))
    elif way == 1:
        del model.opset_import[0]
    elif way == 2:
        model.opset_import[0].domain = _of(rng, ("", "ai.onnx", "my"))
    else:
        model.opset_import[0].version = int(_of(rng, (*range(1, 31), *NUMBERS)))
    if rng.random() < 0.1:
        model.ir_version = int(_of(rng, NUMBERS))


def _function(rng: Rng, model: Any) -> None:
    if not model.functions:
        return
    made = _of(rng, model.functions)
    way = rng.integers(6)
    if way == 0:
        model.functions.add().CopyFrom(made)
    elif way == 1:
        made.node.add(op_type=made.name, domain=made.domain, input=made.input, output=["again"])
    elif way == 2:
        made.name = _of(rng, (*OPS, "Half", "Twice"))
    elif way == 3:
        (made.input if rng.random() < 0.5 else made.output).append(_of(rng, _names(model)))
    elif way == 4:
        model.functions.remove(made)
    else:
        made.opset_import[0].version = int(_of(rng, NUMBERS))


CHANGES: tuple[Callable[[Rng, Any], None], ...] = (
    _op, _domain, _operands, _operands, _nodes, _attribute, _attribute, _tensor, _tensor, _interface, _interface,
    _versions, _function,
)  # fmt: skip
