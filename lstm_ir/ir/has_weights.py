"""What of an executable is read where its weights are taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class HasWeights(Protocol):
    """Arrays by name; those that are trained are state."""

    @property
    def weights(self) -> Mapping[str, Any]:
        """As they were compiled."""
        ...

    @property
    def state(self) -> Mapping[str, Any]:
        """As it is now."""
        ...
