"""Masks where several tensors meet, and layers with statistics of their own: beside Keras, live and from files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation"),  # of Keras with NumPy 2
    pytest.mark.filterwarnings("ignore:Layer .* does not support masking"),
]
B, T, C = 3, 5, 4


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("keras")
    need("torch")


def _rows(seed: int) -> dict[str, Any]:
    """Two inputs; steps of zeros at other places in each, one step in both."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, B, T, C)).astype(np.float32)
    a[:, 1], b[:, 2], a[0, 4], b[0, 4] = 0, 0, 0, 0
    return {"a": a, "b": b}


def _check(model: Any, given: dict[str, Any], what: Any, sizes: Any = None) -> None:
    from keras_torch import results

    graph = li.from_keras(what, sizes=sizes)
    assert isinstance(graph, li.Graph)
    got, want = li.interpret(graph, given), results(model, given)
    assert set(got) == set(want)
    for name, w in want.items():
        assert got[name].shape == w.shape
        assert np.allclose(got[name], w, atol=2e-5), (name, np.abs(got[name] - w).max())


MERGES = ("Add", "Subtract", "Average", "Multiply", "Maximum", "Minimum")
WHICH = {"both": (True, True), "first": (True, False), "second": (False, True)}


def _two_inputs(keras: Any) -> tuple[Any, Any]:
    return keras.Input((T, C), name="a"), keras.Input((T, C), name="b")


@pytest.mark.parametrize("nested", [False, True], ids=["plain", "nested"])
@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("word", [*MERGES, "Concatenate 1", "Concatenate 2"])
def test_masks_meet(word: str, which: str, nested: bool) -> None:
    """Nested: the inner model is built without masks, so that no node of it names them."""
    from keras_torch import keras, randomised

    L, masked = keras.layers, WHICH[which]
    keras.utils.clear_session(free_memory=False)
    kind, _, axis = word.partition(" ")
    call = getattr(L, kind)(axis=int(axis)) if axis else getattr(L, kind)()
    a, b = _two_inputs(keras)
    x = [L.Masking()(t) if m else t for t, m in zip((a, b), masked, strict=True)]
    if nested:
        inner = list(_two_inputs(keras))
        y = call(inner)
        out = keras.Model(inner, [y, L.LSTM(3)(y)], name="inner")(x)
    else:
        y = call(x)
        out = [y, L.LSTM(3)(y)]
    model = randomised(keras.Model([a, b], out), np.random.default_rng(1))
    _check(model, _rows(2), model)


def _of_three(L: Any, word: str, a: Any, b: Any) -> Any:
    c = L.ReLU()(a)
    y = getattr(L, word)()(
        [L.Masking()(a), L.Masking()(b), L.Masking()(L.Cropping1D((1, 0))(L.ZeroPadding1D((0, 1))(c)))]
    )
    return [y, L.LSTM(3)(y)]


@pytest.mark.parametrize("word", ["Multiply", "Maximum", "Minimum"])
def test_three_masks(word: str) -> None:
    from keras_torch import keras, randomised

    keras.utils.clear_session(free_memory=False)
    a, b = _two_inputs(keras)
    model = randomised(keras.Model([a, b], _of_three(keras.layers, word, a, b)), np.random.default_rng(3))
    _check(model, _rows(4), model)


@pytest.mark.parametrize("layer", ["LSTM", "Bidirectional", "model"])
def test_a_mask_at_each_step(layer: str) -> None:
    """A mask [B,T,S] of ids [B,T,S]: a recurrent layer over the words of each sentence."""
    from keras_torch import keras, randomised

    L = keras.layers
    keras.utils.clear_session(free_memory=False)
    ids = keras.Input((None, 6), dtype="int32", name="ids")
    words = L.Embedding(7, C, mask_zero=True)(ids)
    inner = L.LSTM(3) if layer == "LSTM" else L.Bidirectional(L.GRU(3))
    if layer == "model":
        x = keras.Input((6, C))
        inner = keras.Model(x, L.Dense(2)(L.GRU(3)(x)))
    model = randomised(keras.Model(ids, L.TimeDistributed(inner)(words)), np.random.default_rng(5))
    given = np.random.default_rng(6).integers(0, 7, (B, T, 6)).astype(np.int32)
    given[:, :, 4:] = 0
    given[0, 1] = 0
    _check(model, {"ids": given}, model)


