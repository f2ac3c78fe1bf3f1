"""A kernel whose entry binds its tensors, and calls a function that does all the rest.

IREE changes how an entry is given its tensors, in the light of all its calls. The rest is the same whatever it makes of
them, so it can stay out of the module while IREE does so (`backends/compile/phases.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lstm_ir.backends.kernels.text.kernel import Kernel, KernelFunction, KernelSignature
from lstm_ir.backends.kernels.text.statements import (
    Body,
    CallStatement,
    Kind,
    Name,
    Operation,
    Rewriter,
    Statement,
    Subspan,
    TextOperand,
    WorkgroupId,
)

REST = "_rest"  # the function's name
_DEPTH = 4  # of functions in an executable, as IREE prints them


def bound(kernel: Kernel) -> Kernel:
    """The kernel with such an entry."""
    *before, entry = kernel.functions
    found = _Rest()
    body = found.body(entry.body)
    given = {n: n.kind for n in entry.signature.numbers} | found.made
    signature = KernelSignature((), tuple(replace(n, kind=k) for n, k in given.items()), ())
    rest = replace(entry, name=REST, signature=signature, body=body, attributes="", joins=True)
    call = CallStatement(REST, tuple(given), tuple(k for k in given.values() if k is not None))
    return Kernel((*before, rest, _entry(entry, [*found.statements, call])))


def declared(kernels: Iterable[tuple[str, Kernel]]) -> tuple[str, dict[str, str]]:
    """One executable's functions that IREE calls, with declarations of those that they call, and these by name.

    Kernels come with what their functions' names begin with. What no function calls that IREE calls stands before the
    next one that it calls.
    """
    parts = [(name, f) for name, kernel in kernels for f in kernel.functions]
    called = {name + s.function for name, f in parts if not f.private for s in _calls(f.body)}
    lines, joining, before = list[str](), dict[str, str](), list[str]()
    for name, f in parts:
        if not f.private:
            lines += f.lines(name)
            continue
        before += f.lines(name)
        if name + f.name in called:
            lines.append(f.declaration(name))
            joining[name + f.name] = "\n".join(_indented(before))
            before = []
    assert not before, "functions that nobody calls"
    return "\n".join(lines), joining


def _indented(lines: Iterable[str]) -> Iterator[str]:
    """By the braces at their ends."""
    depth = _DEPTH
    for line in lines:
        depth -= line.startswith("}")
        yield "  " * (depth - line.startswith("^")) + line
        depth += line.endswith("{")


def _calls(body: Body) -> Iterator[CallStatement]:
    for s in body:
        if isinstance(s, CallStatement):
            yield s
        elif isinstance(s, Operation):
            for r in s.regions:
                yield from _calls(r.body)


class _Rest(Rewriter):
    """Leaves out what an entry alone can do."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.made: dict[Name, Kind | None] = {}

    def statement(self, s: Subspan | WorkgroupId | CallStatement) -> Iterable[Statement]:
        """Calls alone."""
        if isinstance(s, CallStatement):
            yield s
            return
        self.statements.append(s)
        self.made[s.result] = s.kind if isinstance(s, Subspan) else "index"


def _entry(entry: KernelFunction, statements: list[Statement]) -> KernelFunction:
    """These statements, behind those of the entry that give what they take."""
    body, wanted = list[Statement](), set[TextOperand]()
    for s in reversed(statements):
        body.append(s)
        wanted.update(_operands(s))
    for s in reversed(entry.body):
        if isinstance(s, Operation) and s.result in wanted:
            body.append(s)
            wanted.update(_operands(s))
    constants = tuple(c for c in entry.constants if c in wanted)
    return replace(entry, constants=constants, buffers=(), body=tuple(reversed(body)))


def _operands(s: Statement) -> Iterable[TextOperand]:
    match s:
        case Operation():
            return [p for p in s.operands if isinstance(p, TextOperand)]
        case Subspan():
            return [s.offset, *s.sizes]
        case CallStatement():
            return s.arguments
        case _:
            return ()
