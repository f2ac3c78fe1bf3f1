"""An ONNX model by onnxruntime on the CPU, as what a graph is compared with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstm_ir.importers.named_sizes import refuse_unknown
from lstm_ir.importers.onnx.reading import Source, model_bytes, read
from lstm_ir.importers.onnx.tensors import dtype_of
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.errors import ModelError
from lstm_ir.ir.numpy_files import write_npz

if TYPE_CHECKING:
    from lstm_ir.importers.onnx.reading import Model

BYTE_PRODUCTS = frozenset({
    "ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "QGemm",
    "QLinearConv", "QLinearMatMul",
})  # fmt: skip
COLD = """\
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
session = onnxruntime.InferenceSession({model!r}, options, providers=["CPUExecutionProvider"])
with numpy.load({arrays!r}) as given:
    session.run(None, dict(given))
"""


class OnnxRuntime:
    """A session of onnxruntime with its default settings; inputs that are constants of the graph are given to it."""

    def __init__(self, model: Model, constants: Mapping[str, Any] | None = None) -> None:
        try:
            import onnxruntime
        except ImportError as e:
            raise ModelError("to compare with an ONNX model needs onnxruntime: pip install onnxruntime") from e
        source = read(model)
        self.name = f"{source.file} by onnxruntime {onnxruntime.__version__}"
        self.bytes: int | None = model_bytes(model, source)
        self._model = os.fspath(model) if isinstance(model, (str, os.PathLike)) else _serialized(model)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(self._model, options, providers=["CPUExecutionProvider"])
        except Exception as e:  # a class of its own for each kind of fault
            raise ModelError(f"{source.file}: onnxruntime does not take it: {_first(e)}") from e
        if BYTE_PRODUCTS & {n.op_type for n in source.model.graph.all_nodes()} and products_saturate():
            self.name += ", whose products of u8 and i8 are not exact on this processor"
        self._outputs = [o.name for o in self._session.get_outputs()]
        self._constants = _typed(source, constants or {})

    def __call__(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Results by name."""
        return dict(zip(self._outputs, self._session.run(self._outputs, {**arrays, **self._constants}), strict=True))

    def cold(self, folder: Path, arrays: Path) -> str | None:
        """A session of its own, and one call."""
        with np.load(arrays) as given:
            whole = {**given, **self._constants}
        with (folder / "original.npz").open("wb") as f:
            write_npz(f, whole, "original.npz")
        path = self._model
        if isinstance(path, bytes):
            (folder / "original.onnx").write_bytes(path)
            path = str(folder / "original.onnx")
        return COLD.format(model=str(Path(path).resolve()), arrays=str(folder / "original.npz"))


@cache
def products_saturate() -> bool:
    """Whether onnxruntime adds each two products of u8 and i8 in 16 bits, as it does on x86-64 without VNNI."""
    import onnxruntime
    from onnx import TensorProto, helper

    types = {"u": TensorProto.UINT8, "i": TensorProto.INT8}
    inputs = [helper.make_tensor_value_info(n, t, [2]) for n, t in types.items()]
    output = helper.make_tensor_value_info("y", TensorProto.INT32, [])
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["u", "i"], ["y"])], "bytes", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {"u": np.full(2, 255, np.uint8), "i": np.full(2, 127, np.int8)}
    return bool(session.run(None, given)[0] != 2 * 255 * 127)


def _serialized(model: Any) -> bytes:
    import onnx_ir

    if isinstance(model, bytes):
        return model
    proto = onnx_ir.to_proto(model) if isinstance(model, onnx_ir.Model) else model
    data: bytes = proto.SerializeToString()
    return data


def _first(e: Exception) -> str:
    return (str(e).splitlines() or [type(e).__name__])[0]


def _typed(source: Source, constants: Mapping[str, Any]) -> dict[str, Any]:
    """The constants as arrays of the model's dtypes."""
    there = {v.name: v for v in source.model.graph.inputs}
    refuse_unknown(source.file, "constants", constants, there)
    try:
        return {n: np.asarray(a).astype(dtype_of(there[n].dtype).numpy) for n, a in constants.items()}
    except (NodeRefusedError, ValueError, TypeError) as e:
        raise ModelError(f"{source.file}: constants: {e}") from e
