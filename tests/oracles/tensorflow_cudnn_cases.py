"""Graphs with CudnnRNN, CudnnRNNV2 and CudnnRNNV3, which TensorFlow writes and, without a GPU, cannot run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

import cudnn_cases as cu
import numpy as np
from tensorflow_models import Record

CASES: dict[str, Callable[[Record], None]] = {}
SIZES = (4, 3, 5, 5)  # T, B, I, H
LAYERS: dict[str, int] = {}  # by case
ATTRIBUTES: dict[str, Mapping[str, Any]] = {}


def _write(record: Record, op: str, layers: int, attrs: Mapping[str, Any]) -> None:
    """A SavedModel over all operands, of which the weights are a variable."""
    import tensorflow as tf

    varied = op == "CudnnRNNV3"
    lengths = record.rng.permutation([4, 1, 3]) if varied else None
    arrays = cu.operands(record.rng, layers, SIZES, np.float32, lengths, **attrs)
    module = tf.Module()
    module.params = tf.Variable(arrays["params"], name="params")
    names = [n for n in arrays if n != "params" and (varied or n != "sequence_lengths")]
    open_axis = 0 if attrs.get("time_major", True) else 1
    specs = []
    for n in names:
        shape: list[int | None] = list(arrays[n].shape)
        if n == "input":
            shape[open_axis] = None
        specs.append(tf.TensorSpec(shape, arrays[n].dtype, name=n))

    def run(*given: Any) -> Any:
        made = getattr(tf.raw_ops, op)(**dict(zip(names, given, strict=True)), params=module.params, **attrs)
        return {n: getattr(made, n) for n in ("output", "output_h", "output_c")}

    tf.saved_model.save(module, str(record.path), signatures={"serving_default": tf.function(run, specs)})
    record.inputs(**{n: arrays[n] for n in names})
    record.keep("more", arrays)


def case(name: str, op: str, layers: int, **attrs: Any) -> None:
    """One op with its attributes."""
    CASES[name] = partial(_write, op=op, layers=layers, attrs=attrs)
    LAYERS[name], ATTRIBUTES[name] = layers, attrs


for _mode, _way in product(("lstm", "gru", "rnn_relu", "rnn_tanh"), ("unidirectional", "bidirectional")):
    for _op in ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"):
        case(f"{_op}_{_mode}_{_way}", _op, 1 if _op == "CudnnRNN" else 2, rnn_mode=_mode, direction=_way)
    case(f"batch_major_{_mode}_{_way}", "CudnnRNNV3", 1, rnn_mode=_mode, direction=_way, time_major=False)
case("skip", "CudnnRNNV2", 2, rnn_mode="gru", input_mode="skip_input")
case("projected", "CudnnRNNV3", 2, num_proj=2)
case("dropped", "CudnnRNNV2", 2, dropout=0.5)
