"""`li.examine`: the report of `lstm-ir import`, of files and of live models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.cli import group


def _onnx() -> Any:
    import onnx_models as om

    names = ("w", "r")
    node = om.node("GRU", ["x", *names], ["y"], hidden_size=3)
    arrays = {n: np.zeros((1, 9, k), np.float32) for n, k in zip(names, (4, 3), strict=True)}
    return om.model([node], {"x": (("T", "B", 4), np.float32)}, ["y"], arrays)


def test_an_onnx_model_and_its_file_have_one_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need("onnx")
    need("onnx_ir")
    path = tmp_path / "model.onnx"
    path.write_bytes(_onnx().SerializeToString())
    found = li.examine(path)
    assert found.report.ok
    assert isinstance(found.graph, li.Graph)
    (layer,) = found.report.recurrences
    assert (layer.kind, layer.T, layer.B, layer.H) == ("gru", "T", "B", "3")
    assert layer.runs is not None
    assert group.run(["import", str(path)]) == 0
    assert str(found) == capsys.readouterr().out.rstrip("\n")
    fixed = li.examine(_onnx(), target=None, sizes={"T": 7}).report
    assert fixed.target is None
    assert fixed.recurrences[0].T == "7"


def test_a_module_of_pytorch() -> None:
    need("torch")
    import torch

    module = torch.nn.LSTM(4, 5, batch_first=True)
    found = li.examine(module, (torch.zeros(2, 3, 4),), sizes={"input": ("B", "T", None)})
    assert [r.kind for r in found.report.recurrences] == ["lstm"]
    assert "recurrence" in str(found)
    refused = li.examine(torch.nn.Conv3d(1, 1, 1), (torch.zeros(1, 1, 2, 2, 2),))
    assert refused.graph is None
    assert "aten.convolution.default" in str(refused)


def test_a_model_of_keras() -> None:
    need("keras")
    need("torch")
    from keras_torch import keras

    x = keras.Input((None, 3), name="x")
    found = li.examine(keras.Model(x, keras.layers.LSTM(4)(x)))
    assert [r.kind for r in found.report.recurrences] == ["lstm"]
    assert found.report.format.startswith("Keras 3")


def test_what_is_no_model() -> None:
    with pytest.raises(li.ModelError, match="examine: dict is no model of ONNX, Keras, TensorFlow or PyTorch"):
        li.examine({})
