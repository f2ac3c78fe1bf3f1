"""What of a model is not taken: collected over the whole model, raised as one error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import BroadcastError, ModelError

WRONG = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError, MemoryError, RecursionError,
)  # fmt: skip
"""What handlers raise over a damaged file: a node may have anything anywhere, and they do not look at everything."""


class NodeRefusedError(Exception):
    """Why a node is not taken; the importer adds which one it is."""


@dataclass(frozen=True)
class Wanted:
    """An input that is to be a constant, and the numbers that the model compares it with."""

    input: str
    values: tuple[int | float | bool, ...]


class UnknownError(NodeRefusedError):
    """An operand that has to be known at import: constants and numbers for sizes would say it."""

    def __init__(self, reason: str, wanted: Sequence[Wanted], sizes: Sequence[str]) -> None:
        super().__init__(reason)
        self.wanted, self.sizes = tuple(wanted), tuple(sizes)


class UnifiedError(Exception):
    """Sizes that the specification demands to be equal: `name` is to be `by`, and so are the pairs of `more`."""

    def __init__(self, name: str, by: Dim, more: Sequence[tuple[str, Dim]] = ()) -> None:
        super().__init__(name, by)
        self.name, self.by, self.pairs = name, by, ((name, by), *more)


@dataclass(frozen=True)
class Refusal:
    """A node that is not taken: its name, its op, the reason, and with what it might be taken.

    wanted: inputs that could be constants. numbers: sizes that could be numbers. alike: sizes that could be one.
    """

    node: str
    op: str
    reason: str
    wanted: tuple[Wanted, ...] = ()
    numbers: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.node} ({self.op}): {self.reason}"


def printable(text: str | bytes) -> str:
    """The text on one line: signs that do not print, which a damaged file may have in a name, as escapes.

    A name that is no UTF-8 comes from protobuf as bytes.
    """
    if isinstance(text, bytes):
        return repr(text)[2:-1]
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class Refusals:
    """Refusals in the order in which they were found, each once."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: dict[str, Refusal] = {}

    def __len__(self) -> int:
        return len(self._found)

    @property
    def all(self) -> tuple[Refusal, ...]:
        """Every one."""
        return tuple(self._found.values())

    def add(self, name: str, op: str, why: Exception) -> None:
        """Note one; of a message about a graph the reason is the first line."""
        reason = str(why).splitlines()[0] if str(why) else type(why).__name__
        wanted, numbers = (why.wanted, why.sizes) if isinstance(why, UnknownError) else ((), ())
        alike = why.sizes if isinstance(why, BroadcastError) and all(map(str.isidentifier, why.sizes)) else ()
        found = Refusal(printable(name), printable(op), printable(reason), wanted, numbers, alike)
        self._found.setdefault(str(found), found)

    def add_wrong(self, name: str, op: str, why: Exception) -> None:
        """Note one of WRONG, which says less of the node."""
        text = str(why) or type(why).__name__
        self.add(name, op, NodeRefusedError(f"an argument has a wrong type or value: {text}"))

    def raise_any(self) -> None:
        """ModelError if there is one."""
        if self._found:
            many = "1 refusal" if len(self._found) == 1 else f"{len(self._found)} refusals"
            text = "".join(f"\n  {line}" for line in self._found)
            raise ModelError(f"{self.file}: {many}{text}", self._found)
