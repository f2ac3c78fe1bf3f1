"""A tile of sums in vector registers, to which products are added: the inner update of every CPU kernel."""

from __future__ import annotations

from collections.abc import Mapping

from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.text import Text


def add_products(
    t: Text, sums: dict[tuple[int, ...], TextOperand], row: int, factor: TextOperand,
    vectors: Mapping[tuple[int, ...], TextOperand], element: str,
) -> None:  # fmt: skip
    """Add `factor`, a number of type `element`, times each of the vectors to the sums of a row.

    `sums` has the row's number and the vector's place as keys; the new sums take the places of the old.
    """
    kind = t.vector(element)
    every = t.op("vector.broadcast {} : {} to {}", factor, element, kind)
    for place, v in vectors.items():
        sums[row, *place] = t.op("vector.fma {}, {}, {} : {}", every, v, sums[row, *place], kind)
