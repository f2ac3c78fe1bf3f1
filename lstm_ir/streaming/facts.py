"""What is known of a value when a recording comes in parts: how it depends on time.

A call gets n frames of a recording: the rows of its inputs along the axis of time. A value is right in
a call if it holds what one call over the whole recording would give for these frames.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from lstm_ir.ir.dims import Dim


@dataclass(frozen=True)
class Fixed:
    """The same at every call; along the axes `even` all its elements are equal."""

    even: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Latest:
    """Of the last frame so far, without an axis of time: a final state, the last row."""


@dataclass(frozen=True)
class Unknown:
    """Of a node that was refused, or of one that reads such a value: nothing more is asked of it."""


@dataclass(frozen=True)
class Timed:
    """One row for every `rate` frames, along `axis`, which is [outer, rows, inner] read row by row.

    There are n / rate + more rows; a rate of 1/2 is two rows for every frame. Row i depends on the rows before
    it and on rows up to i + look of the frames, so in a call the rows i < n / rate - look that exist are right:
    all that stand for its frames where look is 0 or less.
    """

    axis: int
    rate: Fraction | int = 1
    more: int = 0
    look: int = 0
    outer: Dim = 1
    inner: Dim = 1

    @property
    def plain(self) -> bool:
        """Whether the axis is time and nothing else."""
        return self.outer == 1 and self.inner == 1

    @property
    def ahead(self) -> int:
        """In a call the rows i < n / rate - ahead are there, and right."""
        return max(self.look, -self.more)

    def at(self, axis: int) -> Timed:
        """The same along another axis."""
        return replace(self, axis=axis)


Fact: TypeAlias = "Fixed | Latest | Timed | Unknown"
