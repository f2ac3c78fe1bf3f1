"""Names that are no text, states as large as no machine, windows of booleans: a ModelError that says which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need

import lstm_ir as li


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir")


def without_utf8(model: Any, word: bytes) -> bytes:
    """The file with bytes that are no UTF-8 in the place of a word of the same length."""
    data: bytes = model.SerializeToString()
    assert data.count(word) == 1
    return data.replace(word, b"\xff\xfe" + word[2:])


@pytest.mark.parametrize("inside", [False, True], ids=["model", "branch"])
def test_an_op_whose_name_is_no_text(inside: bool) -> None:
    node = om.node("Tanh", ["x"], ["y"])
    nodes, constants = [node], {}
    if inside:
        branch = om.graph(nodes, {}, ["y"])
        nodes, constants = [om.node("If", ["c"], ["z"], then_branch=branch, else_branch=branch)], {"c": np.array(True)}
    made = om.model(nodes, {"x": ([2], "f4")}, ["z" if inside else "y"], constants)
    data = made.SerializeToString().replace(b"\x22\x04Tanh", b"\x22\x04\xff\xfeno")
    with pytest.raises(li.ModelError, match=r"\\xff\\xfeno"):
        li.from_onnx(data)


def test_data_in_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    made = om.model([om.node("Add", ["x", "w"], ["y"])], {"x": ([2], "f4")}, ["y"], {"w": np.ones(2, "f4")})
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "data.bin"
    path = tmp_path / "model.onnx"
    path.write_bytes(without_utf8(made, b"data.bin"))
    with pytest.raises(li.ModelError, match=r"a file whose name is no text: b'\\xff\\xfeta\.bin'"):
        li.from_onnx(path)
    assert li.examine(path, target=None).report.refusals


def test_windows_of_booleans() -> None:
    node = om.node("MaxPool", ["x"], ["y"], kernel_shape=[2])
    with pytest.raises(li.ModelError, match=r"MaxPool\): the largest of windows of booleans is not taken"):
        li.from_onnx(om.model([node], {"x": ([1, 2, 5], "?")}, ["y"]))


def test_a_list_of_axes_that_is_empty() -> None:
    """onnxruntime takes it for all axes of size 1, onnx's own reference for none."""
    made = om.model([om.node("Squeeze", ["x"], ["y"], axes=[1])], {"x": ([2, 1], "f4")}, ["y"], opset=11)
    assert li.from_onnx(made).outputs[0].shape == (2,)
    del made.graph.node[0].attribute[0].ints[:]
    with pytest.raises(li.ModelError, match=r"Squeeze\): axes is an empty list"):
        li.from_onnx(made)


def layer(batch: int) -> Any:
    """A layer of so many rows, without first states."""
    rng = np.random.default_rng(20261126)
    weights = {n: rng.uniform(-1, 1, (1, 12, k)).astype("f4") for n, k in (("w", 2), ("r", 3))}
    node = om.node("LSTM", ["x", "w", "r"], ["y", "h", "c"], hidden_size=3)
    return om.model([node], {"x": (["T", batch, 2], "f4")}, ["y", "h", "c"], weights)


@pytest.mark.parametrize("batch", [2**31, 2**40])
def test_a_state_that_no_machine_holds(batch: int) -> None:
    with pytest.raises(li.ModelError, match=r"stateful: the_LSTM\.h is f32\[1,\d+,3\]: it starts as \d+ bytes"):
        li.from_onnx(layer(batch), stateful=True)
    assert "step" in li.from_onnx(layer(4), stateful=True).entries


def test_a_named_state_that_no_machine_holds() -> None:
    made = om.model([om.node("Add", ["x", "s"], ["t"])], {n: ([2**40], "f4") for n in "xs"}, ["t"])
    with pytest.raises(li.ModelError, match=r"stateful: s is f32\[1099511627776\]: it starts as 4398046511104 bytes"):
        li.from_onnx(made, stateful={"s": "t"})


def test_rates_beyond_all_sizes() -> None:
    """Each step of the output stands for 2^64 of the input."""
    pools = [om.node("MaxPool", [a], [b], kernel_shape=[1], strides=[2**32]) for a, b in ("xm", "my")]
    made = om.model(pools, {"x": ([1, 2, "T"], "f4")}, ["y"])
    with pytest.raises(li.ModelError, match=r"a dimension's coefficient is not below 2\^62|MaxPool"):
        li.from_onnx(made, stateful=True)


def test_a_constant_of_forty_axes() -> None:
    """NumPy's own iterator ends at 32 of them."""
    made = om.model([om.node("Cast", ["x"], ["y"], to=6)], {"x": ([1] * 40, "u2")}, ["y"])
    given = np.ones([1] * 40, np.int64)
    graph = li.from_onnx(made, constants={"x": given})
    assert li.interpret(graph)["y"].tolist() == given.tolist()
    with pytest.raises(li.ModelError, match="constants: x: not integers of type UINT16"):
        li.from_onnx(made, constants={"x": 70000 * given})
