"""What a kernel's functions are made of: operations, with values and types of memories as objects.

An operation is spelled as MLIR has it, cut where its operands stand. What changes a kernel that is
written (`outline`, `form`, `helpers/offer.py`) is a `Rewriter`: it exchanges operands, types or whole
statements. `kernel` prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias


class Operand:
    """What an operation takes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Name(Operand):
    """A value; `kind` is its type, where it may be an argument of a function."""

    text: str
    kind: Kind | None = field(default=None, compare=False)


def argument(word: str) -> Name:
    """An index that a kernel is given."""
    return Name(f"%{word}", "index")


@dataclass(frozen=True, slots=True)
class Constant(Operand):
    """A number."""

    literal: str
    kind: str


@dataclass(frozen=True, slots=True)
class Hole(Operand):
    """Stands for what differs between functions of one form."""


HOLE = Hole()


@dataclass(frozen=True, slots=True)
class MemRef:
    """The type of a memory; a size that is no number is None."""

    sizes: tuple[int | Hole | None, ...]
    element: str
    rest: str = ""  # layout, or the memory space

    def __str__(self) -> str:
        sizes = "".join("?x" if d is None else f"{d}x" for d in self.sizes)
        return f"memref<{sizes}{self.element}{self.rest and ', '}{self.rest}>"


Kind: TypeAlias = "str | MemRef"  # a type
Piece: TypeAlias = "Operand | MemRef"  # what is spelled when the function is
Part: TypeAlias = "Operand | Kind | Sequence[Operand | Kind]"  # a sequence is spelled with commas


@dataclass(frozen=True, slots=True)
class Region:
    """Statements in braces; `word` stands before them."""

    word: str
    arguments: tuple[Name, ...]
    body: Body


@dataclass(frozen=True, slots=True)
class Operation:
    """Any operation: n operands, and n + 1 strings around them.

    known: operands that are worth more to the compiler as numbers than code that kernels share.
    """

    spelling: tuple[str, ...]
    operands: tuple[Piece, ...]
    result: Name | None = None
    results: int = 1
    regions: tuple[Region, ...] = ()
    known: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Subspan:
    """The memory of a binding, from `offset` bytes on; `sizes` are those that `kind` leaves open."""

    result: Name
    binding: Name
    offset: Operand
    kind: MemRef
    sizes: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class WorkgroupId:
    """The number of this workgroup."""

    result: Name


@dataclass(frozen=True, slots=True)
class Call:
    """A call of another function of the kernel, which gives nothing."""

    function: str
    arguments: tuple[Operand, ...]
    kinds: tuple[Kind, ...]


Statement: TypeAlias = "Operation | Subspan | WorkgroupId | Call"
Body: TypeAlias = "tuple[Statement, ...]"


def operation(
    template: str, *parts: Part, to: Name | None = None, results: int = 1,
    known: tuple[int, ...] = (),
) -> Operation:  # fmt: skip
    """An operation; each `{}` of the template is an operand, a type, or several with commas."""
    first, *after = template.split("{}")
    spelling, operands = [first], list[Piece]()
    for part, text in zip(parts, after, strict=True):
        pieces = (part,) if isinstance(part, (str, Operand, MemRef)) else part
        for i, piece in enumerate(pieces):
            spelling[-1] += ", " if i else ""
            if isinstance(piece, str):
                assert not piece.startswith("%"), f"the value {piece} is spelled, not named"
                spelling[-1] += piece
            else:
                operands.append(piece)
                spelling.append("")
        spelling[-1] += text
    return Operation(tuple(spelling), tuple(operands), to, results, known=known)


class Rewriter:
    """Exchanges parts of statements, in the order in which they are spelled; this one keeps all."""

    def operand(self, o: Operand) -> Operand:
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

    def statement(self, s: Statement) -> Iterable[Statement]:
        """Instead of a statement."""
        match s:
            case Operation():
                yield self.operation(s)
            case Subspan():
                offset, kind = self.operand(s.offset), self.memref(s.kind)
                sizes = tuple(map(self.operand, s.sizes))
                yield replace(s, offset=offset, kind=kind, sizes=sizes)
            case Call():
                arguments = tuple(map(self.operand, s.arguments))
                yield replace(s, arguments=arguments, kinds=tuple(map(self.kind, s.kinds)))
            case _:
                yield s

    def operation(self, s: Operation) -> Operation:
        """Instead of an operation."""
        operands = tuple(self.piece(s, i) for i in range(len(s.operands)))
        regions = tuple(Region(r.word, r.arguments, self.body(r.body)) for r in s.regions)
        return Operation(s.spelling, operands, s.result, s.results, regions, s.known)

    def piece(self, s: Operation, i: int) -> Piece:
        """Instead of operand `i`."""
        p = s.operands[i]
        return self.memref(p) if isinstance(p, MemRef) else self.operand(p)

    def body(self, body: Iterable[Statement]) -> Body:
        """All statements."""
        return tuple(new for s in body for new in self.statement(s))


def count(body: Body) -> int:
    """Statements, with those inside of others."""
    return len(body) + sum(
        count(r.body) for s in body if isinstance(s, Operation) for r in s.regions
    )
