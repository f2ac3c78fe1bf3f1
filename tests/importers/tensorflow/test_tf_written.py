"""`li.to_tf`: TensorFlow takes the copies that were written, computes the same, and trains on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_models as tm
from device import need
from paths import DOCS
from tensorflow_compare import close
from tensorflow_digits_cases import HERE as DIGITS_HERE
from tensorflow_digits_cases import RATE as DIGITS_RATE
from tensorflow_digits_cases import rows as digits_rows
from tensorflow_graph import written
from tensorflow_written_cases import HERE, RATE, STEPS, rows

import lstm_ir as li
from lstm_ir.data import digits

pytest.importorskip("google.protobuf.message")
pytestmark = [pytest.mark.xdist_group("tensorflow"), pytest.mark.one_day("twins")]
TF1 = DOCS / "tutorial" / "data" / "tf1"
W = np.arange(15, dtype="f4").reshape(3, 5)
CASES = "tensorflow_written_cases"


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> tm.Recorded:
    need("tensorflow")
    return tm.made(tmp_path_factory.mktemp("twins"), 4, CASES, ["twins"])["twins"]


def _learner(graph: Any, rate: float, loss: Any, *more: Any) -> Any:
    return li.compile(li.train_step(li.Graph("loss", [*graph.params, *more], {"loss": loss}), "loss", li.sgd(rate)))


def test_tensorflow_goes_on(twins: tm.Recorded, tmp_path: Path) -> None:
    """100 steps here, the others by TensorFlow: the losses of TensorFlow alone. The rest is as it was."""
    graph = li.from_tf(twins.path, signature="serving_default")
    assert isinstance(graph, li.Graph)
    assert set(graph.weights) == {"a/w", "a/c", "b/w", "b/c"}
    want = li.input("want", ("B", 4))
    with _learner(graph, RATE, li.mean(li.square(graph.outputs[0] - want)), want) as exe:
        for k in range(HERE):
            x, y = rows(k)
            loss = exe.entries["train"](x=x, want=y)["loss"]
            assert float(loss) == pytest.approx(twins.more["losses"][k], abs=1e-4), k
        assert li.to_tf(exe, twins.path, tmp_path / "deep" / "twins_on") == tmp_path / "deep" / "twins_on"
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["twins_on"]
    found = tm.made(tmp_path / "deep", 4, CASES, ["twins_on"])["twins_on"]
    np.testing.assert_allclose(found.more["losses"], twins.more["losses"][HERE:], atol=1e-4)
    assert [str(found.more[n]) for n in ("count", "word")] == ["7", "word"]
    again = li.from_tf(found.path, signature="serving_default")
    close(li.interpret(again, x=rows(STEPS)[0]), found.outputs, 1e-6)  # type: ignore[arg-type]


def test_names_do_not_hang_on_the_signature(twins: tm.Recorded, tmp_path: Path) -> None:
    """Two variables are called w: both have their paths, in each signature."""
    program, second = li.from_tf(twins.path), li.from_tf(twins.path, signature="second")
    assert isinstance(program, li.Program)
    assert isinstance(second, li.Graph)
    assert set(program.weights) == {"a/w", "a/c", "b/w", "b/c"}
    assert set(second.weights) == {"b/w"}
    copy = li.to_tf({"b/w": np.eye(4, dtype="f4")}, twins.path, tmp_path / "copy")
    x = np.ones((2, 4), np.float32)
    assert (li.interpret(li.from_tf(copy, signature="second"), x=x)["y"] == 1).all()  # type: ignore[arg-type]
    for name in ("w", "count"):  # `count` is no weight: no signature reads it
        with pytest.raises(li.ModelError, match=f"twins has no '{name}'"):
            li.to_tf({name: np.eye(4, dtype="f4")}, twins.path, tmp_path / "other")


@pytest.mark.slow
def test_a_model_that_keras_exported(tmp_path: Path) -> None:
    need("tensorflow")
    trained = tm.made(tmp_path, 8, "tensorflow_digits_cases", ["digits"])["digits"]
    graph, data = li.from_tf(trained.path), digits()
    assert isinstance(graph, li.Graph)
    label = li.input("label", ("B",), "i32")
    with _learner(graph, DIGITS_RATE, li.cross_entropy(graph.outputs[0], label), label) as exe:
        for k in range(DIGITS_HERE):
            part = digits_rows(k)
            x, labels = data.train_images[part].astype(np.float32) / 16, data.train_labels[part].astype(np.int32)
            exe.entries["train"](x=x, label=labels)
        li.to_tf(exe, trained.path, tmp_path / "digits_on")
    found = tm.made(tmp_path, 8, "tensorflow_digits_cases", ["digits_on"])["digits_on"]
    np.testing.assert_allclose(found.more["losses"], trained.more["losses"][DIGITS_HERE:], atol=1e-4)
    assert found.more["count"].tolist() == [11, 22]
    assert found.more["same"]
    seen = data.test_images.astype(np.float32) / 16
    with li.compile(li.from_tf(found.path)) as exe:
        close(exe(x=seen), found.outputs, 2e-5)


def test_a_frozen_graph(tmp_path: Path) -> None:
    need("tensorflow")
    written(tmp_path / "g.pb", W)
    w = np.random.default_rng(0).normal(size=(3, 5)).astype("f4")
    assert li.to_tf({"w": w}, tmp_path / "g.pb", tmp_path / "frozen_on.pb") == tmp_path / "frozen_on.pb"
    found = tm.made(tmp_path, 4, CASES, ["frozen_on"])["frozen_on"]
    close({"y": np.tanh(found.inputs["x"] @ w)}, found.outputs, 1e-6)
    close(li.interpret(li.from_tf(found.path), **found.inputs), found.outputs, 1e-6)  # type: ignore[arg-type]


def test_a_checkpoint_of_tensorflow_1(tmp_path: Path) -> None:
    need("tensorflow")
    for part in (".index", ".data-00000-of-00001"):
        shutil.copy(TF1 / f"model.ckpt-400{part}", tmp_path / f"checkpoint_on{part}")
    before = tm.made(tmp_path, 4, CASES, ["checkpoint_on"])["checkpoint_on"].outputs
    changed = {n: a + np.float32(k + 1) for k, (n, a) in enumerate(before.items()) if a.dtype == np.float32}
    li.to_tf(changed, TF1 / "graph.pb", tmp_path / "b" / "checkpoint_on", checkpoint=TF1 / "model.ckpt-400")
    found = tm.made(tmp_path / "b", 4, CASES, ["checkpoint_on"])["checkpoint_on"].outputs
    assert set(found) == set(before)
    assert len(changed) > 2
    for name, array in found.items():
        np.testing.assert_array_equal(array, changed.get(name, before[name]), err_msg=name)


def test_what_does_not_fit_writes_nothing(tmp_path: Path) -> None:
    written(tmp_path / "g.pb", W)
    before = (tmp_path / "g.pb").read_bytes()
    other, kernel = np.zeros((3, 5), "f4"), np.zeros((5, 3), "f4")
    cases: tuple[tuple[Any, Any, dict[str, Any], str], ...] = (
        ({"w": other, "v": other}, "g.pb", {}, "to_tf: g.pb has no 'v'"),
        ({"w": kernel}, "g.pb", {}, r"to_tf: w is f32\[5,3\], in g.pb f32\[3,5\]"),
        ({"w": other.astype("f8")}, "g.pb", {}, r"to_tf: w is f64\[3,5\], in g.pb f32\[3,5\]"),
        (other, "g.pb", {}, "arrays by name, got ndarray"),
        ({}, TF1 / "graph.pb", {}, "graph.pb has variables without values: give checkpoint="),
        ({"dense/bias": other}, TF1 / "graph.pb", {"checkpoint": TF1 / "model.ckpt-400"}, "to_tf: dense/bias is f32"),
    )
    for arrays, model, given, text in cases:
        with pytest.raises(li.ModelError, match=text):
            li.to_tf(arrays, tmp_path / model, tmp_path / "copy", **given)
        assert [p.name for p in tmp_path.iterdir()] == ["g.pb"]
    with pytest.raises(li.ModelError, match="the path of a TensorFlow model, got bytes"):
        li.to_tf({}, before, tmp_path / "copy")  # type: ignore[arg-type]
    with pytest.raises(li.ModelError, match=r"to_tf: g.pb is there already: name another path"):
        li.to_tf({"w": other}, tmp_path / "g.pb", tmp_path / "g.pb")
    assert (tmp_path / "g.pb").read_bytes() == before
    li.to_tf({}, TF1 / "graph.pb", tmp_path / "c", checkpoint=TF1 / "model.ckpt-400")
    with pytest.raises(li.ModelError, match=r"to_tf: c.index is there already"):
        li.to_tf({}, TF1 / "graph.pb", tmp_path / "c", checkpoint=TF1 / "model.ckpt-400")


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at the end of a folder's copy."""
    (tmp_path / "m").mkdir()
    written(tmp_path / "g.pb", W)
    _as_saved_model(tmp_path / "g.pb", tmp_path / "m" / "saved_model.pb")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr("os.rename", full)
        with pytest.raises(li.ModelError, match="to_tf: copy: No space left on device"):
            li.to_tf({"w": W + 1}, tmp_path / "m", tmp_path / "copy")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["g.pb", "m"]
    with pytest.raises(li.ModelError, match="to_tf: copy stands in the model itself, m: name a path outside"):
        li.to_tf({"w": W + 1}, tmp_path / "m", tmp_path / "m" / "copy")
    assert [p.name for p in (tmp_path / "m").iterdir()] == ["saved_model.pb"]
    li.to_tf({"w": W + 1}, tmp_path / "m", tmp_path / "copy")
    x = np.ones((1, 3), np.float32)
    got = li.interpret(li.from_tf(tmp_path / "copy"), x=x)  # type: ignore[arg-type]
    close(got, {"y": np.tanh(x @ (W + 1))}, 1e-6)


