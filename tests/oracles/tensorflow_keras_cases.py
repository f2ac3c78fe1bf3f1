"""Keras models that TensorFlow exports as SavedModels; each case runs in a process of tensorflow_models.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tensorflow_models import Record

CASES: dict[str, Callable[[Record], None]] = {}
Layers = Callable[[Any], Sequence[Any]]


def case(name: str, *shape: int | None, rows: tuple[int, ...], kind: str = "f4") -> Callable[[Layers], Layers]:
    """A sequence of layers over an input of `shape`, tried with an array of the sizes `rows`."""

    def register(layers: Layers) -> Layers:
        def make(record: Record) -> None:
            import keras

            x = keras.Input(shape, dtype="float32" if kind == "f4" else "int32", name="x")
            y: Any = x
            for layer in layers(keras.layers):
                y = layer(y)
            model = keras.Model(x, y)
            given = record.normal(*rows) if kind == "f4" else record.rng.integers(0, 7, rows).astype(kind)
            exported(record, model, given)

        CASES[name] = make
        return layers

    return register


def exported(record: Record, model: Any, given: Any) -> None:
    """Weights moved off their first values, then as `recorded`."""
    for w in model.trainable_weights:
        w.assign(w + 0.3 * record.normal(*w.shape))
    for w in model.non_trainable_weights:
        if "moving" in w.path:
            w.assign(w + 0.2 * np.abs(record.normal(*w.shape)))
    recorded(record, model, given)


def recorded(record: Record, model: Any, given: Any) -> None:
    """The model written; results and gradients recorded."""
    import tensorflow as tf

    model.export(str(record.path), verbose=False)
    record.inputs(x=given)
    x = tf.constant(given)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = model(x)
        outputs = {f"output_{k}": v for k, v in enumerate(y if isinstance(y, (list, tuple)) else [y])}
        held = record.cotangents({n: v.numpy() for n, v in outputs.items()})
        loss = sum(tf.reduce_sum(outputs[n] * c) for n, c in held.items())
    weights = list(model.trainable_weights)
    wrt = ([x] if given.dtype.kind == "f" else []) + [w.value for w in weights]
    names = (["x"] if given.dtype.kind == "f" else []) + [w.path for w in weights]
    record.outputs({n: v.numpy() for n, v in outputs.items()})
    found = tape.gradient(loss, wrt)
    record.keep(
        "grad", {n: tf.convert_to_tensor(g).numpy() for n, g in zip(names, found, strict=True) if g is not None}
    )


@case("keras_lstm", None, 3, rows=(2, 5, 3))
def _(k: Any) -> Any:
    return [k.LSTM(4, return_sequences=True), k.Dense(2)]


@case("keras_lstm_last", None, 3, rows=(2, 5, 3))
def _(k: Any) -> Any:
    return [k.LSTM(4), k.Dense(6, activation="softmax")]


@case("keras_lstm_fixed", 6, 3, rows=(2, 6, 3))
def _(k: Any) -> Any:
    return [k.LSTM(4, return_sequences=True, activation="relu", recurrent_activation="hard_sigmoid"), k.Flatten()]


@case("keras_gru", None, 3, rows=(2, 5, 3))
def _(k: Any) -> Any:
    return [k.GRU(4, return_sequences=True), k.GRU(5, reset_after=False)]


@case("keras_simple_rnn", None, 3, rows=(2, 5, 3))
def _(k: Any) -> Any:
    return [k.SimpleRNN(4, return_sequences=True), k.SimpleRNN(5, go_backwards=True)]


@case("keras_bidirectional", None, 3, rows=(2, 5, 3))
def _(k: Any) -> Any:
    return [k.Bidirectional(k.LSTM(4, return_sequences=True)), k.Bidirectional(k.GRU(3), merge_mode="ave")]


@case("keras_masked", None, 3, rows=(4, 5, 3))
def _(k: Any) -> Any:
    return [k.Masking(), k.LSTM(4, return_sequences=True), k.GRU(5)]


@case("keras_words", None, rows=(4, 6), kind="i4")
def _(k: Any) -> Any:
    return [k.Embedding(7, 5, mask_zero=True), k.LSTM(4), k.Dense(3)]


@case("keras_conv", 20, 3, rows=(2, 20, 3))
def _(k: Any) -> Any:
    return [
        k.Conv1D(4, 3, padding="causal", dilation_rate=2, activation="relu"), k.BatchNormalization(),
        k.Conv1D(6, 4, strides=2, padding="same"), k.MaxPooling1D(2), k.LayerNormalization(),
        k.LSTM(4, return_sequences=True), k.GlobalAveragePooling1D(),
    ]  # fmt: skip


@case("keras_images", 12, 10, 3, rows=(2, 12, 10, 3))
def _(k: Any) -> Any:
    return [
        k.Conv2D(4, 3, padding="same", strides=2, activation="elu"), k.DepthwiseConv2D(3, depth_multiplier=2),
        k.BatchNormalization(), k.AveragePooling2D(2, padding="same"), k.Reshape((2, 16)), k.SimpleRNN(5),
    ]  # fmt: skip


@case("keras_unrolled", 4, 3, rows=(2, 4, 3))
def _(k: Any) -> Any:
    return [k.LSTM(5, unroll=True, return_sequences=True), k.Dropout(0.5), k.TimeDistributed(k.Dense(2, "tanh"))]


def _attention(record: Record) -> None:
    import keras

    x = keras.Input((None, 6), name="x")
    h = keras.layers.LSTM(8, return_sequences=True)(x)
    a = keras.layers.MultiHeadAttention(2, 3)(h, h)
    exported(record, keras.Model(x, [keras.layers.Add()([h, a]), h]), record.normal(2, 5, 6))


CASES["keras_attention"] = _attention
