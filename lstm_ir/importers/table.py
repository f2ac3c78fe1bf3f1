"""Tables of what is taken of a framework: one entry for each op or layer, registered where its meaning is written."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lstm_ir.importers.operands import Operands, Result
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import Rule

C = TypeVar("C", bound=Operands)
ALL = -1  # in `moves`: every operand


@dataclass(frozen=True)
class OpEntry(Generic[C]):
    """One op: what makes nodes of it, and how it acts on sizes.

    `moves` are the operands whose elements only change places, `sizes` is what the op does to sizes as numbers,
    and `refused` says in words what of the op is not taken.
    """

    name: str
    build: Callable[[C], Result | Sequence[Result]]
    moves: tuple[int, ...]
    sizes: Rule | None
    refused: str


K = TypeVar("K", bound=Hashable)
E = TypeVar("E")


class Table(Mapping[K, E]):
    """Entries by op. `what` is what the framework calls them: op, layer."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._entries: dict[K, E] = {}

    def add(self, key: K, entry: E) -> None:
        """Register an entry; each key once."""
        if key in self._entries:
            raise AssertionError(f"{key} is registered twice")
        self._entries[key] = entry

    def entry(self, key: K, where: str = "") -> E:
        """The entry of a key. RefusedError where there is none; `where` stands after the word for it."""
        found = self._entries.get(key)
        if found is None:
            raise NodeRefusedError(f"the {self.what}{where} is not taken")
        return found

    def __getitem__(self, key: K) -> E:
        return self._entries[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
