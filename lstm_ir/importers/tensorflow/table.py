"""The table of TensorFlow's ops that are taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lstm_ir.importers.sizes import Rule
from lstm_ir.importers.table import OpEntry, Table
from lstm_ir.importers.tensorflow.call import Call

Build: TypeAlias = Callable[[Any], Any]  # of a Call, or of a Site where the op runs other nodes


@dataclass(frozen=True)
class OpRule(OpEntry[Call]):
    """One op. `results` are the names of its results, as the bodies of functions write them, where it has several.

    `runs`: it runs other nodes, so that its meaning takes the place in the walk, not the operands. `complex`: its
    meaning takes complex operands as they are.
    """

    results: tuple[str, ...]
    runs: bool
    complex: bool


TABLE: Table[str, OpRule] = Table("op")


def taken(
    *names: str,
    results: str = "",
    moves: tuple[int, ...] = (),
    sizes: Rule | None = None,
    refused: str = "",
    runs: bool = False,
    complex: bool = False,
) -> Callable[[Build], Build]:
    """Register the decorated function as the meaning of one op, or of several that mean the same."""

    def register(build: Build) -> Build:
        for name in names:
            TABLE.add(name, OpRule(name, build, moves, sizes, refused, tuple(results.split()), runs, complex))
        return build

    return register


def place(entry: OpRule | None, output: str, index: int) -> int:
    """Which of an op's results a name and a number in the body of a function mean."""
    named: Sequence[str] = () if entry is None else entry.results
    return (named.index(output) if output in named else 0) + index
