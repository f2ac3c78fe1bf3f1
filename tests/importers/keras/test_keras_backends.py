"""Live models of Keras over TensorFlow, JAX and PyTorch: one graph, Keras' results, and weights that go back.

Each backend has a process of its own.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import keras_backends as kb
import numpy as np
import pytest
from device import need

pytestmark = [pytest.mark.xdist_group("tensorflow"), pytest.mark.one_day("made")]
NAMES = (
    "LSTM_0_2", "LSTM_2_0_masked", "LSTM_state", "GRU_0_3_masked", "GRU_1_0", "SimpleRNN_1_0", "RNN_stacked",
    "Bidirectional_GRU_concat", "Bidirectional_masked", "Conv1D_causal", "BatchNormalization", "LayerNormalization",
    "TimeDistributed", "activations", "Dropout", "nested", "images", "operations",
)  # fmt: skip
BACKENDS = ("tensorflow", "jax", "torch")
Made = dict[str, tuple[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """By backend what its process left."""
    need("keras")
    folder: Path = tmp_path_factory.mktemp("backends")

    @cache
    def of(backend: str) -> Made:
        need(backend)
        return kb.run(folder, backend, NAMES)

    return of


def close(got: dict[str, Any], want: dict[str, Any]) -> None:
    assert set(got) == set(want)
    for n, w in want.items():
        assert (got[n].shape, got[n].dtype) == (w.shape, w.dtype), n
        np.testing.assert_allclose(got[n], w, rtol=0, atol=2e-5 * max(1.0, float(np.abs(w).max(initial=0))), err_msg=n)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_beside_keras(name: str, backend: str, made: Any) -> None:
    """Results of the live model, and again with the weights that were written into it."""
    said, arrays = made(backend)[name]
    assert arrays, said
    for got, want in (("graph", "keras"), ("again", "after")):
        close(kb.part(arrays, got), kb.part(arrays, want))


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
@pytest.mark.parametrize("name", NAMES)
def test_the_graph_is_that_of_every_backend(name: str, backend: str, made: Any) -> None:
    """Word for word: the names, the shapes and the bytes of the weights."""
    assert made(backend)[name][0] == made("torch")[name][0]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_beside_tensorflow(name: str, made: Any) -> None:
    """Of the live model, as it was imported there."""
    _, arrays = made("tensorflow")[name]
    close(kb.part(arrays, "slope"), kb.part(arrays, "d"))
