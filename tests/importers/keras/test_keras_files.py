"""Forms of Keras models: stateful layers, legacy `.h5` files, weights as .npz, and random models from all of them."""

from __future__ import annotations

import io
import re
import zipfile
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


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("keras")
    need("torch")


def _without_places(graph: Any) -> str:
    return re.sub(r' *loc\("[^"]*"[^)]*\)', "", str(graph))


def _stateful(more: bool) -> Any:
    from keras_torch import keras, randomised

    L = keras.layers
    keras.utils.clear_session(free_memory=False)
    x = keras.Input(batch_shape=(2, None, 3), name="x")
    h = L.LSTM(4, stateful=True, return_sequences=more)(x)
    if more:
        h = L.RNN([L.GRUCell(5), L.SimpleRNNCell(2)], stateful=True, return_sequences=True)(h)
        h = L.Bidirectional(L.GRU(3, stateful=True))(h)
    return randomised(keras.Model(x, L.Dense(2)(h), name="streamed"), np.random.default_rng(5))


def _parts() -> list[Any]:
    return [np.random.default_rng(k).standard_normal((2, t, 3)).astype(np.float32) for k, t in enumerate((4, 1, 6))]


@pytest.mark.parametrize("form", ["live", "keras", "h5"])
def test_states_go_on_as_keras_has_them(form: str, tmp_path: Path) -> None:
    from keras_torch import results, saved

    model = _stateful(more=True)
    program = li.from_keras(model if form == "live" else saved(model, tmp_path / f"m.{form}"))
    assert isinstance(program, li.Program)
    graph = program.entries["main"]
    states = {p.node.attrs["name"]: np.zeros(p.shape, np.float32) for p in graph.params[1:]}
    assert sorted(states) == [
        "bidirectional/backward_gru/state_0", "bidirectional/forward_gru/state_0", "lstm/state_0", "lstm/state_1",
        "rnn/state_0", "rnn/state_1",
    ]  # fmt: skip
    for x in _parts():
        got = li.interpret(graph, {"x": x, **states})
        states = {n: got[f"{n}_next"] for n in states}
        for name, want in results(model, {"x": x}).items():
            assert np.allclose(got[name], want, atol=2e-5), name


def test_stateful_layers_are_a_session() -> None:
    from keras_torch import results

    model = _stateful(more=False)
    program = li.from_keras(model)
    assert isinstance(program, li.Program)
    with li.compile(program.only("step", "reset")) as exe:
        other = exe.session()
        for again in range(2):
            for x in _parts():
                want = results(model, {"x": x})
                for session in (exe, other):
                    got = session.entries["step"](x=x)
                    assert set(got) == set(want)
                    assert np.allclose(got["dense"], want["dense"], atol=2e-5), again
            model.layers[1].reset_states()
            exe.entries["reset"]()
            other.entries["reset"]()


def _legacy(name: str) -> Any:
    """The layers of a model whose weights a legacy file has in rows."""
    from keras_torch import keras

    L = keras.layers
    made = {
        "LSTM": lambda: L.LSTM(4, return_sequences=True), "GRU": lambda: L.GRU(4, return_sequences=True),
        "GRU_before": lambda: L.GRU(4, reset_after=False, return_sequences=True),
        "SimpleRNN": lambda: L.SimpleRNN(4, return_sequences=True),
        "Bidirectional": lambda: L.Bidirectional(L.LSTM(3, return_sequences=True)),
        "stack": lambda: L.RNN([L.LSTMCell(4), L.GRUCell(3), L.SimpleRNNCell(2)], return_sequences=True),
        "Bidirectional_stack": lambda: L.Bidirectional(L.RNN([L.GRUCell(4), L.LSTMCell(3)], return_sequences=True)),
        "frozen": lambda: L.LSTM(4, return_sequences=True, trainable=False),
        "BatchNormalization": lambda: L.BatchNormalization(),
        "SeparableConv1D": lambda: L.SeparableConv1D(4, 3, padding="same"),
        "TimeDistributed": lambda: L.TimeDistributed(L.Dense(4)),
        "nested": lambda: _nested(L, keras, 3),
    }  # fmt: skip
    return made[name]()


