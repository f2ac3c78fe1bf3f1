"""Models of Keras, from their files: results and gradients beside Keras' own; the live model gives the same graph."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import child
import numpy as np
import pytest
from device import need
from keras_models import CASES
from paths import ROOT

import lstm_ir as li

pytestmark = pytest.mark.xdist_group("keras")  # one process makes what they share

# Of these the module is compiled in the default run too; kernels have suites of their own.
COMPILED = {
    "LSTM_0_3_masked", "LSTM_state", "GRU_0_2", "GRU_1_0_masked", "SimpleRNN_0_1", "Bidirectional_LSTM_concat",
    "Bidirectional_GRU_sum", "RNN_stacked", "RNN_unrolled", "Conv1D_causal", "BatchNormalization", "TimeDistributed",
    "activations", "images", "nested", "operations",
}  # fmt: skip
Arrays = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models that this run asks for."""
    need("keras")
    need("torch")
    where = tmp_path_factory.mktemp("keras")
    child.python(ROOT / "tests" / "oracles" / "keras_models.py", where, *asked(request), timeout=280)
    return where


def asked(request: pytest.FixtureRequest) -> list[str]:
    """The cases of this run."""
    items = [i for i in request.session.items if i.path == request.path and isinstance(i, pytest.Function)]
    return sorted({str(i.callspec.params["name"]) for i in items})


def imported(folder: Path, name: str) -> li.Graph:
    graph = li.from_keras(folder / f"{name}.keras")
    assert isinstance(graph, li.Graph)
    return graph


def _part(found: Any, kind: str) -> Arrays:
    return {n.partition(":")[2]: a for n, a in found.items() if n.startswith(f"{kind}:")}


def close(got: Arrays, want: Arrays) -> None:
    """Results beside Keras' own."""
    for key, w in want.items():
        assert got[key].shape == w.shape
        assert np.allclose(got[key], w, rtol=2e-5, atol=2e-5), key


def _without_places(text: str) -> str:
    """Text of a graph without what names the file."""
    return re.sub(r' *loc\("[^"]*"[^)]*\)', "", text)


@pytest.mark.parametrize("name", CASES)
def test_beside_keras(name: str, folder: Path) -> None:
    problem = folder / f"{name}.err"
    assert not problem.exists(), problem.read_text(encoding="utf-8")
    graph = imported(folder, name)
    assert _without_places(str(graph)) == _without_places((folder / f"{name}.lir").read_text(encoding="utf-8"))
    with np.load(folder / f"{name}.npz") as found:
        given, want, slopes, back = (_part(found, kind) for kind in ("in", "out", "ct", "d"))
    assert set(graph.output_names) == set(want)
    close(li.interpret(graph, given), want)
    # A layer of a nested model has the model's name in front.
    names = {k: next(n for n in ("x", *graph.weights) if n == k or n.endswith(f"/{k}")) for k in back}
    slope = li.interpret(
        li.vjp(graph, list(want), list(names.values()), missing="zeros"),
        {**given, **{f"ct_{k}": a for k, a in slopes.items()}},
    )
    for key, w in back.items():
        assert np.allclose(slope[f"d_{names[key]}"], w, rtol=1e-4, atol=1e-4), key


@pytest.mark.slow_cases(name=[n for n in CASES if n not in COMPILED])
@pytest.mark.parametrize("name", CASES)
def test_compiled(name: str, folder: Path) -> None:
    run_on("cpu", name, folder)


@pytest.mark.slow
@pytest.mark.vulkan
@pytest.mark.parametrize("name", CASES)
def test_on_vulkan(name: str, folder: Path) -> None:
    need("vulkan")
    run_on("vulkan", name, folder)


def run_on(target: str, name: str, folder: Path) -> None:
    with np.load(folder / f"{name}.npz") as found, li.compile(imported(folder, name), target) as exe:
        close(exe(_part(found, "in")), _part(found, "out"))
