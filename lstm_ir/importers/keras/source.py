"""A Keras model from where it is: live, a `.keras` file or a legacy `.h5` file; one config and one tree of weights."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lstm_ir.importers.keras.archive import parsed, read_archive
from lstm_ir.importers.keras.config import MODELS, LayerSpec, layer_spec
from lstm_ir.importers.keras.handlers.activations import FUNCTIONS
from lstm_ir.importers.keras.hdf5 import read_hdf5
from lstm_ir.importers.keras.older import major, restated
from lstm_ir.importers.keras.weights import Array, FileWeights, LegacyWeights, LiveWeights, Weights
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.errors import ModelError
from lstm_ir.ir.input_file import reading

HDF5 = b"\x89HDF\r\n\x1a\n"
ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class Source:
    """The model's config as a layer, its weights, the file's name, the version of Keras, and the size in bytes."""

    spec: LayerSpec
    weights: Weights
    file: str
    version: str
    bytes: int


def read(model: Any) -> Source:
    """The model; ModelError for what is no Keras model, or a damaged one."""
    if isinstance(model, (str, os.PathLike)):
        return _from_file(Path(model))
    if not is_model(model):
        raise ModelError(f"from_keras: {type(model).__name__} is no Keras 3 model, and no path of a file")
    return live(model)


def _from_file(path: Path) -> Source:
    with reading(path, "a Keras model", ModelError) as (f, size):
        head = f.read(8)
    if head.startswith(ZIP):
        stored = read_archive(path)
        stated = stored.metadata.get("keras_version", "of unknown version")
        config = restated(stored.config, major(stated))
        return Source(_spec(config, path.name), FileWeights(stored.arrays), path.name, f"Keras {stated}", size)
    if head == HDF5:
        arrays, attributes = read_hdf5(path, path.name)
        return _legacy(path.name, size, arrays, attributes)
    raise ModelError(f"{path}: not a Keras model: neither a .keras archive nor an HDF5 file")


def _spec(config: Any, file: str) -> LayerSpec:
    try:
        return layer_spec(config)
    except NodeRefusedError as e:
        raise ModelError(f"{file}: not a Keras model: {e}") from None


def _legacy(file: str, size: int, arrays: Mapping[str, Array], attributes: Mapping[str, Mapping[str, Any]]) -> Source:
    text = attributes.get("", {}).get("model_config")
    if not isinstance(text, str):
        raise ModelError(f"{file}: it has no model_config: it holds weights alone, not a whole model")
    top = attributes.get("model_weights", {})
    version = attributes.get("", {}).get("keras_version") or top.get("keras_version") or "of unknown version"
    spec = _spec(restated(parsed(text, f"{file}: model_config"), major(version)), file)
    rows = {n: _row(arrays, attributes, f"model_weights/{n}", file) for n in _listed(top, "layer_names")}
    return Source(spec, _Rows(rows), file, f"Keras {version}, legacy HDF5", size)


def _listed(attributes: Mapping[str, Any], name: str) -> list[str]:
    """A list of names; a long one stands in several attributes."""
    rows = [attributes[name]] if name in attributes else []
    while f"{name}{len(rows)}" in attributes and name not in attributes:
        rows.append(attributes[f"{name}{len(rows)}"])
    return [str(n) for row in rows if isinstance(row, list) for n in row]


def _row(arrays: Mapping[str, Array], attributes: Mapping[str, Mapping[str, Any]], path: str, file: str) -> list[Array]:
    names = _listed(attributes.get(path, {}), "weight_names")
    missing = [n for n in names if f"{path}/{n}" not in arrays]
    if missing:
        raise ModelError(f"{file}: {path} has no {missing[0]}")
    return [arrays[f"{path}/{n}"] for n in names]


class _Rows(Weights):
    """The layers of a legacy file by name."""

    def __init__(self, rows: Mapping[str, list[Array]]) -> None:
        self._rows = rows

    def own(self, names: Any) -> dict[str, Array]:
        """A model has no variables itself."""
        return {}

    def child(self, attribute: str) -> Weights:
        """A model has layers alone."""
        raise NodeRefusedError(f"a model has no {attribute}")

    def children(self, attribute: str, specs: Any) -> list[Weights]:
        """The rows of the layers, each put where it belongs when it is asked for."""
        return [_Late(s, self._rows.get(s.name, [])) for s in specs]


class _Late(Weights):
    """A layer's row, whose tree is made where the layer is taken: what it refuses is a refusal of the layer."""

    def __init__(self, spec: LayerSpec, row: list[Array]) -> None:
        self._spec, self._row, self._tree = spec, row, None

    def _made(self) -> Weights:
        if self._tree is None:
            self._tree = LegacyWeights.of(self._spec, self._row)  # type: ignore[assignment]
        return self._tree  # type: ignore[return-value]

    def own(self, names: Any) -> dict[str, Array]:
        """Its own arrays."""
        return self._made().own(names)

    def child(self, attribute: str) -> Weights:
        """The object of an attribute."""
        return self._made().child(attribute)

    def children(self, attribute: str, specs: Any) -> list[Weights]:
        """The objects of a list."""
        return self._made().children(attribute, specs)


def is_model(model: object) -> bool:
    """Whether it is a model of Keras 3, which nobody imports for that."""
    return _class_of_keras(model) is not None and hasattr(model, "get_config") and hasattr(model, "layers")


def _class_of_keras(instance: object) -> type | None:
    """The first of its classes that is Keras' own."""
    return next((c for c in type(instance).__mro__ if c.__module__.split(".")[0] == "keras"), None)


def live(model: Any) -> Source:
    """A live model; ModelError where it has no whole config."""
    import keras

    kind: Any = _class_of_keras(model)
    file = f"<{type(model).__name__} {getattr(model, 'name', '')}>"
    if type(model).__name__ not in MODELS or type(model) is not kind:
        raise ModelError(f"{file}: a model of a class of its own has code, not a config: {type(model).__name__}")
    if not model.built:
        raise ModelError(f"{file}: the model is not built: call it, or give it an Input")
    _refuse_own_functions(model, file)
    try:
        config = json.loads(json.dumps(keras.saving.serialize_keras_object(model)))  # as a file would have it
    except Exception as e:  # whatever a layer's get_config raises
        raise ModelError(f"{file}: its config cannot be had: {e}") from e
    size = sum(int(np.prod(v.shape)) * np.dtype(np.float32).itemsize for v in model.weights)
    return Source(_spec(config, file), LiveWeights(model), file, f"Keras {keras.__version__}", size)


def _refuse_own_functions(model: Any, file: str) -> None:
    """Refuse an activation of one's own that has the name of Keras': a config says the name alone."""
    for layer in model._flatten_layers():
        for attribute in ("activation", "recurrent_activation"):
            function = getattr(layer, attribute, None)
            name, module = getattr(function, "__name__", ""), str(getattr(function, "__module__", ""))
            if name in FUNCTIONS and module.split(".")[0] not in ("keras", "tensorflow"):
                raise ModelError(
                    f"{file}: {layer.name}: its {attribute} is {module}.{name}, which is not that of Keras"
                )
