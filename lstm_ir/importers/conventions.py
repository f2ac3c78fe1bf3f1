"""How libraries hold the weights of recurrent layers: the one table of gate orders, layouts and biases.

docs/weights.md shows it with what each row rests on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lstm_ir.importers.weight_layouts import (
    Apart,
    ApartBiases,
    BiasLayout,
    GateColumns,
    GateRows,
    InnerBias,
    Joined,
    JoinedBiases,
    KerasBias,
    LdgoBias,
    Ldigo,
    Matrices,
    OneBias,
    TwoBiases,
)


@dataclass(frozen=True)
class Extra:
    """An array that some LSTMs have: its name or names, the axes of size 1 before, whether it is transposed."""

    names: tuple[str, ...]
    order: str = "ifo"  # of the blocks
    leading: int = 0
    turned: bool = False


@dataclass(frozen=True)
class Form:
    """One cell in one convention. `gates` are ours (i, f, g, o; r, z, n; h) in its order.

    resets: of a GRU whether it resets after the product; None where both exist. adds_forget: the op itself adds a
    number to the bias of f.
    """

    gates: str
    matrices: Matrices
    bias: BiasLayout
    projection: Extra | None = None
    peephole: Extra | None = None
    resets: bool | None = None
    adds_forget: bool = False


@dataclass(frozen=True)
class Convention:
    """A library's way to hold weights: the forms of its cells, and what the names and rows rest on."""

    title: str
    forms: Mapping[str, Form]
    source: str
    reasons: Mapping[str, str]  # of arrays that are refused, why


def _three(orders: tuple[str, str], matrices: Matrices, bias: BiasLayout, **lstm: Any) -> dict[str, Form]:
    """LSTM, GRU and RNN of one layout; both orders of gates."""
    more = {"resets": lstm.pop("resets", None)}
    return {
        "lstm": Form(orders[0], matrices, bias, **lstm), "gru": Form(orders[1], matrices, bias, **more),
        "rnn": Form("h", matrices, bias),
    }  # fmt: skip


_CUDNN = _three(("ifgo", "rzn"), Apart("weight_"), ApartBiases("bias_"), resets=True, projection=Extra(("weight_8",)))
_MPS = GateRows("inputWeight", "recurrentWeight"), InnerBias("bias", "secondaryBias")
_NO_MPS_PEEPHOLE = {
    "peephole": "multiplies the cell of the step before in all four gates, which no other convention has"
}
_TF_PEEPHOLES = Extra(("wci", "wcf", "wco"))

CONVENTIONS: dict[str, Convention] = {
    "lstm_ir": Convention(
        "the core ops of this project",
        _three(("ifgo", "rzn"), GateRows("w_ih", "w_hh"), InnerBias("b", "b_hn"), projection=Extra(("w_hr",)),
               peephole=Extra(("peephole",))),
        "docs/core-ops.md", {},
    ),
    "torch": Convention(
        "PyTorch's LSTM, GRU, RNN and their cells; without `_l0`",
        _three(("ifgo", "rzn"), GateRows("weight_ih", "weight_hh"), TwoBiases("bias_ih", "bias_hh"), resets=True,
               projection=Extra(("weight_hr",))),
        "documentation of torch.nn.LSTM and torch.nn.GRU; run", {},
    ),
    "keras": Convention(
        "Keras' LSTM, GRU, SimpleRNN",
        _three(("ifgo", "zrn"), GateColumns("kernel", "recurrent_kernel"), KerasBias("bias")),
        "keras/src/layers/rnn/{lstm,gru,simple_rnn}.py; run", {},
    ),
    "tf_block": Convention(
        "TensorFlow's LSTMBlockCell, BlockLSTM and GRUBlockCell",
        {"lstm": Form("igfo", Joined(("w",), (4,)), OneBias(("b",), (4,), True), peephole=_TF_PEEPHOLES,
                      adds_forget=True),
         "gru": Form("rzn", Joined(("w_ru", "w_c"), (2, 1)), OneBias(("b_ru", "b_c"), (2, 1), True), resets=False)},
        "docs/tf-block-ops.md; run", {},
    ),
    "tf_block_v2": Convention(
        "TensorFlow's BlockLSTMV2",
        {"lstm": Form("ifgo", Joined(("w",), (4,)), OneBias(("b",), (4,), True), peephole=_TF_PEEPHOLES)},
        "docs/tf-block-ops.md; run", {},
    ),
    "tf1": Convention(
        "TensorFlow 1's LSTMCell, BasicLSTMCell, GRUCell, BasicRNNCell",
        {"lstm": Form("igfo", Joined(("kernel",), (4,)), OneBias(("bias",), (4,), True), adds_forget=True,
                      projection=Extra(("projection/kernel",), turned=True),
                      peephole=Extra(("w_i_diag", "w_f_diag", "w_o_diag"))),
         "gru": Form("rzn", Joined(("gates/kernel", "candidate/kernel"), (2, 1)),
                     OneBias(("gates/bias", "candidate/bias"), (2, 1), True), resets=False),
         "rnn": Form("h", Joined(("kernel",), (1,)), OneBias(("bias",), (1,), True))},
        "keras/layers/rnn/legacy_cells.py of Keras 2.15; the equations, not run", {},
    ),
    "onnx": Convention(
        "ONNX's LSTM, GRU, RNN",
        _three(("iofg", "zrn"), GateRows("W", "R", 1), JoinedBiases("B"), peephole=Extra(("P",), "iof", 1)),
        "operators LSTM-22, GRU-22, RNN-22 of ONNX; run", {},
    ),
    "cudnn": Convention(
        "cuDNN's matrices and biases by linLayerID, as CudnnRNNParamsToCanonicalV2 gives them",
        _CUDNN, "cudnnGetRNNWeightParams; docs/cudnn-rnn.md", {},
    ),
    "cudnn_params": Convention(
        "the params vector of CudnnRNNV3, of one layer and direction",
        _CUDNN, "docs/cudnn-rnn.md", {},
    ),
    "mps": Convention(
        "MPSGraph's LSTM, GRU, singleGateRNN",
        _three(("ifgo", "zrn"), *_MPS), "docs/mpsgraph.md, from Apple's documentation", _NO_MPS_PEEPHOLE,
    ),
    "mps_flagged": Convention(
        "MPSGraph's LSTM with forgetGateLast, GRU with resetGateFirst",
        {"lstm": Form("igfo", *_MPS), "gru": Form("rzn", *_MPS)},
        "docs/mpsgraph.md, from Apple's documentation", _NO_MPS_PEEPHOLE,
    ),
    "onednn": Convention(
        "oneDNN's RNN primitives, layouts ldigo and ldgo; the GRU that resets after is linear-before-reset",
        _three(("ifgo", "zrn"), Ldigo("weights_layer", "weights_iter"), LdgoBias("bias"),
               projection=Extra(("weights_projection",), leading=2, turned=True),
               peephole=Extra(("weights_peephole",), leading=2)),
        "doc/primitives/rnn.md of oneDNN; not run", {},
    ),
    "coreml": Convention(
        "Core ML's MIL operations lstm, gru, rnn",
        _three(("ifog", "rnz"), GateRows("weight_ih", "weight_hh"), OneBias(("bias",)), resets=True,
               peephole=Extra(("peephole",))),
        "coremltools, mil/ops/defs/iOS15/recurrent.py; not run", {},
    ),
}  # fmt: skip
