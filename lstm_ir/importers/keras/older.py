"""Configs of Keras 1 and 2, said as Keras 3 would say them where the same words mean other numbers now."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FIRST = 3  # the version whose words these are
HARD_SIGMOID = "hard_sigmoid of Keras 2"  # clip(0.2 x + 0.5, 0, 1), where Keras 3 has relu6(x + 3) / 6
UNSTATED = "hard_sigmoid of an unknown version of Keras"
LEAST_NORM = "least_norm_of_keras_2"  # an argument that no layer has
_ACTIVATIONS = ("activation", "recurrent_activation")
_GRU = ("GRU", "GRUCell")
_NORMS = ("Dot", "UnitNormalization")


def major(version: Any) -> int | None:
    """The first number of a version as files state it, `2.2.4-tf`; None where they state none."""
    found = re.match(r"(\d{1,4})\.", version) if isinstance(version, str) else None
    return int(found[1]) if found else None


def restated(config: Any, version: int | None) -> Any:
    """A model's config in the words of Keras 3. The version is that of the Keras that wrote the file."""
    if version is not None and version >= FIRST:
        return config
    return _restated(config, UNSTATED if version is None else HARD_SIGMOID, version is not None)


def _restated(tree: Any, hard_sigmoid: str, known: bool) -> Any:
    if isinstance(tree, list):
        return [_restated(v, hard_sigmoid, known) for v in tree]
    if not isinstance(tree, Mapping):
        return tree
    out = {k: _restated(v, hard_sigmoid, known) for k, v in tree.items()}
    for name in _ACTIVATIONS:
        if out.get(name) == "hard_sigmoid" or (isinstance(out.get(name), Mapping) and _names_it(out[name])):
            out[name] = hard_sigmoid
    config = out.get("config")
    if known and out.get("class_name") in _GRU and isinstance(config, dict):
        config.setdefault("reset_after", False)  # before Keras 2.1.5 there was no other GRU
    if known and out.get("class_name") in _NORMS and isinstance(config, dict):
        config[LEAST_NORM] = 1e-6  # Keras 3 has 1e-7 and 1e-12
    return out


def _names_it(function: Mapping[str, Any]) -> bool:
    """Whether an object of JSON stands for Keras' function."""
    return function.get("config") == "hard_sigmoid" and str(function.get("module") or "keras").split(".")[0] in (
        "keras", "tf_keras", "builtins",
    )  # fmt: skip
