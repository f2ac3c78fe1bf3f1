"""What the benchmark measures: a layer, a convolution, a stream or a whole model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from lstm_ir.ir.graph import Graph
    from lstm_ir.ir.program import Program

Array = np.ndarray[Any, Any]


class BenchCall(NamedTuple):
    """One call's inputs by name, and which of the two sets of weights a training step of a layer uses."""

    arrays: dict[str, Array]
    turn: int


class TimedRun(NamedTuple):
    """`run` is timed; `read` turns what it gave into arrays by name."""

    run: Callable[[BenchCall], Any]
    read: Callable[[Any], dict[str, Array]]


Maker = Callable[[int], TimedRun | None]
"""A peer's runner for so many threads; None where it cannot run the subject. ImportError where it is not installed."""


class Subject(Protocol):
    """What is measured. It travels to other processes, so it holds no arrays and no modules."""

    @property
    def name(self) -> str:
        """Unlike all others."""

    @property
    def group(self) -> str:
        """Ratios are averaged within it: `inference`, `training`, `convolutions`, …"""

    @property
    def training(self) -> bool:
        """Whether gradients are computed."""

    @property
    def flops(self) -> float:
        """Multiplications and additions of the products."""

    @property
    def turn_calls(self) -> int:
        """Calls of a turn, at most."""

    def calls(self, count: int = 4) -> list[BenchCall]:
        """Inputs, the same ones for every runner."""

    def program(self, names: bool = False) -> Graph | Program:
        """What is compiled; its steps and rows have names, or are numbers."""

    def runner(self, exe: Any) -> TimedRun:
        """The compiled, loaded or interpreted program, ready to be timed."""

    def peers(self) -> Mapping[str, Maker]:
        """Runners of this process, by name."""

    def peers_elsewhere(self) -> Mapping[str, Maker]:
        """Runners that get a process of their own, and a time limit until their first results."""


class Layers(Protocol):
    """LSTM or GRU layers of one size: what models and peers read of a point."""

    @property
    def name(self) -> str:
        """Inputs are drawn by it."""

    @property
    def cell(self) -> str:
        """lstm or gru."""

    @property
    def T(self) -> int:  # noqa: N802  as in all shapes
        """Steps."""

    @property
    def B(self) -> int:  # noqa: N802
        """Rows."""

    @property
    def I(self) -> int:  # noqa: N802, E743
        """Width of the input."""

    @property
    def H(self) -> int:  # noqa: N802
        """Hidden width."""

    @property
    def layers(self) -> int:
        """One above the other."""

    @property
    def directions(self) -> int:
        """1 or 2."""

    @property
    def gates(self) -> int:
        """Of one cell."""

    @property
    def training(self) -> bool:
        """Whether gradients are computed."""
