"""A tile of sums in vector registers, to which products are added: the inner update of every CPU kernel."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from lstm_ir.backends.kernels.text.statements import Name, TextOperand
from lstm_ir.backends.kernels.text.text import Text

Sum = TypeVar("Sum", bound=Hashable)


def add_products(
    t: Text, sums: dict[Sum, Name], factor: TextOperand, vectors: Mapping[Sum, TextOperand], element: str
) -> None:
    """Add `factor`, a number of type `element`, times a vector to each of the sums that `vectors` names.

    The new sums take the places of the old.
    """
    kind = t.vector(element)
    every = t.op("vector.broadcast {} : {} to {}", factor, element, kind)
    for key, v in vectors.items():
        sums[key] = t.op("vector.fma {}, {}, {} : {}", every, v, sums[key], kind)
