"""The table of ops that are taken: one entry for each, registered where its meaning is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lstm_ir.importers.onnx.call import Call, Result
from lstm_ir.importers.onnx.sizes import Rule

Build: TypeAlias = Callable[[Call], Result | Sequence[Result]]
ALL = -1  # in `moves`: every operand


@dataclass(frozen=True)
class Taken:
    """One op: what makes nodes of it, and how it acts on sizes.

    `versions` are those of the op's definition that are taken, oldest first: a definition holds
    until the next one. `moves` are the operands whose elements only change places, `sizes` is what
    the op does to sizes as numbers, and `refused` says in words what of the op is not taken.
    """

    name: str
    versions: tuple[int, ...]
    build: Build
    domain: str
    moves: tuple[int, ...]
    sizes: Rule | None
    refused: str


TABLE: dict[tuple[str, str], Taken] = {}


def taken(
    name: str,
    *versions: int,
    domain: str = "",
    moves: tuple[int, ...] = (),
    sizes: Rule | None = None,
    refused: str = "",
) -> Callable[[Build], Build]:
    """Register the decorated function as the meaning of an op."""

    def register(build: Build) -> Build:
        if (domain, name) in TABLE:
            raise AssertionError(f"{name} is registered twice")
        TABLE[domain, name] = Taken(name, versions, build, domain, moves, sizes, refused)
        return build

    return register
