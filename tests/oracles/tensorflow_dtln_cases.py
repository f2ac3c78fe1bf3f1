"""DTLN as TensorFlow saves it: the whole model, the one that keeps its states, and both cores unrolled.

The case's folder holds `dtln_WEIGHTS.npz`: weights as `LAYER/NUMBER`, and the signal [samples].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dtln
import numpy as np
from tensorflow_models import Record

CASES: dict[str, Callable[[Record], None]] = {}


def given(folder: Any, kind: str) -> tuple[dtln.Weights, Any]:
    """The weights of a kind, and the signal."""
    weights: dtln.Weights = {}
    with np.load(folder / f"dtln_{kind}.npz") as z:
        for name in z.files:  # in the order in which they were written
            if name != "signal":
                weights.setdefault(name.partition("/")[0], []).append(z[name])
        return weights, z["signal"]


def _stream(record: Record, kind: str, normed: bool) -> None:
    """Frames [n,1,512], one call each, and what the loaded model gives."""
    import keras
    import tensorflow as tf

    weights, signal = given(record.folder, kind)
    model = dtln.whole(keras, tf, weights, normed, stateful=True)
    spec = tf.TensorSpec((1, dtln.FRAME), tf.float32, name="x")
    function = tf.function(lambda x: {"y": model(x)}, input_signature=[spec])
    tf.saved_model.save(model, str(record.path), signatures={"serving_default": function})
    run = tf.saved_model.load(str(record.path)).signatures["serving_default"]
    frames = dtln.frames(signal)
    record.inputs(x=frames)
    record.outputs({"y": np.concatenate([run(x=tf.constant(f))["y"].numpy() for f in frames[:, None]])})


def _whole(record: Record, kind: str, normed: bool) -> None:
    """Two signals, with gradients of the signal and of the weights."""
    import keras
    import tensorflow as tf
    from tensorflow_keras_cases import recorded

    weights, signal = given(record.folder, kind)
    model = dtln.whole(keras, tf, weights, normed, stateful=False)
    recorded(record, model, np.stack([signal, signal[::-1]]))


def _unrolled(record: Record, kind: str, normed: bool, place: int) -> None:
    """One core: frame after frame from its own states."""
    import keras
    import tensorflow as tf

    weights, signal = given(record.folder, kind)
    model = dtln.unrolled(keras, weights, normed)[place]
    specs = [tf.TensorSpec(t.shape, tf.float32, name=t.name) for t in model.inputs]

    def step(x: Any, states: Any) -> Any:
        return dict(zip(("y", "after"), model([x, states]), strict=True))

    signature = {"serving_default": tf.function(step, input_signature=specs)}
    tf.saved_model.save(model, str(record.path), signatures=signature)
    frames = dtln.frames(signal)
    rows = np.abs(np.fft.rfft(frames)).astype(np.float32) if place == 0 else frames
    states, made = np.zeros((1, 2, dtln.UNITS, 2), np.float32), []
    for row in rows:
        y, states = (v.numpy() for v in model([tf.constant(row[None, None]), tf.constant(states)]))
        made.append(y)
    record.inputs(rows=rows)
    record.outputs({"y": np.stack(made), "after": states})


for _kind in ("drawn", "file"):
    for _normed in (False, True):
        CASES[f"stream_{'normed_' * _normed}{_kind}"] = partial(_stream, kind=_kind, normed=_normed)
    for _place in (0, 1):
        CASES[f"unrolled_{_place}_{_kind}"] = partial(_unrolled, kind=_kind, normed=_kind == "drawn", place=_place)
CASES["whole_normed_drawn"] = partial(_whole, kind="drawn", normed=True)
CASES["whole_file"] = partial(_whole, kind="file", normed=False)
