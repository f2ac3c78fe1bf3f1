"""One code for components of equal form, as the two directions of a layer are.

Every component is written by itself. Those that differ only in constants and in values from outside
(memories, indices) are one function: what differs between them becomes its arguments, and each component
calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lstm_ir.backends.kernels.text.kernel import KernelFunction, KernelSignature
from lstm_ir.backends.kernels.text.statements import HOLE, CallStatement, Constant, Kind, Name, Rewriter, TextOperand
from lstm_ir.backends.kernels.text.text import Text

PREFIX = "%w"  # of values inside a component
Column = tuple[TextOperand, ...]  # what stands in one place in each component


def outlined(parts: Sequence[Text], name: str) -> tuple[list[KernelFunction], list[CallStatement]]:
    """The functions, `name`_0 and on, and a call for each part."""
    forms = [_Form(p) for p in parts]
    same: list[list[int]] = []
    for i, form in enumerate(forms):
        members = next((m for m in same if forms[m[0]].equals(form)), [])
        if not members:
            same.append(members)
        members.append(i)
    functions: list[KernelFunction] = []
    calls: dict[int, CallStatement] = {}
    for k, members in enumerate(same):
        filled = _Filled(list(zip(*(forms[i].outside for i in members), strict=True)))
        functions.append(filled.function(f"{name}_{k}", forms[members[0]]))
        for place, i in enumerate(members):
            given = tuple(column[place] for column in filled.arguments)
            calls[i] = CallStatement(f"{name}_{k}", given, tuple(map(_kind, given)))
    return functions, [calls[i] for i in range(len(parts))]


class _Form(Rewriter):
    """A component's statements with holes for all that comes from outside, and what that is."""

    def __init__(self, t: Text) -> None:
        self._own = t.own
        self.outside: list[TextOperand] = []
        self.buffers = tuple(map(self.operation, t.buffers))
        self.lines = self.body(t.body)

    def equals(self, other: _Form) -> bool:
        """Whether the statements are the same."""
        return self.buffers == other.buffers and self.lines == other.lines

    def operand(self, o: TextOperand) -> TextOperand:
        """A hole, or a value of the component's."""
        if isinstance(o, Name) and o.text in self._own:
            return o
        self.outside.append(o)
        return HOLE


class _Filled(Rewriter):
    """Fills the holes: with a constant, where all components have the same, or an argument."""

    def __init__(self, columns: list[Column]) -> None:
        self.arguments: list[Column] = []
        self._text = Text(0)
        names: dict[Column, TextOperand] = {}
        for column in columns:
            if column not in names:
                names[column] = self._filling(column)
        self._order: Iterator[TextOperand] = (names[c] for c in columns)

    def _filling(self, column: Column) -> TextOperand:
        first = column[0]
        if isinstance(first, Constant) and all(o == first for o in column):
            return self._text.constant(first.literal, first.kind)
        self.arguments.append(column)
        return Name(f"%a{len(self.arguments) - 1}", _kind(first))

    def operand(self, o: TextOperand) -> TextOperand:
        """What a hole stands for."""
        return next(self._order) if o is HOLE else o

    def function(self, name: str, form: _Form) -> KernelFunction:
        """The function of all components."""
        given = tuple(Name(f"%a{i}", _kind(c[0])) for i, c in enumerate(self.arguments))
        head = self._text.function(name, KernelSignature((), given, ()))
        buffers = tuple(map(self.operation, form.buffers))
        return replace(head, buffers=buffers, body=self.body(form.lines))


def _kind(o: TextOperand) -> Kind:
    """The type of an argument."""
    assert isinstance(o, (Name, Constant))
    assert o.kind is not None, f"{o} comes from outside, and has no type"
    return o.kind
