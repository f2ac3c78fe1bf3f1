"""`li.to_keras`: weights that were trained here, written back into the model that they came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from lstm_ir.importers.keras.call import dtype_named
from lstm_ir.importers.keras.holding import Holding, Store, held
from lstm_ir.importers.keras.source import is_model, live
from lstm_ir.importers.keras.weights import LiveWeights, variables
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.trained import fitting
from lstm_ir.ir.errors import ModelError
from lstm_ir.ir.has_weights import HasWeights
from lstm_ir.ir.types import DType

M = TypeVar("M")


def to_keras(weights: HasWeights | Mapping[str, Any], model: M) -> M:
    """Write weights into a live Keras model's variables, by the names that `from_keras` gives; the model comes back.

    weights: an executable (of one that trains, its weights as trained so far), or arrays by name. Names of which the
    model has others may be missing; each name that is given has to be the model's, with its shape and dtype. Nothing
    is written where one is not: ModelError.
    """
    if not is_model(model):
        raise ModelError(f"to_keras: the second argument is a Keras 3 model, got {type(model).__name__}")
    title = f"{type(model).__name__} {getattr(model, 'name', '')}".rstrip()
    for variable, array in fitting("to_keras", weights, title, _variables(model), _kind):
        variable.assign(np.array(array))  # a copy: a backend may keep the array itself
    return model


def _kind(variable: Any) -> tuple[DType, tuple[int, ...]]:
    return dtype_named(str(variable.dtype)), tuple(variable.shape)


def _variables(model: Any) -> dict[str, Any]:
    """The model's variables by their paths."""
    source = live(model)
    out: dict[str, Any] = {}
    try:
        for path, spec, thing in held(source.spec, Holding(source.weights, "", True, Store())):
            names = variables(spec)
            if names and isinstance(thing, LiveWeights):
                out |= {f"{path}/{n}": v for n, v in thing.variables(names).items()}
    except NodeRefusedError as e:
        raise ModelError(f"to_keras: {source.file}: {e}") from None
    return out
