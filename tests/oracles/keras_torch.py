"""Keras over PyTorch, the lightest of its backends, in the tests' own process: TensorFlow stays out of it."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import keras as _keras

assert "tensorflow" not in sys.modules, "this Keras imports TensorFlow"
keras: Any = _keras


def numpy_of(value: Any) -> Any:
    """A tensor as a NumPy array; Keras' own way warns with NumPy 2."""
    return value.detach().cpu().numpy()
