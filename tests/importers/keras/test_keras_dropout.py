"""`from_keras(model, training=True)`: what Keras drops with the masks that the graph draws, live and from files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras with NumPy 2
B, T, C, H = 3, 5, 4, 6
FORMS = ("live", "keras", "h5")
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("keras")
    need("torch")


def _x(*shape: int) -> Array:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def _graph(model: Any, form: str, folder: Path, **words: Any) -> li.Graph:
    from keras_torch import saved

    found = li.from_keras(model if form == "live" else saved(model, folder / f"m.{form}"), training=True, **words)
    assert isinstance(found, li.Graph)
    return found


def _with_masks(graph: li.Graph, drawn: list[Any], arrays: dict[str, Any]) -> tuple[dict[str, Array], list[Array]]:
    """The results, and what every dropout gave, in the order in which they were drawn."""
    results = dict(zip(graph.output_names, graph.outputs, strict=True))
    more = li.Graph("masks", graph.params, {**results, **{f"mask_{k}": v for k, v in enumerate(drawn)}})
    found = li.interpret(more, arrays)
    return {n: found[n] for n in results}, [found[f"mask_{k}"] for k in range(len(drawn))]


RECURRENT: dict[str, tuple[int, Callable[[Any], Any]]] = {  # how many masks Keras draws for each rate
    "LSTM": (4, lambda L: L.LSTM(H, dropout=0.4, recurrent_dropout=0.25, return_sequences=True)),
    "GRU": (3, lambda L: L.GRU(H, dropout=0.4, recurrent_dropout=0.25, return_sequences=True)),
    "GRU, reset before": (3, lambda L: L.GRU(H, dropout=0.4, recurrent_dropout=0.25, reset_after=False)),
    "SimpleRNN": (1, lambda L: L.SimpleRNN(H, dropout=0.4, recurrent_dropout=0.25, return_sequences=True)),
    "RNN": (4, lambda L: L.RNN(L.LSTMCell(H, dropout=0.4, recurrent_dropout=0.25), return_sequences=True)),
    "LSTM, of x alone": (1, lambda L: L.LSTM(H, dropout=0.4)),
    "GRU, of h alone": (3, lambda L: L.GRU(H, recurrent_dropout=0.25, return_sequences=True)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_dropout_is_that_of_keras(
    name: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keras' own cell computes with the masks of the graph: one for each gate, the same at every step."""
    import torch
    from keras_torch import keras, randomised, results

    count, make = RECURRENT[name]
    keras.utils.clear_session(free_memory=False)
    x = keras.Input((None, C), name="x")
    layer = make(keras.layers)
    model = randomised(keras.Model(x, layer(x), name="model"), np.random.default_rng(2))
    drawn: list[li.Value] = []
    plain = li.dropout

    def noted(*given: Any) -> li.Value:
        drawn.append(plain(*given))
        return drawn[-1]

    monkeypatch.setattr("lstm_ir.importers.keras.handlers.over_time.li.dropout", noted)
    graph = _graph(model, form, tmp_path)
    given: dict[str, Any] = {"x": _x(B, T, C), "step": np.int64(3)}
    got, masks = _with_masks(graph, drawn, given)
    cell = layer.cell
    rates = [(f"_{n}_mask", getattr(cell, n)) for n in ("dropout", "recurrent_dropout") if getattr(cell, n)]
    assert len(masks) == count * len(rates)
    for word, rate in rates:
        width = C if word == "_dropout_mask" else H
        mine = [m for m in masks if m.shape[-1] == width]
        assert len(mine) == count
        for m in mine:
            assert set(np.unique(m).round(5)) <= {0.0, np.float32(1 / (1 - rate)).round(5)}
        assert count == 1 or any((mine[0] != m).any() for m in mine[1:])
        there = [torch.tensor(m) for m in mine]
        setattr(cell, word, there if count > 1 else there[0])
    for key, w in results(model, {"x": given["x"]}, training=True).items():
        assert got[key].shape == w.shape
        assert np.allclose(got[key], w, atol=2e-5), key
    assert any(not np.allclose(got[k], w, atol=1e-3) for k, w in results(model, {"x": given["x"]}).items())


