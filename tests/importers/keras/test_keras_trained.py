"""Models of Keras compiled: one that Keras trained on real digits, and layers on Vulkan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need, need_target
from sonnet_letters import chunks, held_out, places, sure_of_one

import lstm_ir as li
from lstm_ir.data import digits

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation"),  # of Keras with NumPy 2
    pytest.mark.filterwarnings("ignore:Layer .* does not support masking"),
]
TARGETS = ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """A file of a classifier, images that it has not seen, and Keras' probabilities."""
    need("keras")
    need("torch")
    from keras_torch import keras, results, saved

    data, L = digits(), keras.layers
    keras.utils.set_random_seed(1)
    rows = keras.Input((8, 8), name="rows")
    h = L.Dropout(0.1)(L.Bidirectional(L.GRU(16))(L.Masking()(rows)))  # some images end in rows of zeros
    model = keras.Model(rows, L.Dense(10, "softmax", name="digit")(h), name="digits")
    model.compile(keras.optimizers.Adam(0.02), keras.losses.SparseCategoricalCrossentropy())
    x, labels = data.train_images.astype(np.float32) / 16, data.train_labels.astype(np.int32)
    model.fit(x, labels, batch_size=128, epochs=6, verbose=0)
    test = data.test_images.astype(np.float32) / 16
    want = results(model, {"rows": test})["digit"]
    assert (want.argmax(1) == data.test_labels).mean() > 0.85
    return Path(saved(model, tmp_path_factory.mktemp("digits") / "digits.keras")), test, want


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_digits(target: str, trained: tuple[Path, Any, Any]) -> None:
    need_target(target)
    path, test, want = trained
    graph = li.from_keras(path)
    assert isinstance(graph, li.Graph)
    with li.compile(graph, target) as exe:
        got = exe(rows=test)["digit"]
    assert np.allclose(got, want, atol=2e-5)
    assert (got.argmax(1) == want.argmax(1)).all()


@pytest.mark.vulkan
@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_random_models_on_vulkan(number: int, seed: int) -> None:
    need("keras", "torch", "vulkan")
    from keras_beside import forward
    from keras_random import drawn
    from keras_torch import results

    model, arrays, _ = drawn(np.random.default_rng([seed, number]))
    graph = li.from_keras(model)
    assert isinstance(graph, li.Graph)
    with li.compile(graph, "vulkan") as exe:
        forward(graph, arrays, results(model, arrays), 1e-4, lambda _, given: exe(given))


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """A file of a model of letters, text that it has not seen, and Keras' scores of the letters that come next."""
    need("keras")
    need("torch")
    from keras_torch import keras, results, saved

    L, (signs, _) = keras.layers, places()
    keras.utils.set_random_seed(2)
    ids = keras.Input((None,), dtype="int32", name="ids")
    h = L.LSTM(40, return_sequences=True)(L.Embedding(signs, 16)(ids))
    model = keras.Model(ids, L.Dense(signs, name="next")(h), name="letters")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.03), loss)
    rows = chunks(1, 80 * 64, 16)
    model.fit(rows[:, :-1], rows[:, 1:], batch_size=64, epochs=1, verbose=0)
    assert model.evaluate(rows[-64:, :-1], rows[-64:, 1:], verbose=0) < 0.85 * np.log(signs)
    text = held_out(3, 100)
    return Path(saved(model, tmp_path_factory.mktemp("letters") / "letters.keras")), text, results(model, {"ids": text})


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_the_same_letters(target: str, letters: tuple[Path, Any, Any]) -> None:
    need_target(target)
    path, text, want = letters
    graph = li.from_keras(path)
    assert isinstance(graph, li.Graph)
    with li.compile(graph, target) as exe:
        got = exe(ids=text)["next"]
    assert np.allclose(got, want["next"], atol=1e-4)
    sure_of_one(got, want["next"])
