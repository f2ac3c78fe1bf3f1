"""Kernels of one form: those that differ in numbers alone, as those of layers of unequal width do.

Numbers are index constants, where they are used, and sizes of memories. Those that differ become
arguments of one kernel. Divisors, steps of loops and buffers on the stack have to be equal: what a
compiler knows of them is worth more than a shared kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lstm_ir.backends.kernels.text.kernel import Kernel, KernelFunction
from lstm_ir.backends.kernels.text.statements import (
    HOLE,
    CallStatement,
    Constant,
    Hole,
    MemRef,
    Name,
    Operation,
    Piece,
    Rewriter,
    Statement,
    Subspan,
    TextOperand,
    WorkgroupId,
)

Column = tuple[int, ...]  # what one number is in each kernel


@dataclass(frozen=True)
class KernelForm:
    """A kernel with holes for its numbers, and these in order."""

    kernel: Kernel
    numbers: tuple[int, ...]


def form(kernel: Kernel) -> KernelForm:
    """The form of a kernel."""
    marked = _Marked()
    functions = tuple(map(marked.function, kernel.functions))
    return KernelForm(Kernel(functions), tuple(marked.numbers))


def merged(forms: Sequence[KernelForm]) -> tuple[Kernel, list[Column]]:
    """The one kernel of equal forms, and what its further arguments are for each of them."""
    columns = list(zip(*(f.numbers for f in forms), strict=True))
    differing = [c for c in dict.fromkeys(columns) if len(set(c)) > 1]
    names = {c: Name(f"%n{i}", "index") for i, c in enumerate(differing)}
    return _Merged(forms[0].kernel, columns, names).kernel(), differing


class _Marked(Rewriter):
    """Makes holes, and collects what was there."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def function(self, f: KernelFunction) -> KernelFunction:
        """Its constants are those that are used."""
        signature = f.signature._replace(numbers=self.parameters(f.signature.numbers))
        return replace(f, signature=signature, constants=(), body=self.body(f.body))

    def operand(self, o: TextOperand) -> TextOperand:
        """A hole for an index constant."""
        if not isinstance(o, Constant) or o.kind != "index":
            return o
        self.numbers.append(int(o.literal))
        return HOLE

    def memref(self, t: MemRef) -> MemRef:
        """Holes for the sizes that are numbers."""
        self.numbers += (d for d in t.sizes if isinstance(d, int))
        return replace(t, sizes=tuple(HOLE if isinstance(d, int) else d for d in t.sizes))

    def operands(self, s: Operation) -> tuple[Piece, ...]:
        """What the compiler should know stays."""
        if not s.known:
            return super().operands(s)
        return tuple(p if i in s.known else self.piece(p) for i, p in enumerate(s.operands))


class _Merged(Rewriter):
    """Fills the holes of the kernel that several calls share, function by function."""

    def __init__(self, form: Kernel, columns: list[Column], names: dict[Column, Name]) -> None:
        self._form, self._columns, self._names = form, iter(columns), names
        self._given: dict[str, tuple[Name, ...]] = {}  # function -> its further arguments
        self._constants: dict[Constant, None] = {}
        self._used: dict[Name, None] = {}

    def kernel(self) -> Kernel:
        """The functions; those that others call stand first."""
        return Kernel(tuple(map(self._function, self._form.functions)))

    def _function(self, f: KernelFunction) -> KernelFunction:
        self._constants, self._used = {}, {}
        own, body = self.parameters(f.signature.numbers), self.body(f.body)
        more = tuple(self._used) if f.private else tuple(self._names.values())
        self._given[f.name] = more
        signature = f.signature._replace(numbers=(*own, *more))
        return replace(f, signature=signature, constants=tuple(self._constants), body=body)

    def statement(self, s: Subspan | WorkgroupId | CallStatement) -> Iterable[Statement]:
        """Calls pass numbers on, and sizes that are not known are operands of a memory."""
        match s:
            case CallStatement():
                (call,) = super().statement(s)
                assert isinstance(call, CallStatement)
                more = self._given[s.function]
                self._used |= dict.fromkeys(more)
                kinds = (*call.kinds, *("index" for _ in more))
                yield CallStatement(s.function, (*call.arguments, *more), kinds)
            case Subspan():
                yield self._subspan(s)
            case _:
                yield from super().statement(s)

    def operand(self, o: TextOperand) -> TextOperand:
        """A number, or an argument."""
        if isinstance(o, Hole):
            name, number = self._number()
            o = Constant(str(number), "index") if name is None else name
        if isinstance(o, Constant):
            self._constants[o] = None
        return o

    def memref(self, t: MemRef) -> MemRef:
        """Sizes that differ are not known."""
        return replace(t, sizes=tuple(self._size(d)[0] for d in t.sizes))

    def _subspan(self, s: Subspan) -> Subspan:
        offset, known = self.operand(s.offset), iter(s.sizes)
        found = [self._size(d) for d in s.kind.sizes]
        sizes = [next(known) if name is None else name for d, name in found if d is None]
        kind = replace(s.kind, sizes=tuple(d for d, _ in found))
        return Subspan(s.result, s.binding, offset, kind, tuple(sizes))

    def _size(self, d: int | Hole | None) -> tuple[int | Hole | None, Name | None]:
        """A size as the type has it, and the argument that it is."""
        if not isinstance(d, Hole):
            return d, None
        name, number = self._number()
        return (number if name is None else None), name

    def _number(self) -> tuple[Name | None, int]:
        """The next number, and the argument that it is, if any."""
        column = next(self._columns)
        name = self._names.get(column)
        if name is not None:
            self._used[name] = None
        return name, column[0]
