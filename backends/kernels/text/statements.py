"""What a kernel's functions are made of: operations, with values and types of memories as objects.

An operation is spelled as MLIR has it, cut where its operands stand. What changes a kernel that is
written (`outline`, `form`, `helpers/publish.py`) is a `Rewriter`: it exchanges operands, types or whole
statements. `kernel` prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from lstm_ir.ir.cached import cached_property


class TextOperand:
    """What an operation takes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Name(TextOperand):
    """A value; `kind` is its type, where it may be an argument of a function."""

    text: str
    kind: Kind | None = field(default=None, compare=False)


def argument(word: str) -> Name:
    """An index that a kernel is given."""
    return Name(f"%{word}", "index")


@dataclass(frozen=True, slots=True)
class Constant(TextOperand):
    """A number."""

    literal: str
    kind: str


@dataclass(frozen=True, slots=True)
class Hole(TextOperand):
    """Stands for what differs between functions of one form."""


HOLE = Hole()


@dataclass(frozen=True)
class MemRef:
    """The type of a memory; a size that is no number is None."""

    sizes: tuple[int | Hole | None, ...]
    element: str
    rest: str = ""  # layout, or the memory space

    @cached_property
    def text(self) -> str:
        """As MLIR has it."""
        sizes = "".join("?x" if d is None else f"{d}x" for d in self.sizes)
        return f"memref<{sizes}{self.element}{self.rest and ', '}{self.rest}>"

    def __str__(self) -> str:
        return self.text


Kind: TypeAlias = "str | MemRef"  # a type
Piece: TypeAlias = "TextOperand | MemRef"  # what is spelled when the function is
Part: TypeAlias = "TextOperand | Kind | Sequence[TextOperand | Kind]"  # a sequence is spelled with commas


class RegionStatement(NamedTuple):
    """Statements in braces; `word` stands before them."""

    word: str
    arguments: tuple[Name, ...]
    body: Body


class Operation(NamedTuple):
    """Any operation: n operands, and n + 1 strings around them.

    known: operands that are worth more to the compiler as numbers than code that kernels share.
    """

    spelling: tuple[str, ...]
    operands: tuple[Piece, ...]
    result: Name | None = None
    results: int = 1
    regions: tuple[RegionStatement, ...] = ()
    known: tuple[int, ...] = ()


class Subspan(NamedTuple):
    """The memory of a binding, from `offset` bytes on; `sizes` are those that `kind` leaves open."""

    result: Name
    binding: Name
    offset: TextOperand
    kind: MemRef
    sizes: tuple[TextOperand, ...]


class WorkgroupId(NamedTuple):
    """The number of this workgroup."""

    result: Name


class CallStatement(NamedTuple):
    """A call of another function of the kernel, which gives nothing."""

    function: str
    arguments: tuple[TextOperand, ...]
    kinds: tuple[Kind, ...]


Statement: TypeAlias = "Operation | Subspan | WorkgroupId | CallStatement"
Body: TypeAlias = "tuple[Statement, ...]"


def operation(
    template: str, *parts: Part, to: Name | None = None, results: int = 1,
    known: tuple[int, ...] = (),
) -> Operation:  # fmt: skip
    """An operation; each `{}` of the template is an operand, a type, or several with commas."""
    words: list[str] = []
    operands: list[Piece] = []
    for part in parts:
        if isinstance(part, (TextOperand, MemRef)):
            words.append(_GAP)
            operands.append(part)
        elif isinstance(part, str):
            words.append(part)
        else:
            words.append(", ".join([p if isinstance(p, str) else _GAP for p in part]))
            operands += [p for p in part if not isinstance(p, str)]
    return Operation(_spelling(template, tuple(words)), tuple(operands), to, results, (), known)


_GAP = "\0"  # stands for an operand, in a word


@lru_cache(4096)
def _spelling(template: str, words: tuple[str, ...]) -> tuple[str, ...]:
    first, *after = template.split("{}")
    spelled = first + "".join(w + text for w, text in zip(words, after, strict=True))
    assert "%" not in spelled, f"a value of {spelled} is spelled, not named"
    return tuple(spelled.split(_GAP))


class Rewriter:
    """Exchanges parts of statements, in the order in which they are spelled; this one keeps all."""

    def operand(self, o: TextOperand) -> TextOperand:
        """Instead of an operand."""
        return o

    def memref(self, t: MemRef) -> MemRef:
        """Instead of the type of a memory."""
        return t

    def kind(self, k: Kind) -> Kind:
        """Instead of a type."""
        return k if isinstance(k, str) else self.memref(k)

    def parameters(self, names: Sequence[Name]) -> tuple[Name, ...]:
        """What a function takes, with other types."""
        return tuple(replace(n, kind=None if n.kind is None else self.kind(n.kind)) for n in names)

    def statement(self, s: Subspan | WorkgroupId | CallStatement) -> Iterable[Statement]:
        """Instead of a statement that is no operation."""
        match s:
            case Subspan():
                offset, kind = self.operand(s.offset), self.memref(s.kind)
                sizes = tuple(map(self.operand, s.sizes))
                yield Subspan(s.result, s.binding, offset, kind, sizes)
            case CallStatement():
                arguments = tuple(map(self.operand, s.arguments))
                yield CallStatement(s.function, arguments, tuple(map(self.kind, s.kinds)))
            case _:
                yield s

    def operation(self, s: Operation) -> Operation:
        """Instead of an operation."""
        regions = s.regions
        operands = self.operands(s)
        if regions:
            regions = tuple([RegionStatement(r.word, r.arguments, self.body(r.body)) for r in regions])
        return Operation(s.spelling, operands, s.result, s.results, regions, s.known)

    def operands(self, s: Operation) -> tuple[Piece, ...]:
        """Instead of what an operation takes."""
        return tuple([self.piece(p) for p in s.operands])

    def piece(self, p: Piece) -> Piece:
        """Instead of an operand, or the type of a memory."""
        return self.memref(p) if isinstance(p, MemRef) else self.operand(p)

    def body(self, body: Iterable[Statement]) -> Body:
        """All statements."""
        out: list[Statement] = []
        for s in body:
            if isinstance(s, Operation):
                out.append(self.operation(s))
            else:
                out += self.statement(s)
        return tuple(out)


def count(body: Body) -> int:
    """Statements, with those inside of others."""
    return len(body) + sum(count(r.body) for s in body if isinstance(s, Operation) for r in s.regions)
