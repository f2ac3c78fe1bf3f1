"""A model of letters that Keras trains over TensorFlow on the sonnets, and exports."""

from __future__ import annotations

from typing import Any

import numpy as np
from sonnet_letters import chunks, held_out, places
from tensorflow_models import Record

STEPS, BATCHES, ROWS = 32, 120, 64
LAST = 0.85 * float(np.log(places()[0]))  # the loss of one that has learned something


def unseen() -> Any:
    """Letters of the last tenth."""
    return held_out(3, 100)


def _text(record: Record) -> None:
    import keras

    L, (signs, _) = keras.layers, places()
    ids = keras.Input((None,), dtype="int32", name="ids")
    h = L.GRU(48, return_sequences=True)(L.Embedding(signs, 16)(ids))
    model = keras.Model(ids, L.Dense(signs)(L.LSTM(48, return_sequences=True)(h)))
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    rows = chunks(2, BATCHES * ROWS, STEPS)
    history = model.fit(rows[:, :-1], rows[:, 1:], batch_size=ROWS, epochs=1, verbose=0)
    assert np.isfinite(history.history["loss"][-1])
    loss = model.evaluate(rows[-ROWS:, :-1], rows[-ROWS:, 1:], verbose=0)
    model.export(str(record.path), verbose=False)
    record.inputs(ids=unseen())
    record.outputs({"output_0": model(unseen()).numpy()})
    record.keep("more", {"loss": np.array(loss)})


CASES = {"text": _text}
