"""Files of Keras 2, with what Keras 2 computed of them (tests/oracles/record_keras2.py); no Keras is needed."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import DATA

import lstm_ir as li

h5py = pytest.importorskip("h5py")
FOLDER = DATA / "keras2"
Arrays = dict[str, np.ndarray[Any, Any]]


def recorded(name: str) -> tuple[Arrays, list[np.ndarray[Any, Any]]]:
    with np.load(FOLDER / f"{name}.npz") as z:
        inputs = {n.removeprefix("in/"): z[n] for n in z.files if n.startswith("in/")}
        return inputs, [z[f"out/{k}"] for k in range(len(z.files) - len(inputs))]


def agrees(path: Path, name: str, atol: float = 2e-6) -> li.Graph:
    graph = li.from_keras(path)
    assert isinstance(graph, li.Graph)
    inputs, want = recorded(name)
    found = li.interpret(graph, inputs)
    for got, w in zip(found.values(), want, strict=True):
        np.testing.assert_allclose(got, w, atol=atol, rtol=0)
    return graph


@pytest.mark.parametrize("form", ["h5", "keras"])
@pytest.mark.parametrize("name", ["sequential", "functional"])
def test_the_numbers_are_those_of_keras_2(name: str, form: str) -> None:
    """hard_sigmoid is another function than in Keras 3; calls are lists, and models count one call more."""
    graph = agrees(FOLDER / f"{name}.{form}", name)
    assert set(graph.input_names) == set(recorded(name)[0])


def test_hard_sigmoid_by_its_equation(tmp_path: Path) -> None:
    """clip(0.2 x + 0.5, 0, 1), by a file whose only layer it is."""
    path = edited(tmp_path, lambda config, _: config["layers"].__delitem__(slice(1, -1)))
    graph = li.from_keras(path)
    assert isinstance(graph, li.Graph)
    x = np.linspace(-4, 4, 30, dtype=np.float32).reshape(2, 5, 3)
    (got,) = li.interpret(graph, {graph.input_names[0]: x}).values()
    np.testing.assert_allclose(got, np.clip(0.2 * x + 0.5, 0, 1), atol=1e-6)


def edited(folder: Path, change: Callable[[Any, Any], None], version: str | None = "2.1.3") -> Path:
    """The sequential file, with its config changed, and the version that it states."""
    path = folder / "m.h5"
    shutil.copyfile(FOLDER / "sequential.h5", path)
    with h5py.File(path, "r+") as f:
        config = json.loads(f.attrs["model_config"])
        change(config["config"], f)
        f.attrs["model_config"] = json.dumps(config)
        del f.attrs["keras_version"], f["model_weights"].attrs["keras_version"]
        if version is not None:
            f.attrs["keras_version"] = version
    return path


def _layer(config: Any, kind: str) -> Any:
    return next(e["config"] for e in config["layers"] if e["class_name"] == kind)


@pytest.mark.parametrize("version", ["2.1.3", "2.2.4-tf", "1.2.2"])
def test_a_gru_of_before_reset_after(version: str, tmp_path: Path) -> None:
    """Its config does not say `reset_after`, and there is no bias whose shape would tell."""
    path = edited(tmp_path, lambda config, _: _layer(config, "GRU").pop("reset_after"), version)
    agrees(path, "sequential")


def test_an_activation_as_an_object(tmp_path: Path) -> None:
    words = {"module": "builtins", "class_name": "function", "config": "hard_sigmoid", "registered_name": "function"}
    agrees(edited(tmp_path, lambda config, _: _layer(config, "Dense").update(activation=words)), "sequential")


def test_a_file_without_a_version(tmp_path: Path) -> None:
    path = edited(tmp_path, lambda config, _: None, None)
    with pytest.raises(li.ModelError, match=r"lstm \(LSTM\): .*hard_sigmoid.* states no keras_version"):
        li.from_keras(path)


def test_an_archive_of_keras_3(tmp_path: Path) -> None:
    """The same words mean Keras 3's function where its version is stated."""
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(FOLDER / "sequential.keras") as old, zipfile.ZipFile(path, "w") as new:
        for n in old.namelist():
            data = old.read(n)
            new.writestr(n, data.replace(b'"keras_version": "2.', b'"keras_version": "3.') if "metadata" in n else data)
    graph = li.from_keras(path)
    assert isinstance(graph, li.Graph)
    inputs, (want,) = recorded("sequential")
    (got,) = li.interpret(graph, inputs).values()
    assert not np.allclose(got, want, atol=1e-3)


@pytest.mark.parametrize(("version", "least"), [("2.4.0", 1e-6), ("3.0.0", 1e-12)])
def test_vectors_that_are_almost_0(version: str, least: float, tmp_path: Path) -> None:
    """Keras 2 divides by the root of at least 1e-12, Keras 3 by at least 1e-12."""

    def change(config: Any, _: Any) -> None:
        del config["layers"][1:]
        config["layers"].append({"class_name": "UnitNormalization", "config": {"name": "unit", "axis": -1}})

    graph = li.from_keras(edited(tmp_path, change, version))
    assert isinstance(graph, li.Graph)
    x = np.full((2, 5, 3), 1e-8, np.float32)
    (got,) = li.interpret(graph, {graph.input_names[0]: x}).values()
    np.testing.assert_allclose(got, x / max(1e-8 * 3**0.5, least), rtol=1e-5)