def _nested(L: Any, keras: Any, columns: int) -> Any:
    """A model in a model, with trained, other and frozen weights in turns: a legacy file sorts them."""
    inner = keras.Input((None, columns), name="inner")
    h = L.BatchNormalization()(L.Bidirectional(L.GRU(3, return_sequences=True))(inner))
    part = keras.Sequential([keras.Input((None, 6)), L.Dense(4, trainable=False), L.BatchNormalization()], name="part")
    return keras.Model(inner, L.LSTM(5, return_sequences=True)(part(h)), name="head")


LEGACY = (
    "LSTM", "GRU", "GRU_before", "SimpleRNN", "Bidirectional", "stack", "Bidirectional_stack", "frozen",
    "BatchNormalization", "SeparableConv1D", "TimeDistributed", "nested",
)  # fmt: skip


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("name", LEGACY)
def test_legacy_files(name: str, sequential: bool, tmp_path: Path, rng: np.random.Generator) -> None:
    from keras_beside import forward
    from keras_torch import keras, randomised, results, saved

    keras.utils.clear_session(free_memory=False)
    x = keras.Input((None, 3), name="x")
    layers = [_legacy(name), keras.layers.Dense(2)]
    if sequential:
        model = keras.Sequential([x, *layers])
    else:
        model = keras.Model(x, layers[1](layers[0](x)))
    randomised(model, rng)
    graph = li.from_keras(saved(model, tmp_path / "m.h5"))
    assert isinstance(graph, li.Graph)
    assert _without_places(graph) == _without_places(li.from_keras(model))
    given = {graph.input_names[0]: rng.standard_normal((3, 5, 3)).astype(np.float32)}
    forward(graph, given, results(model, given), 2e-5)


def _with_npz(model: Any, folder: Path, arrays: dict[str, Any]) -> Path:
    """The model's archive with weights in another form."""
    from keras_torch import saved

    with zipfile.ZipFile(saved(model, folder / "as_h5.keras")) as z:
        members = {n: z.read(n) for n in z.namelist() if not n.endswith(".h5")}
    data = io.BytesIO()
    np.savez(data, **arrays)
    path = folder / "m.keras"
    with zipfile.ZipFile(path, "w") as z:
        for name, member in {**members, "model.weights.npz": data.getvalue()}.items():
            z.writestr(name, member)
    return path


def test_weights_as_npz(tmp_path: Path) -> None:
    """Arrays by path are read. What Keras itself puts there are pickles, which its own reader refuses, too."""
    from keras.src.saving.saving_lib import _save_model_to_fileobj
    from keras_torch import keras, randomised

    keras.utils.clear_session(free_memory=False)
    model = keras.Sequential([keras.Input((None, 3)), keras.layers.LSTM(4), keras.layers.Dense(2)])
    randomised(model, np.random.default_rng(2))
    places = [f"layers/lstm/cell/vars/{k}" for k in range(3)] + [f"layers/dense/vars/{k}" for k in range(2)]
    path = _with_npz(model, tmp_path, dict(zip(places, model.get_weights(), strict=True)))
    assert _without_places(li.from_keras(path)) == _without_places(li.from_keras(model))
    with (tmp_path / "own.keras").open("wb") as f:
        _save_model_to_fileobj(model, f, "npz")
    with pytest.raises(li.ModelError, match=r"own\.keras: model\.weights\.npz: .*a pickle, which may run code"):
        li.from_keras(tmp_path / "own.keras")
    with pytest.raises(ValueError, match="pickle"):
        keras.saving.load_model(tmp_path / "own.keras")


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("form", ["live", "keras", "h5"])
def test_random_models(number: int, form: str, seed: int, tmp_path: Path) -> None:
    """A few of the campaign's."""
    from keras_beside import forward, slopes
    from keras_random import drawn
    from keras_torch import results, saved

    rng = np.random.default_rng([seed, number])
    model, arrays, d = drawn(rng)
    try:
        graph = li.from_keras(model if form == "live" else saved(model, tmp_path / f"m.{form}"))
    except li.ModelError as e:
        if "broadcast" in str(e) or "name them alike" in str(e):  # open steps of two inputs
            return
        raise
    try:
        want = results(model, arrays)
    except IndexError:  # of Keras: a list of one cell, from states
        assert any("stack" in w for w in d.words), d.words
        return
    assert isinstance(graph, li.Graph)
    forward(graph, arrays, want, 3e-5)
    if not d.kinks:
        slopes(model, graph, arrays, 3e-4, rng)
