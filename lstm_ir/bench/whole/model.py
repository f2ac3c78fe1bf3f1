"""What runners read of a whole model, and the numbers of its training step."""

from __future__ import annotations

from typing import Any, Protocol

from lstm_ir.bench.subject import Array

RATE, CLIP, BETAS, EPSILON = 1e-3, 5.0, (0.9, 0.999), 1e-8


class Model(Protocol):
    """A model in the words of each library."""

    @property
    def training(self) -> bool:
        """Whether it gives a loss, which is lowered."""

    def weights(self) -> dict[str, Array]:
        """What it starts with."""

    def torch(self, w: dict[str, Array]) -> Any:
        """A module that takes the inputs by name."""

    def jax(self, w: Any, inputs: Any) -> Any:
        """Output or loss."""

    def onnx(self, w: dict[str, Array]) -> Any:
        """The model, with open axes."""
