"""A Keras model by Keras itself, as what a graph is compared with."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lstm_ir.importers.keras.config import model_spec, refs
from lstm_ir.importers.keras.holding import Holding, Store, held
from lstm_ir.importers.keras.model import named
from lstm_ir.importers.keras.source import live, read
from lstm_ir.importers.keras.weights import LiveWeights
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.errors import ModelError

COLD = """\
import os
os.environ["KERAS_BACKEND"], os.environ["TF_CPP_MIN_LOG_LEVEL"] = {backend!r}, "3"
import numpy, keras
model = keras.saving.load_model({model!r}, compile=False)
with numpy.load({arrays!r}) as given:
    model([given[n] for n in {names!r}]{only}, training=False)
"""


class Keras:
    """A live model, or a file, as Keras runs it on its backend. States of stateful layers are given and come back."""

    def __init__(self, model: Any) -> None:
        try:
            import keras
        except ImportError as e:
            raise ModelError("to compare with a Keras model needs Keras: pip install keras") from e
        self._keras, source = keras, read(model)
        backend = keras.config.backend()
        self.name = f"{source.file} by Keras {keras.__version__} over {backend}"
        self.bytes: int | None = source.bytes
        try:
            spec = model_spec(source.spec)
        except NodeRefusedError as e:
            raise ModelError(f"{source.file}: {e}") from None
        self._path = Path(model).resolve() if isinstance(model, (str, os.PathLike)) else None
        self._model = model if self._path is None else _loaded(keras, self._path, source.file)
        self._inputs, self._outputs = [r.layer for r in refs(spec.inputs)], spec.outputs
        self._states = _states(self._model)

    def __call__(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Results by name."""
        for name, variable in self._states.items():
            variable.assign(arrays[name] if name in arrays else np.zeros(tuple(variable.shape), str(variable.dtype)))
        given: Any = [arrays[n] for n in self._inputs]
        tree, structure = self._keras.tree, getattr(self._model, "_inputs_struct", None)
        if structure is not None:
            given = tree.pack_sequence_as(structure, given)
        numpy = self._keras.ops.convert_to_numpy
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of layers that destroy masks, and of NumPy 2
            found = self._model(given[0] if structure is None and len(given) == 1 else given, training=False)
            out = named(self._outputs, tree.map_structure(numpy, found))
            return out | {f"{n}_next": numpy(v.value) for n, v in self._states.items()}

    def cold(self, folder: Path, arrays: Path) -> str | None:
        """The import of Keras, the model's load, and one call; not known where inputs are a dict."""
        if len(self._inputs) > 1 and isinstance(getattr(self._model, "_inputs_struct", None), Mapping):
            return None
        path = self._path
        if path is None:
            path = folder / "original.keras"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._model.save(path)
        backend, only = self._keras.config.backend(), "[0]" if len(self._inputs) == 1 else ""
        return COLD.format(backend=backend, model=str(path), arrays=str(arrays), names=self._inputs, only=only)


def _loaded(keras: Any, path: Path, file: str) -> Any:
    """The model of a file; Keras refuses code in it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return keras.saving.load_model(path, compile=False)
    except Exception as e:  # a class of its own for each kind of fault
        first = (str(e).splitlines() or [type(e).__name__])[0]
        raise ModelError(f"{file}: Keras does not take it: {first}") from e


def _states(model: Any) -> dict[str, Any]:
    """The variables that stateful layers keep between calls, by the names that a graph has for them."""
    out: dict[str, Any] = {}
    source = live(model)
    try:
        for path, spec, leaf in held(source.spec, Holding(source.weights, "", True, Store())):
            live_layer: Any = leaf.keras_object if isinstance(leaf, LiveWeights) else None
            if spec.config.get("stateful") and getattr(live_layer, "states", None):
                import keras

                flat = keras.tree.flatten(live_layer.states)
                out |= {f"{path}/state_{k}": v for k, v in enumerate(flat) if v is not None}
    except NodeRefusedError:
        return out
    return out
