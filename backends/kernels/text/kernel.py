"""A kernel: the functions of one executable, and how they are printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from lstm_ir.backends.kernels.text.statements import (
    Body,
    CallStatement,
    Constant,
    MemRef,
    Name,
    Operation,
    Piece,
    Subspan,
    TextOperand,
    WorkgroupId,
    count,
)
from lstm_ir.ir.cached import cached_property

BINDING = "!stream.binding"
_NAME = "\0"  # of a kernel that is printed: the text is part of its name
_PRIVATE = 'attributes {no_inline, passthrough = ["noinline"]}'


def called_by_iree(more: str = "") -> str:
    """Attributes of a function that IREE calls; they keep the compiler's hands off its loops."""
    info = f"pipeline = #iree_codegen.no_pipeline{more}"
    return f"attributes {{translation_info = #iree_codegen.translation_info<{info}>}}"


class KernelSignature(NamedTuple):
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
class KernelFunction:
    """A function; its name is what follows the kernel's."""

    name: str
    signature: KernelSignature
    constants: tuple[Constant, ...]  # in the order in which they stand at the head
    buffers: tuple[Operation, ...]  # on the stack, or in a workgroup's memory
    body: Body
    attributes: str = ""  # of one that IREE calls
    joins: bool = False  # of one that another calls: the compiler may put it there

    @property
    def private(self) -> bool:
        """Whether other functions of the kernel call it."""
        return not self.attributes

    def declaration(self, kernel: str) -> str:
        """What stands for a private function that joins the module later."""
        return f"func.func private @{kernel}{self.name}({', '.join(str(p.kind) for p in self.signature.all)})"

    def lines(self, kernel: str) -> list[str]:
        """The text, in a kernel of that name."""
        spelled = _Spelling(kernel, self.constants)
        parameters = ", ".join(f"{p.text}: {p.kind}" for p in self.signature.all)
        word, attributes = ("private ", "" if self.joins else _PRIVATE) if self.private else ("", self.attributes)
        return [
            f"func.func {word}@{kernel}{self.name}({parameters}) {attributes} {{",
            *(f"{_named(i, c)} = arith.constant {_typed(c)}" for i, c in enumerate(self.constants)),
            *spelled.lines(self.buffers),
            *spelled.lines(self.body),
            "return",
            "}",
        ]


@dataclass(frozen=True)
class Kernel:
    """Functions that others call stand first; IREE calls the last one."""

    functions: tuple[KernelFunction, ...]

    @property
    def entry(self) -> KernelFunction:
        """The function that IREE calls."""
        return self.functions[-1]

    @property
    def length(self) -> int:
        """Statements of all functions."""
        return sum(count(f.body) + len(f.buffers) for f in self.functions)

    def text(self, name: str) -> str:
        """All functions; `name` begins the name of each."""
        return self._text.replace(_NAME, name)

    @cached_property
    def _text(self) -> str:
        return "\n".join(line for f in self.functions for line in f.lines(_NAME))


class _Spelling:
    """Statements of one function as lines."""

    def __init__(self, kernel: str, constants: tuple[Constant, ...]) -> None:
        self.kernel = kernel
        self._names = {(c.literal, c.kind): _named(i, c) for i, c in enumerate(constants)}
        self._lines: list[str] = []

    def lines(self, body: Body) -> list[str]:
        """Line by line."""
        self._lines = []
        self._body(body)
        return self._lines

    def _piece(self, p: Piece) -> str:
        """An operand, or the type of a memory."""
        if isinstance(p, Constant):
            return self._names[p.literal, p.kind]
        assert isinstance(p, (Name, MemRef))
        return p.text

    def _listed(self, operands: tuple[TextOperand, ...]) -> str:
        return ", ".join(map(self._piece, operands))

    def _body(self, body: Body) -> None:
        for s in body:
            if isinstance(s, Operation):
                self._operation(s)
            else:
                self._lines.append(self._other(s))

    def _operation(self, s: Operation) -> None:
        """With its regions."""
        text = s.spelling[0]
        for p, after in zip(s.operands, s.spelling[1:], strict=True):
            text += self._piece(p) + after
        if s.result is not None:
            many = f":{s.results}" if s.results > 1 else ""
            text = f"{s.result.text}{many} = {text}"
        for r in s.regions:
            self._lines.append(f"{text} {r.word} {{")
            if r.arguments:
                arguments = ", ".join(f"{a.text}: {a.kind}" for a in r.arguments)
                self._lines.append(f"^bb0({arguments}):")
            self._body(r.body)
            text = "}"
        self._lines.append(text)

    def _other(self, s: Subspan | WorkgroupId | CallStatement) -> str:
        match s:
            case Subspan():
                sizes = f"{{{self._listed(s.sizes)}}}" if s.sizes else ""
                at = f"{s.binding.text}[{self._piece(s.offset)}] : {BINDING}"
                return f"{s.result.text} = stream.binding.subspan {at} -> {s.kind}{sizes}"
            case WorkgroupId():
                return f"{s.result.text} = stream.dispatch.workgroup.id[0] : index"
            case CallStatement():
                kinds, given = ", ".join(map(str, s.kinds)), self._listed(s.arguments)
                return f"func.call @{self.kernel}{s.function}({given}) : ({kinds}) -> ()"


def _named(place: int, c: Constant) -> str:
    """An index is called by its number, as MLIR does."""
    return f"%c{c.literal}" if c.kind == "index" and c.literal.isdigit() else f"%k{place}"


def _typed(c: Constant) -> str:
    if c.kind == "i1":
        return c.literal
    literal = f"dense<{c.literal}>" if c.kind.startswith("vector") else c.literal
    return f"{literal} : {c.kind}"