def _normalization(**words: Any) -> Callable[[Any], Any]:
    return lambda L: L.Normalization(**words)


def _adapted(**words: Any) -> Callable[[Any], Any]:
    def make(L: Any) -> Any:
        layer = L.Normalization(**words)
        layer.adapt(np.random.default_rng(7).uniform(-1, 3, (6, 8, C)).astype(np.float32))
        return layer

    return make


LAYERS: dict[str, Callable[[Any], Any]] = {
    "adapted": _adapted(),
    "adapted over two axes": _adapted(axis=(1, 2)),
    "adapted as one": _adapted(axis=None),
    "adapted back": _adapted(invert=True),
    "given": _normalization(mean=[1.0, -2.0, 0.5, 0.0], variance=[4.0, 0.25, 0.0, 1.0]),
    "given for two axes": _normalization(axis=(1, 2), mean=[1.0, -2.0, 0.5, 0.0], variance=[4.0, 0.25, 1.0, 1.0]),
    "given as one": _normalization(mean=1.5, variance=2.0),
    "spectral": lambda L: L.SpectralNormalization(L.Dense(3)),
    "spectral convolution": lambda L: L.SpectralNormalization(L.Conv1D(5, 3), power_iterations=2),
    "adaptive mean": lambda L: L.AdaptiveAveragePooling1D(3),
    "adaptive largest": lambda L: L.AdaptiveMaxPooling1D(5),
    "adaptive of one": lambda L: L.AdaptiveMaxPooling1D(1),
}


@pytest.mark.parametrize("form", ["live", "keras", "h5"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, form: str, tmp_path: Path) -> None:
    from keras_torch import keras, randomised, saved

    keras.utils.clear_session(free_memory=False)
    x = keras.Input((8, C), name="x")
    layer = LAYERS[name](keras.layers)
    model = keras.Model(x, keras.layers.Dense(2)(layer(x)))
    if "adapted" not in name:
        model = randomised(model, np.random.default_rng(8))
    given = {"x": np.random.default_rng(9).standard_normal((B, 8, C)).astype(np.float32)}
    _check(model, given, model if form == "live" else saved(model, tmp_path / f"m.{form}"))


def test_adaptive_pools_over_images() -> None:
    from keras_torch import keras

    L = keras.layers
    x = keras.Input((7, 6, C), name="x")
    model = keras.Model(x, [L.AdaptiveAveragePooling2D((3, 4))(x), L.AdaptiveMaxPooling2D(2)(x)])
    _check(model, {"x": np.random.default_rng(10).standard_normal((B, 7, 6, C)).astype(np.float32)}, model)
    open_size = keras.Input((None, C), name="x")
    with pytest.raises(li.ModelError, match="3 windows over the open size T"):
        li.from_keras(keras.Model(open_size, L.AdaptiveAveragePooling1D(3)(open_size)))


def test_weights_of_a_spectral_layer_go_back() -> None:
    from keras_torch import keras, randomised

    x = keras.Input((C,), name="x")
    model = randomised(
        keras.Model(x, keras.layers.SpectralNormalization(keras.layers.Dense(3))(x)), np.random.default_rng(1)
    )
    graph = li.from_keras(model)
    assert isinstance(graph, li.Graph)
    drawn = {n: np.full(w.shape, k + 2, np.float32) for k, (n, w) in enumerate(graph.weights.items())}
    li.to_keras(drawn, model)
    for v in model.trainable_variables:
        (name,) = (n for n in drawn if n.endswith(v.path))
        assert (v.value.detach().numpy() == drawn[name]).all()