LAYERS: dict[str, Callable[[Any], Any]] = {
    "Dropout": lambda L: L.Dropout(0.3),
    "Dropout of rows": lambda L: L.Dropout(0.3, noise_shape=(None, 1, C)),
    "SpatialDropout1D": lambda L: L.SpatialDropout1D(0.3),
    "AlphaDropout": lambda L: L.AlphaDropout(0.3),
    "GaussianNoise": lambda L: L.GaussianNoise(0.3),
    "GaussianDropout": lambda L: L.GaussianDropout(0.3),
}


def _moments(y: Array, x: Array) -> tuple[Array, Array]:
    """Mean and its standard error, over the batch: element, square, share of equal elements, and how rows go together.

    A layer may draw once for all rows of a sequence: only the sequences are independent of each other.
    """
    d = y - x
    of_each = [y, y * y, d * d, y == 0, d == 0, d[:, 1:] * d[:, :-1]]
    means = np.stack([np.asarray(v, np.float64).mean((1, 2)) for v in of_each])
    return means.mean(1), means.std(1) / np.sqrt(len(y))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_drop_as_keras_does(name: str, form: str, tmp_path: Path) -> None:
    """The same statistics over 1,500 sequences: within 6 standard errors of the difference."""
    from keras_torch import keras, results

    keras.utils.clear_session(free_memory=False)
    x = keras.Input((20, C), name="x")
    model = keras.Model(x, LAYERS[name](keras.layers)(x), name="model")
    graph = _graph(model, form, tmp_path)
    given = np.full((1500, 20, C), 1.5, np.float32)
    (got,) = li.interpret(graph, {"x": given, "step": np.int64(1)}).values()
    (want,) = results(model, {"x": given}, training=True).values()
    (mine, my_error), (theirs, their_error) = _moments(got, given), _moments(want, given)
    assert (np.abs(mine - theirs) <= 6 * np.hypot(my_error, their_error) + 1e-6).all(), (mine, theirs, my_error)
    assert not (got == given).all()


def test_seed_and_step_draw() -> None:
    from keras_torch import keras

    x = keras.Input((T, C), name="x")
    model = keras.Model(x, keras.layers.Dropout(0.5)(keras.layers.GRU(H, recurrent_dropout=0.5)(x)))
    seeds: tuple[Any, ...] = (7, np.int64(7), 8)
    first, again, other = (li.from_keras(model, training=True, seed=s) for s in seeds)
    assert isinstance(first, li.Graph)
    (name,) = first.output_names

    def run(graph: Any, step: int) -> Array:
        return np.asarray(li.interpret(graph, {"x": _x(B, T, C), "step": np.int64(step)})[name])

    assert (run(first, 1) == run(again, 1)).all()
    assert (run(first, 1) != run(first, 2)).any()
    assert (run(first, 1) != run(other, 1)).any()


@pytest.mark.parametrize("written", [True, False, None])
def test_the_call_decides(written: bool | None) -> None:
    """Keras: `model(x, training=...)` goes before what a node was built with."""
    from keras_torch import keras, results

    x = keras.Input((T, C), name="x")
    model = keras.Model(x, keras.layers.GaussianNoise(0.5)(x, training=written))
    given = _x(B, T, C)
    for training in (True, False):
        (want,) = results(model, {"x": given}, training=training).values()
        graph = li.from_keras(model, training=training)
        assert isinstance(graph, li.Graph)
        arrays: dict[str, Any] = {"x": given, "step": np.int64(1)}
        (got,) = li.interpret(graph, {n: arrays[n] for n in graph.input_names}).values()
        assert (want != given).any() == (got != given).any() == training
