"""Which importer takes a model, and `lstm-ir import` and `verify` of models that are not ONNX."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need
from tensorflow_graph import written

import lstm_ir as li
from lstm_ir.cli import group
from lstm_ir.importers.kinds import KERAS, KINDS, ONNX, TENSORFLOW, TORCH, kind_of, kind_of_file

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras with NumPy 2
Capture = pytest.CaptureFixture[str]


def call(*args: str | Path) -> int:
    return group.run(list(map(str, args)))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("m.onnx", ONNX), ("M.ONNX", ONNX), ("m.keras", KERAS), ("m.h5", KERAS), ("m.hdf5", KERAS),
        ("g.pb", TENSORFLOW), ("model.ckpt-7.meta", TENSORFLOW), ("g.pbtxt", TENSORFLOW), ("m.pt2", TORCH),
        ("m.pt", TORCH), ("m.pth", TORCH), ("without", ONNX), ("", TENSORFLOW),
    ],
)  # fmt: skip
def test_files_by_name(tmp_path: Path, name: str, kind: Any) -> None:
    """The empty name is a folder."""
    assert kind_of_file(tmp_path / name) is kind


def test_files_by_content(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"\x89HDF\r\n\x1a\n and more")
    assert kind_of_file(tmp_path / "model") is KERAS
    (tmp_path / "model").write_bytes(b"\x08\x09")
    assert kind_of_file(tmp_path / "model") is ONNX


def test_no_extension_belongs_to_two_kinds() -> None:
    found = [s for k in KINDS for s in k.suffixes]
    assert len(found) == len(set(found))


def test_objects() -> None:
    pytest.importorskip("google.protobuf.message")
    from lstm_ir.importers.tensorflow.messages import message

    assert kind_of(message("GraphDef")) is TENSORFLOW
    assert kind_of(b"") is ONNX
    assert kind_of(lambda a: a) is None
    assert kind_of(None) is None


def test_a_callable_and_nothing_else_may_stand_for_a_model() -> None:
    x = li.input("x", (2,))
    with pytest.raises(li.CallError, match="against is list: neither a model nor a callable"):
        li.verify(li.Graph("g", [x], {"y": x + x}), against=[])


@pytest.fixture
def graph_file(tmp_path: Path, rng: np.random.Generator) -> tuple[Path, Any]:
    """y = tanh(x @ w) as a GraphDef, which a single odd op may follow, and w."""
    pytest.importorskip("google.protobuf.message")
    return tmp_path / "g.pb", rng.standard_normal((3, 5)).astype("f4")


def test_import_of_a_tensorflow_graph(graph_file: tuple[Path, Any], rng: np.random.Generator, capsys: Capture) -> None:
    path, w = graph_file
    written(path, w)
    package = path.with_suffix(".lirpkg")
    assert call("import", path, "--size", "B=2", "--result", "y", "-o", package) == 0
    said = capsys.readouterr().out
    assert "3 nodes of 3 ops: taken" in said
    assert "MatMul 1" in said
    x = rng.standard_normal((2, 3)).astype("f4")
    with li.load(package) as exe:
        np.testing.assert_allclose(exe(x=x)["y"], np.tanh(x @ w), rtol=2e-6, atol=2e-6)


def test_a_refused_node_of_a_tensorflow_graph(graph_file: tuple[Path, Any], capsys: Capture) -> None:
    path, w = graph_file

    def more(graph: Any) -> None:
        graph.node.add(name="odd", op="NoSuchOp", input=["y"])

    written(path, w, more)
    assert call("import", path, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert [(r["node"], r["op"]) for r in found["refusals"]] == [("odd", "NoSuchOp")]


@pytest.mark.slow
def test_verify_of_a_tensorflow_graph(graph_file: tuple[Path, Any]) -> None:
    need("tensorflow")
    path, w = graph_file
    written(path, w)
    for words in (["verify", "--seconds", "0", "--no-cold", "--try", "B=1,4"], ["import", "--check"]):
        command = [sys.executable, "-m", "lstm_ir", words[0], str(path), *words[1:]]  # TensorFlow alone in a process
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        assert "equal to g.pb by TensorFlow" in done.stdout


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("m.onnx", ["--signature", "a"], "signature is no option of ONNX models"),
        ("m.keras", ["--constant", "a=1"], "constants is no option of Keras models"),
        ("m.pt2", ["--size", "a=1"], "sizes is no option of PyTorch models"),
    ],
)
def test_an_option_of_another_kind_is_refused(name: str, words: list[str], said: str, capsys: Capture) -> None:
    assert call("import", name, *words) == 1
    assert said in capsys.readouterr().err


def test_state_that_is_named_in_a_tensorflow_graph(
    graph_file: tuple[Path, Any], rng: np.random.Generator, capsys: Capture
) -> None:
    """s' = x @ w + s, kept between calls; the size of s is that of x."""
    path, w = graph_file

    def more(graph: Any) -> None:
        s = graph.node.add(name="s", op="Placeholder")
        s.attr["dtype"].type = 1
        s.attr["shape"].shape.dim.add(size=-1)
        s.attr["shape"].shape.dim.add(size=5)
        graph.node.add(name="sum", op="AddV2", input=["y", "s"]).attr["T"].type = 1

    written(path, w, more)
    package = path.with_suffix(".lirpkg")
    assert (
        call("import", path, "--result", "y", "--result", "sum", "--state", "s=sum", "-o", package, "-t", "cpu:host")
        == 0
    )
    assert "kept           s: f32[B,5]" in capsys.readouterr().out
    x = rng.standard_normal((2, 2, 3)).astype("f4")
    with li.load(package) as exe:
        got = [exe.entries["step"](x=a)["y"] for a in x]
        kept = exe.entries["get_state"]()["s"]
    want = np.tanh(x @ w)
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(kept, want.sum(0), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("stateful", [False, True])
def test_import_and_verify_of_a_keras_file(stateful: bool, tmp_path: Path, capsys: Capture) -> None:
    need("torch", "keras")
    from keras_torch import keras

    model = keras.Sequential([keras.Input((4, 3), batch_size=2), keras.layers.GRU(5, stateful=stateful)])
    path = tmp_path / "m.keras"
    model.save(path)
    assert kind_of(model) is KERAS
    assert call("import", path, "--check") == 0
    said = capsys.readouterr().out
    assert "GRU 1" in said
    assert "equal to m.keras by Keras" in said
    assert ("\nkept  " in said) is stateful
    assert call("verify", path, "--seconds", "0", "--no-cold") == 0


def test_a_module_of_pytorch_and_its_files(tmp_path: Path, capsys: Capture) -> None:
    need("torch")
    import torch

    module = torch.nn.GRU(3, 5).eval()
    assert kind_of(module) is TORCH
    graph = li.from_torch(module, (torch.zeros(4, 2, 3),), sizes={"input": ("T", "B", None)})
    assert li.verify(graph, against=module, seconds=0.0, cold=False).ok
    torch.save(module.state_dict(), tmp_path / "m.pt")
    assert call("import", tmp_path / "m.pt") == 1
    assert "m.pt" in capsys.readouterr().err
