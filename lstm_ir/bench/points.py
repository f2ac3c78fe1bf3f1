"""The layers of the benchmark: those of the named list, the short default list, and the whole grid.

Sizes that people run, from one step of one row to long batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lstm_ir.bench.subject import BenchCall, Maker, TimedRun


@dataclass(frozen=True)
class Point:
    """One model and one size: T steps of B rows, input width I, hidden width H."""

    cell: str  # lstm or gru
    T: int
    B: int
    I: int
    H: int
    layers: int = 1
    directions: int = 1
    training: bool = False

    @property
    def name(self) -> str:
        """For example `lstm-t100-b16-i64-h128-l2-bi-train`; i only where it is not h."""
        text = f"{self.cell}-t{self.T}-b{self.B}"
        text += f"-i{self.I}" if self.I != self.H else ""
        text += f"-h{self.H}"
        text += f"-l{self.layers}" if self.layers > 1 else ""
        text += "-bi" if self.directions > 1 else ""
        return text + ("-train" if self.training else "")

    @property
    def gates(self) -> int:
        """Gates of one cell."""
        return 4 if self.cell == "lstm" else 3

    @property
    def flops(self) -> float:
        """Multiplications and additions of the products.

        Once forward, three times in a training step.
        """
        width, total = self.I, 0
        for _ in range(self.layers):
            total += self.directions * 2 * self.gates * self.H * (width + self.H)
            width = self.directions * self.H
        return float(total) * self.T * self.B * (3 if self.training else 1)

    @property
    def group(self) -> str:
        """Inference or training."""
        return "training" if self.training else "inference"

    @property
    def turn_calls(self) -> int:
        """Calls of a turn, at most."""
        return 10

    def calls(self, count: int = 4) -> list[BenchCall]:
        """Inputs x [T,B,I]."""
        from lstm_ir.bench import models

        return models.calls(self, count)

    def program(self, names: bool = False) -> Any:
        """The layers, or their gradients by the input and every weight."""
        from lstm_ir.bench import models

        return models.program_of(self, models.weights(self)[0], names)

    def runner(self, exe: Any) -> TimedRun:
        """A compiled or loaded module of the point."""
        from lstm_ir.bench import models

        return models.of_executable(self, models.weights(self), exe)

    def peers(self) -> Mapping[str, Maker]:
        """torch, onnxruntime and JAX."""
        from lstm_ir.bench import models, peers

        sets = models.weights(self)
        return {name: partial(make, self, sets) for name, make in peers.PEERS.items()}

    def peers_elsewhere(self) -> Mapping[str, Maker]:
        """None."""
        return {}


def _plain(cell: str, training: bool, sizes: list[tuple[int, int, int]]) -> list[Point]:
    return [Point(cell, t, b, h, h, training=training) for t, b, h in sizes]


POINTS: tuple[Point, ...] = (
    *_plain("lstm", False, [
        (1, 1, 64), (1, 1, 128), (1, 1, 256), (1, 1, 512), (1, 1, 1024), (1, 16, 256), (1, 64, 512),
        (20, 1, 64), (20, 1, 128), (20, 1, 256), (20, 4, 200), (20, 16, 128), (20, 32, 512), (20, 128, 256),
        (100, 1, 64), (100, 1, 128), (100, 1, 200), (100, 1, 256), (100, 1, 512), (100, 1, 1024),
        (100, 4, 128), (100, 4, 512), (100, 16, 128), (100, 16, 256), (100, 16, 200), (100, 32, 256),
        (100, 64, 512), (100, 128, 128), (1000, 1, 64), (1000, 1, 128), (1000, 1, 256), (1000, 4, 200),
        (1000, 16, 128), (20, 8, 128), (57, 3, 144), (80, 24, 320),
    ]),
    Point("lstm", 200, 48, 96, 192),
    *_plain("gru", False, [(20, 1, 128), (100, 1, 256), (100, 16, 200), (100, 32, 256), (1000, 1, 128)]),
    Point("lstm", 100, 1, 128, 128, layers=2),
    Point("lstm", 100, 16, 128, 256, layers=2),
    Point("lstm", 100, 1, 128, 128, directions=2),
    Point("lstm", 100, 16, 128, 256, directions=2),
    Point("lstm", 100, 16, 64, 128, layers=2, directions=2),
    Point("gru", 100, 16, 64, 128, layers=2, directions=2),
    *_plain("lstm", True, [
        (20, 1, 128), (20, 32, 256), (100, 1, 128), (100, 1, 256), (100, 16, 128), (100, 16, 256), (100, 32, 256),
        (100, 64, 512), (100, 4, 200), (1000, 1, 128), (1000, 4, 200),
    ]),
    *_plain("gru", True, [(100, 1, 128), (100, 16, 256), (100, 32, 200)]),
    Point("lstm", 100, 16, 128, 256, layers=2, training=True),
    Point("lstm", 100, 16, 64, 128, directions=2, training=True),
    Point("lstm", 100, 16, 64, 128, layers=2, directions=2, training=True),
)  # fmt: skip

SHORT = frozenset({
    "lstm-t1-b1-h64", "lstm-t1-b1-h256", "lstm-t20-b16-h128", "lstm-t100-b1-h128", "lstm-t100-b1-h512",
    "lstm-t100-b32-h256", "lstm-t1000-b1-h128", "gru-t100-b16-h200", "lstm-t100-b16-i64-h128-l2-bi",
    "lstm-t100-b1-h128-train", "lstm-t100-b32-h256-train", "gru-t100-b16-h256-train",
})  # fmt: skip


def grid() -> Iterator[Point]:
    """Every combination, the cheap ones first."""
    axes = itertools.product(
        ("lstm", "gru"), (1, 20, 100, 1000), (1, 4, 16, 32, 64, 128),
        (64, 128, 200, 256, 512, 1024), (1, 2), (1, 2), (False, True),
    )  # fmt: skip
    points = [
        Point(cell, T, B, H, H, layers, directions, training) for cell, T, B, H, layers, directions, training in axes
    ]
    return iter(sorted(points, key=lambda p: p.flops))
