"""A Keras model imported, trained here, and written back: Keras goes on as if it had trained itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras with NumPy 2
STEPS, RATE, B, T = 100, 0.02, 4, 7  # a larger rate makes losses jump, where roundings decide


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("keras")
    need("torch")


def _model(more: bool = True) -> Any:
    from keras_torch import keras

    L = keras.layers
    keras.utils.set_random_seed(3)
    ids = keras.Input((None,), dtype="int32", name="ids")
    h = L.LSTM(12, return_sequences=True)(L.Embedding(11, 5)(ids))
    h = keras.Sequential([keras.Input((None, 12)), L.LayerNormalization(), L.Dense(5, "tanh")], name="head")(h)
    if more:
        h = L.Bidirectional(L.RNN([L.GRUCell(3), L.GRUCell(5)], return_sequences=True), merge_mode="sum")(h)
        h = L.BatchNormalization()(h)
    return keras.Model(ids, L.TimeDistributed(L.Dense(3))(h), name="tagger")


def _compiled(model: Any) -> Any:
    from keras_torch import keras

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(RATE), loss=loss)
    return model


def _step(model: Any, ids: Any, tags: Any) -> float:
    model.reset_metrics()
    return float(model.train_on_batch(ids, tags))


@pytest.mark.slow
def test_keras_goes_on() -> None:
    from keras_torch import keras

    model = _compiled(_model(more=False))
    alone, second = (_compiled(keras.models.clone_model(model)) for _ in range(2))
    alone.set_weights(model.get_weights())
    rng = np.random.default_rng(4)
    ids, tags = (rng.integers(0, n, (B, T)).astype(np.int32) for n in (11, 3))
    graph = li.from_keras(model)
    assert isinstance(graph, li.Graph)
    assert set(graph.weights) == {v.path for v in model.trainable_variables}
    labels = li.input("tags", ("B", "T"), "i32")
    loss = li.Graph("loss", [*graph.params, labels], {"loss": li.cross_entropy(graph.outputs[0], labels)})
    with li.compile(li.train_step(loss, "loss", li.sgd(RATE))) as exe:
        train = exe.entries["train"]
        for k in range(STEPS):
            got = float(train(ids=ids, tags=tags)["loss"])
            assert got == pytest.approx(_step(alone, ids, tags), abs=1e-4), k
        assert li.to_keras(exe, model) is model
        assert li.to_keras({n: exe.state[n] for n in graph.weights}, second) is second
    for _ in range(20):
        want = _step(alone, ids, tags)
        assert _step(model, ids, tags) == pytest.approx(want, abs=1e-4)
        assert _step(second, ids, tags) == pytest.approx(want, abs=1e-4)


def test_every_name_is_keras_own() -> None:
    model = _model()
    drawn = {v.path: np.full(tuple(v.shape), k, np.float32) for k, v in enumerate(model.weights)}
    li.to_keras(drawn, model)
    for k, v in enumerate(model.weights):
        assert (v.value.detach().numpy() == k).all(), v.path


def test_a_layer_of_two_models_is_one() -> None:
    """In a live model; a file of Keras has its weights in one place alone."""
    from keras_torch import keras

    shared, inner = keras.layers.Dense(4, name="shared"), keras.Input((4,), name="inner")
    x = keras.Input((4,), name="x")
    model = keras.Model(x, shared(keras.Model(inner, shared(inner), name="head")(x)))
    graph = li.from_keras(model)
    assert isinstance(graph, li.Graph)
    assert len(graph.weights) == 2
    bias = next(n for n in graph.weights if n.endswith("bias"))
    li.to_keras({bias: np.arange(4, dtype=np.float32)}, model)
    assert (shared.bias.value.detach().numpy() == np.arange(4)).all()


def test_what_does_not_fit_changes_nothing() -> None:
    model = _model()
    before = model.get_weights()
    fits = np.zeros(3, np.float32)
    head = next(v.path for v in model.weights if v.path.startswith("time_distributed")).rpartition("/")[0]
    cases: tuple[tuple[Any, str], ...] = (
        ({f"{head}/bias": fits, "other": fits}, "Functional tagger has no 'other'"),
        ({f"{head}/bias": fits, f"{head}/kernel": fits}, r"kernel is f32\[3\], in Functional tagger f32\[5,3\]"),
        ({f"{head}/bias": fits.astype(np.float64)}, r"bias is f64\[3\], in Functional tagger f32\[3\]"),
        ({f"{head}/bias": np.array(["a"])}, "bias: element type"),
        (fits, "arrays by name, got ndarray"),
    )
    for arrays, text in cases:
        with pytest.raises(li.ModelError, match=text):
            li.to_keras(arrays, model)
        assert all((v == b).all() for v, b in zip(model.get_weights(), before, strict=True))
    with pytest.raises(li.ModelError, match=r"a Keras 3 model, got dict"):
        li.to_keras({}, {})
