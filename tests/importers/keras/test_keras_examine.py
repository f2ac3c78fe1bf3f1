"""The report of a Keras model, and Keras itself as what a graph is compared with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.importers.keras.examine import examine
from lstm_ir.importers.keras.reference import Keras
from lstm_ir.importers.original import Original

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras with NumPy 2


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("keras")
    need("torch")


def _model(refused: bool = False) -> Any:
    from keras_torch import keras, randomised

    L = keras.layers
    keras.utils.clear_session(free_memory=False)
    x, y = keras.Input((None, 3), name="x"), keras.Input((4,), name="y")
    h = L.LSTM(4)(x, initial_state=[y, L.Dense(4)(y)])
    if refused:
        h = L.Dense(2)(L.Lambda(lambda v: v)(h))
    model = keras.Model([x, y], {"sum": L.Add()([h, y]) if not refused else h, "h": h}, name="model")
    return randomised(model, np.random.default_rng(1))


@pytest.mark.parametrize("form", ["live", "keras", "h5"])
def test_a_report(form: str, tmp_path: Path) -> None:
    from keras_torch import keras, saved

    model = _model()
    given = model if form == "live" else saved(model, tmp_path / f"m.{form}")
    found = examine(given)
    report = found.report
    assert isinstance(found.graph, li.Graph)
    assert found.graph.output_names == li.from_keras(given).output_names  # type: ignore[union-attr]
    assert report.file == ("<Functional model>" if form == "live" else f"m.{form}")
    assert report.format == f"Keras {keras.__version__}" + (", legacy HDF5" if form == "h5" else "")
    assert [(c.op, c.nodes, c.taken) for c in report.ops] == [
        ("Add", 1, 1), ("Dense", 1, 1), ("InputLayer", 2, 2), ("LSTM", 1, 1)
    ]  # fmt: skip
    assert report.inputs == ("x: f32[B,T,3]", "y: f32[B,4]")
    assert set(report.outputs) == {"h: f32[B,4]", "sum: f32[B,4]"}
    assert (report.weights.count, report.weights.bytes) == (5, 4 * (3 * 16 + 4 * 16 + 16 + 4 * 4 + 4))
    assert [(r.kind, r.H, r.I) for r in report.recurrences] == [("lstm", "4", "3")]
    assert report.bytes == (report.weights.bytes if form == "live" else Path(given).stat().st_size)


def test_a_report_of_what_is_refused() -> None:
    found = examine(_model(refused=True))
    assert found.graph is None
    assert [(r.node, r.op, r.reason) for r in found.report.refusals] == [("lambda", "Lambda", "the layer is not taken")]
    assert {c.op: (c.taken, c.refused, c.passed) for c in found.report.ops} == {
        "Dense": (1, 0, 1), "InputLayer": (2, 0, 0), "LSTM": (1, 0, 0), "Lambda": (0, 1, 0)
    }  # fmt: skip


@pytest.mark.parametrize("form", ["live", "keras", "h5"])
def test_keras_is_an_original(form: str, tmp_path: Path) -> None:
    from keras_torch import keras, saved

    model = _model()
    given = model if form == "live" else saved(model, tmp_path / f"m.{form}")
    graph, original = li.from_keras(given), Keras(given)
    assert isinstance(original, Original)
    assert original.name.endswith(f" by Keras {keras.__version__} over torch")
    assert isinstance(graph, li.Graph)
    rng = np.random.default_rng(3)
    arrays = {"x": rng.standard_normal((2, 6, 3), np.float32), "y": rng.standard_normal((2, 4), np.float32)}
    want, got = original(arrays), li.interpret(graph, arrays)
    assert set(want) == set(got)
    for name, w in want.items():
        assert np.allclose(got[name], w, atol=1e-5), name


@pytest.mark.slow
def test_verify_takes_it() -> None:
    """Three drawn inputs, by the processor, beside Keras."""
    model = _model()
    graph = li.from_keras(model)
    assert isinstance(graph, li.Graph)
    found = li.verify(graph, against=Keras(model))
    assert found.ok, str(found)


def test_a_cold_start(tmp_path: Path) -> None:
    """The code runs in a process of its own; of a live model a file is written for that."""
    from keras_torch import keras, randomised

    x = keras.Input((None, 3), name="x")
    model = randomised(keras.Model(x, keras.layers.GRU(2)(x)), np.random.default_rng(0))
    np.savez(tmp_path / "a.npz", x=np.ones((2, 4, 3), np.float32))
    code = Keras(model).cold(tmp_path, tmp_path / "a.npz")
    assert code is not None
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_states_are_given_and_come_back() -> None:
    from keras_torch import keras, randomised

    x = keras.Input(batch_shape=(2, None, 3), name="x")
    h = keras.layers.Bidirectional(keras.layers.GRU(4, stateful=True, name="gru"), name="both")(x)
    model = randomised(keras.Model(x, h), np.random.default_rng(0))
    graph = examine(model).graph
    assert graph is not None
    rng = np.random.default_rng(3)
    arrays = {p.node.attrs["name"]: rng.standard_normal([d if isinstance(d, int) else 5 for d in p.shape], np.float32)
              for p in graph.params}  # fmt: skip
    want, got = Keras(model)(arrays), li.interpret(graph, arrays)
    assert set(want) == set(got) == {"both", "both/forward_gru/state_0_next", "both/backward_gru/state_0_next"}
    for name, w in want.items():
        assert np.allclose(got[name], w, atol=1e-5), name


def test_what_keras_does_not_take(tmp_path: Path) -> None:
    from keras_torch import saved

    with pytest.raises(li.ModelError, match="Keras does not take it"):
        Keras(saved(_model(refused=True), tmp_path / "m.keras"))
