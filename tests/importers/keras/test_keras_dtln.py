"""DTLN's cores, which Keras writes without Lambda: live and from files, beside Keras and the authors' ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dtln
import numpy as np
import pytest
from device import model_file, need
from tolerances import BETWEEN_RUNTIMES, RECURRENCE, close

import lstm_ir as li

pytestmark = [pytest.mark.filterwarnings("ignore:__array__ implementation"), pytest.mark.xdist_group("keras")]
LIMIT = RECURRENCE["f32", "cpu"]
ROWS, STEPS = 2, 5
NORMED = pytest.mark.parametrize("normed", [False, True])


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("keras", "torch")


@NORMED
@pytest.mark.parametrize("words", [{}, {"unroll": True, "steps": STEPS}], ids=["loops", "unrolled"])
def test_cores_over_frames(normed: bool, words: dict[str, Any], rng: np.random.Generator, tmp_path: Path) -> None:
    from keras_torch import keras, results, saved

    weights = dtln.drawn(rng)
    for model in dtln.cores(keras, weights, normed, **words):
        graph = li.from_keras(saved(model, tmp_path / f"{model.name}.keras"))
        assert isinstance(graph, li.Graph)
        assert [n.op.name for n in graph.nodes if n.op.name in ("lstm", "scan")] == ["lstm", "lstm"]
        (name,) = graph.input_names
        x = np.abs(rng.standard_normal((ROWS, STEPS, graph.params[0].shape[2]))).astype(np.float32)
        close(li.interpret(graph, {name: x}), results(model, {name: x}), LIMIT, model.name)


@NORMED
def test_layers_that_keep_their_states(normed: bool, rng: np.random.Generator) -> None:
    from keras_torch import keras, results

    weights = dtln.drawn(rng)
    for model in dtln.cores(keras, weights, normed, stateful=True, steps=1):
        program = li.from_keras(model)
        assert isinstance(program, li.Program)
        assert len(program.state) == 4
        (name,) = (t.name for t in model.inputs)
        frames = np.abs(rng.standard_normal((4, 1, 1, model.inputs[0].shape[2]))).astype(np.float32)
        with li.compile(program) as exe:
            for x in frames:
                close(exe.entries["step"]({name: x}), results(model, {name: x}), LIMIT, model.name)


@NORMED
def test_states_as_inputs(normed: bool, rng: np.random.Generator, tmp_path: Path) -> None:
    """The authors' unrolled form, whose states are stacked and reshaped by functions of `keras.ops`."""
    from keras_torch import keras, results, saved

    for model in dtln.unrolled(keras, dtln.drawn(rng), normed):
        graph = li.from_keras(saved(model, tmp_path / f"{model.name}.keras"))
        assert isinstance(graph, li.Graph)
        given = {t.name: np.abs(rng.standard_normal(tuple(t.shape))).astype(np.float32) for t in model.inputs}
        close(li.interpret(graph, given), results(model, given), LIMIT, model.name)


@pytest.mark.slow
def test_the_authors_weights(rng: np.random.Generator) -> None:
    """The cores of Keras, imported, with NumPy's transforms: as the authors' files by onnxruntime."""
    need("onnx", "onnxruntime")
    from keras_torch import keras

    files = [model_file(n) for n in dtln.FILES]
    weights = dtln.drawn(rng) | dtln.of_files(*files)
    rows = dtln.frames(dtln.speech())
    graphs = [li.from_keras(m) for m in dtln.unrolled(keras, weights, normed=False)]
    assert all(isinstance(g, li.Graph) for g in graphs)
    with li.compile(graphs[0]) as first, li.compile(graphs[1]) as second:
        got = dtln.chained(map(dtln.called, (first, second)), rows)
    close({"y": got}, {"y": dtln.chained(map(dtln.by_onnxruntime, files), rows)}, BETWEEN_RUNTIMES, "from_keras")
