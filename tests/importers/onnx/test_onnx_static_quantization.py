"""Files of onnxruntime's `quantize_static`: recurrent layers between products and activations of 8 bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

I, H, O = 12, 16, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def model(kind: str, rng: np.random.Generator) -> Any:
    """Y [T,B,O] of X [T,B,I]: a product and relu, the layer, a product and a bias."""
    from onnx import TensorProto, helper, numpy_helper

    g = GATES[kind]
    shapes = {"m": (I, H), "W": (1, g * H, H), "R": (1, g * H, H), "B": (1, 2 * g * H), "o": (H, O), "c": (O,)}
    arrays = {n: rng.uniform(-1, 1, s).astype(np.float32) * s[-1] ** -0.5 * 2 for n, s in shapes.items()}
    held = [numpy_helper.from_array(a, n) for n, a in (arrays | {"axes": np.array([1])}).items()]
    nodes = [
        helper.make_node("MatMul", ["X", "m"], ["p"]), helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node(kind, ["q", "W", "R", "B"], ["h"], hidden_size=H),
        helper.make_node("Squeeze", ["h", "axes"], ["s"]), helper.make_node("MatMul", ["s", "o"], ["z"]),
        helper.make_node("Add", ["z", "c"], ["Y"]),
    ]  # fmt: skip
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, ["T", "B", I])
    y = helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, kind, [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def quantized(kind: str, signed: bool, by_channel: bool, folder: Path, rng: np.random.Generator) -> Path:
    import onnx
    from onnxruntime import quantization as q

    class Rows(q.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left: Iterator[Any] = iter([{"X": rng.standard_normal((9, 2, I)).astype("f4")} for _ in range(8)])

        def get_next(self) -> Any:
            return next(self.left, None)

    given, made = folder / "given.onnx", folder / "made.onnx"
    onnx.save(model(kind, rng), str(given))
    word = q.QuantType.QInt8 if signed else q.QuantType.QUInt8
    q.quantize_static(
        str(given), str(made), Rows(), quant_format=q.QuantFormat.QDQ, activation_type=word,
        weight_type=q.QuantType.QInt8, per_channel=by_channel,
    )  # fmt: skip
    return made


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize(("signed", "by_channel"), [(False, False), (True, True)])
def test_as_onnxruntime(kind: str, signed: bool, by_channel: bool, tmp_path: Path, rng: np.random.Generator) -> None:
    """Results are numbers of 8 bits by a scale: nearly all are equal, the others, rounded at a half, are neighbours."""
    need("onnx", "onnxruntime")
    import onnx
    import onnxruntime

    path = quantized(kind, signed, by_channel, tmp_path, rng)
    ops = {n.op_type for n in onnx.load(str(path)).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear", kind} <= ops
    x = rng.standard_normal((7, 3, I)).astype(np.float32)
    (want,) = onnxruntime.InferenceSession(str(path)).run(None, {"X": x})
    got = li.compile(li.from_onnx(path))(X=x)["Y"]
    levels = np.unique(want)
    quantum = np.diff(levels).min()
    assert len(levels) > 20
    np.testing.assert_allclose(got, want, rtol=0, atol=1.01 * quantum)
    assert (np.abs(got - want) < quantum / 2).mean() > 0.98
