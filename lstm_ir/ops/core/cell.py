"""How `lstm`, `gru` and `rnn` differ: operands, gates, activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

REQUIRED = ("x", "w_hh")
"""The operands that are never absent."""


@dataclass(frozen=True)
class Cell:
    """A recurrent op: its operands, its gates in the order of their blocks, and the activations that
    it has where none are given."""

    op: str
    operands: type[NamedTuple]
    gates: tuple[str, ...]
    acts: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the operands, in order."""
        return self.operands._fields

    @property
    def written(self) -> str:
        """The operands as `define` takes them."""
        return " ".join(n if n in REQUIRED else f"{n}?" for n in self.names)
