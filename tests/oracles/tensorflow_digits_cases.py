"""A classifier that TensorFlow trains on the project's digits, saves, and trains on."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow_models import Record

from lstm_ir.data import digits

STEPS, ROWS, RATE = 20, 64, 0.01  # at a rate of 0.1 the loss jumps, and roundings grow with it


def _digits(record: Record) -> None:
    """Logits of images that it has not seen, and the losses of the steps that follow."""
    import keras
    import tensorflow as tf

    data, L = digits(), keras.layers
    x, labels = data.train_images.astype(np.float32) / 16, data.train_labels.astype(np.int32)
    rows = keras.Input((8, 8), name="x")
    h = L.Bidirectional(L.LSTM(12, return_sequences=True))(rows)
    model = keras.Model(rows, L.Dense(10)(L.GRU(16)(h)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss)
    model.fit(x, labels, batch_size=128, epochs=12, verbose=0)
    model.export(str(record.path), verbose=False)
    seen = data.test_images.astype(np.float32) / 16
    record.inputs(x=seen)
    record.outputs({"output_0": model(seen).numpy()})
    losses: list[Any] = []
    for k in range(STEPS):
        part = slice(k * ROWS, (k + 1) * ROWS)
        with tf.GradientTape() as tape:
            losses.append(loss(labels[part], model(x[part])))
        for v, slope in zip(
            model.trainable_variables, tape.gradient(losses[-1], model.trainable_variables), strict=True
        ):
            v.assign_sub(RATE * slope)
    record.keep("more", {"losses": np.array(losses), **{v.path: v.numpy() for v in model.trainable_variables}})


CASES = {"digits": _digits}
