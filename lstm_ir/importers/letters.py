"""Sums of products written as letters, as every library has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ops.primitive.einsum import letters


def agreed_einsum(equation: str, xs: Sequence[Value], agree: Callable[[str, Dim, Dim], object]) -> Value:
    """Products summed over the letters that the result does not have.

    agree: called with what it is and two sizes that have to be one. RefusedError for an equation that is none.
    """
    try:
        names, _ = letters(equation, [x.rank for x in xs])
    except ValueError as problem:
        raise NodeRefusedError(str(problem)) from None
    sizes: dict[str, Dim] = {}
    for name, x in zip(names, xs, strict=True):
        for letter, size in zip(name, x.shape, strict=True):
            known = sizes.setdefault(letter, size)
            if 1 in (known, size):  # an axis of size 1 broadcasts
                sizes[letter] = size if known == 1 else known
            else:
                agree(f"the sizes of one letter of {equation!r}", known, size)
    return li.einsum(equation, *xs)
