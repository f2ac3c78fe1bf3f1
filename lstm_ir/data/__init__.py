"""Data that ships with the package: the handwritten digits and a classifier trained on them."""

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Digits", "digits", "digits_lstm", "digits_lstm_meta"]

_META = "meta"  # the one entry of digits_lstm.npz that is no weight: JSON text


@dataclass(frozen=True)
class Digits:
    """Handwritten digits, pixels 0..16, in a fixed training and held-out part; see `digits.md`."""

    train_images: NDArray[np.uint8]  # [1437, 8, 8]
    train_labels: NDArray[np.uint8]  # [1437]
    test_images: NDArray[np.uint8]  # [360, 8, 8]
    test_labels: NDArray[np.uint8]  # [360]


def digits() -> Digits:
    """Load the digits; a model reads each image row by row, `images / 16` as float32 [N, 8, 8]."""
    return Digits(**_load("digits.npz"))


def digits_lstm() -> dict[str, NDArray[np.float32]]:
    """Load the classifier's weights, gates in order i, f, g, o.

    `lstm/w_ih` [256, 8], `lstm/w_hh` [256, 64], `lstm/b` [256], `head/w` [10, 64], `head/b` [10].
    """
    return {name: array for name, array in _load("digits_lstm.npz").items() if name != _META}


def digits_lstm_meta() -> dict[str, Any]:
    """How the classifier was made: its accuracy, seed and the version of PyTorch."""
    meta: dict[str, Any] = json.loads(_load("digits_lstm.npz")[_META].item())
    return meta


def _load(name: str) -> dict[str, NDArray[Any]]:
    with (resources.files(__name__) / name).open("rb") as file:
        with np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
