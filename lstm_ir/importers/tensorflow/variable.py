"""What flows along the edges of a TensorFlow graph beside tensors and lists of them: variables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """a variable: the node that declares it, its name, element type and shape as far as they are stated."""

    node: str
    name: str
    dtype: int
    shape: tuple[int | None, ...] | None
    reference: bool = False  # of TensorFlow 1: what reads it reads its value
