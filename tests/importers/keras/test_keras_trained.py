"""Models of Keras compiled: one that Keras trained on real digits, and layers on Vulkan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need, need_target

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
