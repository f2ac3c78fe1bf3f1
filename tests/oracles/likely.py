"""Whether numbers may be drawn from a distribution: a right generator is told to be wrong once in ten thousand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
DEVIATIONS = 3.9  # of a normal distribution, on both sides
DISTANCE = 2.226  # of Kolmogorov's: sqrt(-log(1e-4 / 2) / 2)


def of_law(x: Array, cdf: Callable[[Array], Array]) -> None:
    """Kolmogorov and Smirnov's test of a distribution."""
    n, p = x.size, cdf(np.sort(x, axis=None))
    steps = np.arange(n)
    distance = float(np.maximum((steps + 1) / n - p, p - steps / n).max())
    assert distance * math.sqrt(n) < DISTANCE, f"{distance * math.sqrt(n)} of {n}"


def of_classes(counts: Array, expected: Array) -> None:
    """Pearson's test, with Wilson and Hilferty's transform of chi squared to a normal distribution."""
    assert math.isclose(counts.sum(), expected.sum(), rel_tol=1e-9)
    free = len(counts) - 1
    chi = float(((counts - expected) ** 2 / expected).sum())
    z = ((chi / free) ** (1 / 3) - (1 - 2 / (9 * free))) / math.sqrt(2 / (9 * free))
    assert abs(z) < DEVIATIONS, f"chi squared {chi} of {free}"


def of_a_share(x: Array, p: float) -> None:
    """The number of what is true."""
    z = (x.sum() - x.size * p) / math.sqrt(x.size * p * (1 - p))
    assert abs(z) < DEVIATIONS, f"{x.sum()} of {x.size}, expected {p}"
