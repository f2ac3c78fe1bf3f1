"""How far results are from those that are wanted, as one number. A NaN is infinitely far."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def largest(differences: Iterable[float]) -> float:
    """The largest one. Infinity where one is NaN: Python's `max` passes over a NaN that is not the first."""
    return max(math.inf if math.isnan(d) else d for d in differences)


def relative(got: Array, want: Array) -> float:
    """The largest |got - want|, by the largest |want|, or by 1 where all of `want` is 0. Infinity for a NaN."""
    scale = np.abs(want).max()
    return largest([float(np.abs(got - want).max() / (scale if scale > 0 else 1.0))])
