"""What random models of every library are drawn with."""

from __future__ import annotations

from typing import Any

import numpy as np


class Choices:
    """Draws from one generator, and the words of what was drawn."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.words = rng, list[str]()

    def of(self, values: Any) -> Any:
        """One of the values."""
        return values[int(self.rng.integers(len(values)))]

    def chance(self, p: float = 0.5) -> bool:
        """True so often."""
        return bool(self.rng.random() < p)
