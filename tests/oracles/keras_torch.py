"""Keras over PyTorch, the lightest of its backends, in the tests' own process: TensorFlow stays out of it."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
before = "tensorflow" in sys.modules  # of another test of this process
os.environ["KERAS_BACKEND"] = "torch"
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import keras as _keras
    from keras.src.utils import module_utils

module_utils.tensorflow._available = module_utils.gfile._available = False  # it asks for TensorFlow to write files
assert before or "tensorflow" not in sys.modules, "this Keras imports TensorFlow"
keras: Any = _keras
keras.config.disable_interactive_logging()
logging.getLogger("absl").setLevel(logging.ERROR)  # it advises against .h5 files


def numpy_of(value: Any) -> Array:
    """A tensor as a NumPy array; Keras' own way warns with NumPy 2."""
    found: Array = value.detach().cpu().numpy()
    return found


def results(model: Any, arrays: Mapping[str, Array], **more: Any) -> dict[str, Array]:
    """What a model gives, by the names that the importer gives its outputs."""
    import torch

    names = [t.name if hasattr(t, "name") else str(t) for t in model.inputs]
    given = [arrays[n] for n in names]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of layers that destroy masks, and of NumPy 2
        found = model(given[0] if len(given) == 1 else dict(zip(names, given, strict=True)), **more)
    if isinstance(found, Mapping):
        return {k: numpy_of(v) for k, v in found.items()}
    flat = found if isinstance(found, (list, tuple)) else [found]
    out: dict[str, Array] = {}
    for name, v in zip(getattr(model, "output_names", [model.layers[-1].name]), flat, strict=True):
        key, k = name, 0
        while key in out:
            k += 1
            key = f"{name}_{k}"
        out[key] = numpy_of(v)
    return out


def saved(model: Any, path: Any) -> Any:
    """A model written to a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save(path)
    assert before or "tensorflow" not in sys.modules
    return path


def randomised(model: Any, rng: np.random.Generator) -> Any:
    """The model with other weights than zeros and ones in biases, scales and statistics."""
    for v in model.weights:
        if "seed" not in v.path:
            near = 1.0 if v.path.endswith(("gamma", "variance")) else 0.0
            a = near + rng.uniform(-0.4, 0.4, tuple(v.shape))
            v.assign(a.astype(np.float32))
    return model
