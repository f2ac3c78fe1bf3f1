"""MPSGraphRNNActivation: meaning, slope from the output, and the core ops' name of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstm_ir.ir.opdef import need
from lstm_ir.ops.primitive.numpy_math import logistic

Array = np.ndarray[Any, Any]
HARD_SLOPE, HARD_OFFSET = 0.2, 0.5
"""hardSigmoid [inferred]: MPSGraph names no constants; these are the older MPSCNNNeuron's."""


@dataclass(frozen=True)
class MpsActivation:
    """y = numpy(x); slope(y) = dy/dx, 0 at the corners, since a stored y cannot tell them apart."""

    numpy: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    core: str


ACTIVATIONS = {
    "none": MpsActivation(lambda x: x, np.ones_like, "identity"),
    "relu": MpsActivation(lambda x: np.maximum(x, 0), lambda y: (y > 0).astype(y.dtype), "relu"),
    "tanh": MpsActivation(np.tanh, lambda y: 1 - y * y, "tanh"),
    "sigmoid": MpsActivation(logistic, lambda y: y * (1 - y), "sigmoid"),
    "hardSigmoid": MpsActivation(
        lambda x: np.clip(HARD_SLOPE * x + HARD_OFFSET, 0, 1),
        lambda y: np.where((y > 0) & (y < 1), HARD_SLOPE, 0).astype(y.dtype),
        f"hard_sigmoid({HARD_SLOPE},{HARD_OFFSET})",
    ),
}
"""By the enumeration's names, in its order: none 0, relu 1, tanh 2, sigmoid 3, hardSigmoid 4."""


def check(attr: str, name: str) -> None:
    """Refuse a name that the enumeration does not have."""
    known = ", ".join(ACTIVATIONS)
    need(name in ACTIVATIONS, f"{attr} is {name!r}, no activation of MPSGraph; they are {known}")


def core_names(names: tuple[str, ...], default: tuple[str, ...], D: int) -> tuple[str, ...]:
    """The attribute `activations` of a core op whose defaults are `default`."""
    found = tuple(ACTIVATIONS[n].core for n in names)
    return () if found == default else found * D
