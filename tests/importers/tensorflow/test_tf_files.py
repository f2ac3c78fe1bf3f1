"""TensorFlow's files that are damaged or say what cannot be: one ModelError, which names the file and the node."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import DOCS
from tensorflow_graph import written

import lstm_ir as li

pytest.importorskip("google.protobuf.message")
TF1 = DOCS / "tutorial" / "data" / "tf1"
W = np.arange(15, dtype="f4").reshape(3, 5)


def refused(path: Path, said: str, **given: Any) -> None:
    with pytest.raises(li.ModelError) as e:
        li.from_tf(path, **given)
    assert path.name in str(e.value) or "checkpoint" in given
    assert said in str(e.value)


def _op(graph: Any) -> None:
    graph.node[3].op = "NoSuchOp"


def _operand(graph: Any) -> None:
    graph.node[2].input[0] = "nobody"


def _itself(graph: Any) -> None:
    graph.node[2].input[0] = "y"


def _twice(graph: Any) -> None:
    graph.node[2].name = "x"


def _place(graph: Any) -> None:
    graph.node[2].input[0] = "x:99999999999"


def _missing(graph: Any) -> None:
    del graph.node[2].input[1]


def _surplus(graph: Any) -> None:
    graph.node[2].input.append("x")


def _type(graph: Any) -> None:
    graph.node[1].attr["value"].tensor.dtype = 3


def _long(graph: Any) -> None:
    graph.node[1].attr["value"].tensor.tensor_shape.dim[0].size = 2**40


def _short(graph: Any) -> None:
    graph.node[1].attr["value"].tensor.tensor_content = b"\0" * 8


def _rank(graph: Any) -> None:
    del graph.node[0].attr["shape"].shape.dim[:]


def _branch(graph: Any) -> None:
    graph.node.add(name="choice", op="If")


def _condition(graph: Any) -> None:
    graph.node.add(name="going", op="LoopCond")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_op, "y (NoSuchOp): the op is not taken"),
        (_operand, "nobody (operand): no node makes it"),
        (_itself, "it depends on itself"),
        (_twice, "two nodes are called 'x'"),
        (_place, "'x:99999999999' names no result of a node"),
        (_missing, "xw (MatMul): "),
        (_surplus, "xw (MatMul): "),
        (_type, "xw (MatMul): dot_general: lhs is f32, rhs i32"),
        (_long, "w (Const): "),
        (_short, "w (Const): "),
        (_rank, "xw (MatMul): "),
        (_branch, "choice (If): it has 0 operands; operand 0 is missing"),
        (_condition, "going (LoopCond): it has 0 operands; operand 0 is missing"),
    ],
)
def test_a_graph_that_cannot_be(change: Callable[[Any], None], said: str, tmp_path: Path) -> None:
    written(tmp_path / "g.pb", W, change)
    refused(tmp_path / "g.pb", said, **({"outputs": ["y"]} if change is _itself else {}))


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"", "has no nodes"), (b"not a model", "g.pb"), (b"\x0a\xff\xff\xff\xff\x0f", "g.pb"), (b"PK\x03\x04", "g.pb")],
)
def test_bytes_that_are_no_graph(data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "g.pb").write_bytes(data)
    refused(tmp_path / "g.pb", said)


def test_a_message_that_is_nested_deep(tmp_path: Path) -> None:
    data = b""
    for _ in range(20_000):
        size, length = len(data), b""
        while size > 127:
            length += bytes([size & 127 | 128])
            size >>= 7
        data = b"\x12" + length + bytes([size]) + data
    (tmp_path / "g.pb").write_bytes(data)
    refused(tmp_path / "g.pb", "g.pb")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    refused(tmp_path / "g.pb", "No such file")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "has no saved_model.pb")
    written(tmp_path / "g.pb", W)
    refused(tmp_path / "g.pb", "nowhere.index: No such file", checkpoint=tmp_path / "nowhere")
    (tmp_path / "g.pbtxt").write_text("node {}")
    refused(tmp_path / "g.pbtxt", "graphs as text are not taken")


@pytest.mark.parametrize(
    ("file", "at", "said"),
    [
        ("model.ckpt-400.data-00000-of-00001", None, "No such file"),
        ("model.ckpt-400.data-00000-of-00001", -1, "ends before a tensor does"),
        ("model.ckpt-400.data-00000-of-00001", 97, "the checksum of the tensor "),
        ("model.ckpt-400.index", 0, "model.ckpt-400.index"),
        ("model.ckpt-400.index", -1, "model.ckpt-400.index"),
    ],
)
def test_a_damaged_checkpoint(file: str, at: int | None, said: str, tmp_path: Path) -> None:
    """A file that is missing, ends early, or has another bit now and then: in each `at + 1` bytes."""
    folder = Path(shutil.copytree(TF1, tmp_path / "tf1"))
    data = bytearray((folder / file).read_bytes())
    if at is None:
        (folder / file).unlink()
    elif at < 0:
        (folder / file).write_bytes(data[: len(data) // 2])
    else:
        data[:: at + 1] = bytes(b ^ 1 for b in data[:: at + 1])
        (folder / file).write_bytes(data)
    refused(folder / "graph.pb", said, checkpoint=folder / "model.ckpt-400", outputs=["following"])
