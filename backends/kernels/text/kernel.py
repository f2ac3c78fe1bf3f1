"""A kernel: the functions of one executable, and how they are printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from lstm_ir.backends.kernels.text.statements import (
    Body,
    Call,
    Constant,
    MemRef,
    Name,
    Operand,
    Operation,
    Piece,
    Subspan,
    WorkgroupId,
    count,
)

BINDING = "!stream.binding"
_PRIVATE = 'attributes {no_inline, passthrough = ["noinline"]}'


def called_by_iree(more: str = "") -> str:
    """Attributes of a function that IREE calls; they keep the compiler's hands off its loops."""
    info = f"pipeline = #iree_codegen.no_pipeline{more}"
    return f"attributes {{translation_info = #iree_codegen.translation_info<{info}>}}"


class Signature(NamedTuple):
    """What a function takes. One that IREE calls has bindings: tensors that it reads and writes."""

    reads: tuple[Name, ...]
    numbers: tuple[Name, ...]  # and in a function that others call, all it takes
    writes: tuple[Name, ...]

    @property
    def tensors(self) -> int:
        """Bindings."""
        return len(self.reads) + len(self.writes)

    @property
    def all(self) -> tuple[Name, ...]:
        """In order."""
        return self.reads + self.numbers + self.writes


@dataclass(frozen=True)
class Function:
    """A function; its name is what follows the kernel's."""

    name: str
    signature: Signature
    constants: tuple[Constant, ...]  # in the order in which they stand at the head
    buffers: tuple[Operation, ...]  # on the stack, or in a workgroup's memory
    body: Body
    attributes: str = ""  # of one that IREE calls

    @property
    def private(self) -> bool:
        """Whether other functions of the kernel call it."""
        return not self.attributes

    def lines(self, kernel: str) -> Iterator[str]:
        """The text, in a kernel of that name."""
        spelled = _Spelling(kernel, self.constants)
        parameters = ", ".join(f"{p.text}: {p.kind}" for p in self.signature.all)
        word, attributes = ("private ", _PRIVATE) if self.private else ("", self.attributes)
        yield f"func.func {word}@{kernel}{self.name}({parameters}) {attributes} {{"
        for constant, name in spelled.constants.items():
            yield f"{name} = arith.constant {_typed(constant)}"
        yield from spelled.body(self.buffers)
        yield from spelled.body(self.body)
        yield "return"
        yield "}"


@dataclass(frozen=True)
class Kernel:
    """Functions that others call stand first; IREE calls the last one."""

    functions: tuple[Function, ...]

    @property
    def entry(self) -> Function:
        """The function that IREE calls."""
        return self.functions[-1]

    @property
    def length(self) -> int:
        """Statements of all functions."""
        return sum(count(f.body) + len(f.buffers) for f in self.functions)

    def text(self, name: str) -> str:
        """All functions; `name` begins the name of each."""
        return "\n".join(line for f in self.functions for line in f.lines(name))


class _Spelling:
    """Statements of one function as lines."""

    def __init__(self, kernel: str, constants: tuple[Constant, ...]) -> None:
        self.kernel = kernel
        self.constants = {c: f"%c{i}" for i, c in enumerate(constants)}

    def piece(self, p: Piece) -> str:
        """An operand, or the type of a memory."""
        if isinstance(p, Name):
            return p.text
        if isinstance(p, Constant):
            return self.constants[p]
        assert isinstance(p, MemRef)
        return str(p)

    def listed(self, operands: tuple[Operand, ...]) -> str:
        """With commas."""
        return ", ".join(map(self.piece, operands))

    def body(self, body: Body) -> Iterator[str]:
        """Line by line."""
        for s in body:
            match s:
                case Operation():
                    yield from self.operation(s)
                case Subspan():
                    sizes = f"{{{self.listed(s.sizes)}}}" if s.sizes else ""
                    at = f"{s.binding.text}[{self.piece(s.offset)}] : {BINDING}"
                    yield f"{s.result.text} = stream.binding.subspan {at} -> {s.kind}{sizes}"
                case WorkgroupId():
                    yield f"{s.result.text} = stream.dispatch.workgroup.id[0] : index"
                case Call():
                    kinds = ", ".join(map(str, s.kinds))
                    given = self.listed(s.arguments)
                    yield f"func.call @{self.kernel}{s.function}({given}) : ({kinds}) -> ()"

    def operation(self, s: Operation) -> Iterator[str]:
        """With its regions."""
        words = [s.spelling[0]]
        for p, after in zip(s.operands, s.spelling[1:], strict=True):
            words += self.piece(p), after
        if s.result is not None:
            many = f":{s.results}" if s.results > 1 else ""
            words.insert(0, f"{s.result.text}{many} = ")
        for r in s.regions:
            words.append(f" {r.word} {{")
            yield "".join(words)
            if r.arguments:
                arguments = ", ".join(f"{a.text}: {a.kind}" for a in r.arguments)
                yield f"^bb0({arguments}):"
            yield from self.body(r.body)
            words = ["}"]
        yield "".join(words)


def _typed(c: Constant) -> str:
    if c.kind == "i1":
        return c.literal
    literal = f"dense<{c.literal}>" if c.kind.startswith("vector") else c.literal
    return f"{literal} : {c.kind}"
