"""The table of ops: beside ONNX's own list of definitions."""

from __future__ import annotations

import pytest
from device import need

from lstm_ir.importers.onnx import handlers
from lstm_ir.importers.onnx.reading import OPSETS
from lstm_ir.importers.onnx.table import TABLE

DEPLOYED = """
Add Concat Unsqueeze Transpose Slice Squeeze Gather Reshape Constant LSTM MatMul Conv Shape ConstantOfShape Sigmoid Mul
Pad Cast Div ReduceMean Sqrt Tanh Equal Relu Sub Pow Identity Expand GRU Where If Gemm Clip Split BatchNormalization
PRelu Range ScatterND Not Size Elu Abs LeakyRelu LogSoftmax ArgMax ReduceMax Softmax Einsum HardSwish Log Softplus
LayerNormalization ReduceSum Round Tile InstanceNormalization ReduceProd ScatterElements TopK RNN GlobalAveragePool Gelu
Erf Exp Neg Min Max Floor Ceil Greater GreaterOrEqual Less LessOrEqual And Or CumSum GatherElements Selu Softsign Mish
HardSigmoid Sin Cos Dropout Flatten Sum Mean QuantizeLinear DequantizeLinear DynamicQuantizeLinear MatMulInteger Scan
Loop ConvTranspose MaxPool AveragePool
"""
WANTED = DEPLOYED.split()


def test_what_deployed_models_use_is_taken() -> None:
    assert handlers
    assert not set(WANTED) - {name for domain, name in TABLE if domain == ""}


@pytest.mark.parametrize("name", sorted(name for domain, name in TABLE if domain == ""))
def test_every_definition_since_the_first_is_listed(name: str) -> None:
    """A new one in a later `onnx` has to be read before it is taken."""
    need("onnx")
    import onnx

    schemas = onnx.defs.get_all_schemas_with_history()
    there = sorted(s.since_version for s in schemas if s.name == name and s.domain == "")
    listed = TABLE["", name].versions
    assert list(listed) == [v for v in there if listed[0] <= v <= OPSETS[-1]]
    first_at_nine = max(v for v in there if v <= max(9, there[0]))
    assert listed[0] <= max(first_at_nine, there[0])


def test_the_newest_operator_set_is_known() -> None:
    need("onnx")
    import onnx

    assert OPSETS[-1] >= onnx.defs.onnx_opset_version()
