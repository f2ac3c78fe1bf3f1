"""The table of PyTorch's ops that are taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lstm_ir.importers.operands import Result
from lstm_ir.importers.table import OpEntry, Table
from lstm_ir.importers.torch.call import Call

Build: TypeAlias = Callable[[Call], Result | Sequence[Result]]


@dataclass(frozen=True)
class OpRule(OpEntry[Call]):
    """One overload of an op. rows: whether it gives each row of the first axis of its operands by itself, so that it
    may stand on the data of a packed sequence; a function where that depends on the call.
    """

    rows: bool | Callable[[Call], bool]


TABLE: Table[str, OpRule] = Table("op")


def taken(*names: str, rows: bool | Callable[[Call], bool] = False, refused: str = "") -> Callable[[Build], Build]:
    """Register the decorated function as the meaning of overloads: `aten.add.Tensor`; of all where none is named."""

    def register(build: Build) -> Build:
        for name in names:
            TABLE.add(name, OpRule(name, build, (), None, refused, rows))
        return build

    return register
