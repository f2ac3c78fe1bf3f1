"""The table of ONNX's ops that are taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.operands import Result
from lstm_ir.importers.sizes import Rule
from lstm_ir.importers.table import OpEntry, Table

Build: TypeAlias = Callable[[Call], Result | Sequence[Result]]


@dataclass(frozen=True)
class OpRule(OpEntry[Call]):
    """One op of a domain. `versions` are those of its definition that are taken, oldest first: a definition holds
    until the next one.
    """

    versions: tuple[int, ...]
    domain: str


TABLE: Table[tuple[str, str], OpRule] = Table("op")


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
        TABLE.add((domain, name), OpRule(name, build, moves, sizes, refused, versions, domain))
        return build

    return register
