"""TensorFlow's recurrent ops: each is one node of the graph, of the same name, with its own gradient."""

from __future__ import annotations

from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.tensorflow.call import Call
from lstm_ir.importers.tensorflow.table import taken
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.by_name import op

_STEP = "i cs f o ci co h"


def _given(c: Call, names: str) -> dict[str, Any]:
    """The operands by the names of the op, as many as there are."""
    words = names.split()
    if len(c.inputs) != len(words):
        raise NodeRefusedError(f"it has {len(c.inputs)} operands, not {len(words)}")
    return {n: c.value(i) for i, n in enumerate(words)}


@taken("LSTMBlockCell", results=_STEP)
def lstm_block_cell(c: Call) -> list[Value]:
    """One step of an LSTM."""
    attrs = {
        "forget_bias": c.real("forget_bias", 1.0),
        "cell_clip": c.real("cell_clip", 3.0),
        "use_peephole": c.flag("use_peephole"),
    }
    return list(op("tf.LSTMBlockCell", **_given(c, "x cs_prev h_prev w wci wcf wco b"), **attrs))


@taken("BlockLSTM", "BlockLSTMV2", results=_STEP)
def block_lstm(c: Call) -> list[Value]:
    """An LSTM over a whole sequence."""
    attrs: dict[str, Any] = {"use_peephole": c.flag("use_peephole")}
    if c.name == "BlockLSTM":
        attrs |= {"forget_bias": c.real("forget_bias", 1.0), "cell_clip": c.real("cell_clip", 3.0)}
    else:
        attrs["cell_clip"] = c.real("cell_clip", 0.0)
    given = _given(c, "seq_len_max x cs_prev h_prev w wci wcf wco b")
    return list(op(f"tf.{c.name}", **given, **attrs))


@taken("GRUBlockCell", results="r u c h")
def gru_block_cell(c: Call) -> list[Value]:
    """One step of a GRU."""
    return list(op("tf.GRUBlockCell", **_given(c, "x h_prev w_ru w_c b_ru b_c")))


def _cudnn(c: Call, time_major: bool, lengths: Value) -> Any:
    x, h, state, params = (c.value(i) for i in range(4))
    attrs = {
        "rnn_mode": c.word("rnn_mode", "lstm"), "input_mode": c.word("input_mode", "linear_input"),
        "direction": c.word("direction", "unidirectional"), "dropout": c.real("dropout", 0.0),
        "seed": c.integer("seed", 0), "seed2": c.integer("seed2", 0), "num_proj": c.integer("num_proj", 0),
        "is_training": c.flag("is_training", True), "time_major": time_major,
    }  # fmt: skip
    if attrs["dropout"] and attrs["is_training"]:
        raise NodeRefusedError("dropout in training draws random numbers, which only TensorFlow can draw again")
    given = {"input": x, "input_h": h, "input_c": state, "params": params, "sequence_lengths": lengths}
    return op("tf.CudnnRNNV3", **given, **attrs)


@taken("CudnnRNNV3", results="output output_h output_c reserve_space host_reserved", refused="dropout in training")
def cudnn_v3(c: Call) -> list[Value]:
    """Recurrent layers on cuDNN's weights, with lengths."""
    return list(_cudnn(c, c.flag("time_major", True), c.value(4)))


@taken(
    "CudnnRNN", "CudnnRNNV2", results="output output_h output_c reserve_space host_reserved",
    refused="dropout in training",
)  # fmt: skip
def cudnn(c: Call) -> list[Value]:
    """The same without lengths: every row has all steps."""
    x = c.value(0)
    if x.rank != 3:
        raise NodeRefusedError(f"the operand is {x.type}")
    steps = li.convert(li.size(x.shape[0]), DType.i32)
    return list(_cudnn(c, True, li.broadcast_to(steps, (x.shape[1],))))
