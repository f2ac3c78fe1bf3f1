"""Which products a processor's kernels have, beside those of rows and matrices of one float type."""

from __future__ import annotations

from dataclasses import dataclass

from lstm_ir.ir.types import DType


@dataclass(frozen=True)
class ProductForms:
    """What a plan may ask of products."""

    narrow: frozenset[DType] = frozenset()  # matrices of these are widened in registers, not before the loop
    words: bool = False  # rows and matrices of int8, four elements a word, with sums in i32
    loops: bool = False  # loops inside of a step count indices
    teams: bool = False  # rows may meet in a step: members of one team have all
    offset: int = 0  # elements of such rows are kept so much larger, where a processor takes them unsigned
