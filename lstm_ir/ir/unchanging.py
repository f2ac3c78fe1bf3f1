"""What copies and pickles of graphs and programs are. Their text is asked by name, since it is made of them."""

from __future__ import annotations

import importlib
from typing import Any, Self

TEXT = "lstm_ir.ir.pickled"


class Unchanging:
    """A copy is the object itself; pickled, it is a text, and nodes lose the lines of Python that made them."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        made: tuple[Any, ...] = importlib.import_module(TEXT).reduced(self)
        return made