def test_a_data_file_that_ends_early(tmp_path: Path) -> None:
    for part in (".index", ".data-00000-of-00001"):
        data = (TF1 / f"model.ckpt-400{part}").read_bytes()
        (tmp_path / f"m{part}").write_bytes(data if part == ".index" else data[: len(data) // 2])
    with pytest.raises(li.ModelError, match=r"to_tf: graph.pb: m.data-00000-of-00001 ends before a tensor does"):
        li.to_tf({}, TF1 / "graph.pb", tmp_path / "c", checkpoint=tmp_path / "m")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.data-00000-of-00001", "m.index"]


def _as_saved_model(graph: Path, path: Path) -> None:
    """A frozen graph as TensorFlow 1 saves it to be served."""
    from lstm_ir.importers.tensorflow.messages import message

    saved = message("SavedModel")
    meta = saved.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    meta.graph_def.ParseFromString(graph.read_bytes())
    signature = meta.signature_def["serving_default"]
    for ends, name in ((signature.inputs, "x"), (signature.outputs, "y")):
        ends[name].name, ends[name].dtype = f"{name}:0", 1
    for size in (-1, 3):
        signature.inputs["x"].tensor_shape.dim.add(size=size)
    path.write_bytes(saved.SerializeToString())


def test_arguments_of_other_types(tmp_path: Path) -> None:
    written(tmp_path / "g.pb", W)
    cases: tuple[tuple[Any, str], ...] = (
        (lambda: li.to_tf({}, tmp_path / "g.pb", None), "the third argument is the path of the copy, got NoneType"),  # type: ignore[arg-type]
        (lambda: li.from_tf(tmp_path / "g.pb", outputs=3), "outputs is 3, not a list of names"),  # type: ignore[arg-type]
        (lambda: li.from_tf(tmp_path / "g.pb", checkpoint=3), r"what stands before \.index of its files, got int"),  # type: ignore[arg-type]
        (lambda: li.from_tf(tmp_path / "g.pb", checkpoint=b"x"), r"stands before \.index of its files, got bytes"),  # type: ignore[arg-type]
    )
    for call, text in cases:
        with pytest.raises(li.ModelError, match=text):
            call()
