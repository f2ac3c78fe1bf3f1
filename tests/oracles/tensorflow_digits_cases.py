"""A classifier that TensorFlow trains on the project's digits, saves, and trains on."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow_models import Record

from lstm_ir.data import digits

STEPS, HERE = 120, 100  # of the steps, those that are not TensorFlow's
ROWS, RATE = 64, 0.01  # at a rate of 0.1 the loss jumps, and roundings grow with it


def _digits(record: Record) -> None:
    """Logits of images that it has not seen, and the losses of the steps that follow."""
    import keras

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
    losses = _trained_on(lambda x: model(x), loss, model.trainable_variables, 0)
    record.keep("more", {"losses": np.array(losses), **{v.path: v.numpy() for v in model.trainable_variables}})


def _trained_on(run: Any, loss: Any, variables: Any, first: int) -> list[Any]:
    """The losses of the steps from `first` on."""
    import tensorflow as tf

    data, losses = digits(), list[Any]()
    x, labels = data.train_images.astype(np.float32) / 16, data.train_labels.astype(np.int32)
    for k in range(first, STEPS):
        part = rows(k)
        with tf.GradientTape() as tape:
            losses.append(loss(labels[part], run(tf.constant(x[part]))))
        for v, slope in zip(variables, tape.gradient(losses[-1], variables), strict=True):
            v.assign_sub(RATE * slope)
    return losses


def rows(step: int) -> Any:
    """Which images a step reads, all of them in turn."""
    return np.arange(step * ROWS, (step + 1) * ROWS) % len(digits().train_images)


def _digits_on(record: Record) -> None:
    """A folder with the weights after half of the steps: what it answers, and the losses of the rest."""
    import keras
    import tensorflow as tf

    model = tf.saved_model.load(str(record.path))
    seen = digits().test_images.astype(np.float32) / 16
    record.outputs({"output_0": model.serve(tf.constant(seen)).numpy()})
    # Keras exports a variable as what functions read, and twice beside it.
    answer = model.signatures["serving_default"]
    used = {v.name: v.numpy() for v in answer.variables}
    beside = [v for v in (*model.variables, *model._all_variables) if v.dtype.is_floating]
    same = all(np.array_equal(v.numpy(), used[v.name]) for v in beside)
    record.keep("more", {"same": np.array(same), "count": np.array([len(used), len(beside)])})
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    losses = _trained_on(lambda x: answer(x)["output_0"], loss, list(answer.variables), HERE)
    record.keep("more", {"losses": np.array(losses)})


CASES = {"digits": _digits, "digits_on": _digits_on}
