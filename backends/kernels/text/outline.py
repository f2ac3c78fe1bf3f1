"""One code for components of equal form, as the two directions of a layer are.

Every component is written as a text of its own. Texts that differ only in names from outside (memories)
and in constants are one function: what differs between them becomes its arguments, and each component
calls it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lstm_ir.backends.kernels.text.text import Text

PREFIX = "%w"  # of names inside a component's text
_NAME = re.compile(r"%[A-Za-z_]\w*(?:#\d+)?")
_LOCAL = re.compile(r"%w\d+(?:#\d+)?")
_ATTRIBUTES = 'attributes {no_inline, passthrough = ["noinline"]}'


@dataclass(frozen=True)
class Outside:
    """What a text has from outside: a name, or a constant of the type `kind`."""

    text: str
    kind: str
    constant: bool


@dataclass(frozen=True)
class Call:
    """How a component calls its function."""

    function: str
    arguments: tuple[Outside, ...]

    def write(self, t: Text) -> None:
        """The statement."""
        names = [t.constant(a.text, a.kind) if a.constant else a.text for a in self.arguments]
        kinds = ", ".join(a.kind for a in self.arguments)
        t.line(f"func.call @{self.function}({', '.join(names)}) : ({kinds}) -> ()")


def outlined(
    parts: list[Text], name: str, kinds: Mapping[str, str]
) -> tuple[list[str], list[Call]]:
    """The functions, `name`_0 and on, and a call for each part; names not in `kinds` are indices."""
    forms = [_form(p, kinds) for p in parts]
    same: dict[tuple[str, ...], list[int]] = {}
    for i, (lines, _) in enumerate(forms):
        same.setdefault(lines, []).append(i)
    functions: list[str] = []
    calls: dict[int, Call] = {}
    for k, (lines, members) in enumerate(same.items()):
        columns = list(zip(*(forms[i][1] for i in members), strict=True))
        text, arguments = _function(f"{name}_{k}", lines, columns)
        functions.append(text)
        for place, i in enumerate(members):
            calls[i] = Call(f"{name}_{k}", tuple(a[place] for a in arguments))
    return functions, [calls[i] for i in range(len(parts))]


def _form(t: Text, kinds: Mapping[str, str]) -> tuple[tuple[str, ...], list[Outside]]:
    """The lines with a mark for everything from outside, and what the marks stand for."""
    constants = {v: k for k, v in t.constants.items()}
    found: list[Outside] = []

    def mark(m: re.Match[str]) -> str:
        word = m[0]
        if _LOCAL.fullmatch(word):
            return word
        literal, kind = constants.get(word, (word, kinds.get(word, "index")))
        found.append(Outside(literal, kind, word in constants))
        return "%?"

    return tuple(_NAME.sub(mark, line) for line in [*t.buffers, *t.lines]), found


def _function(
    name: str, lines: tuple[str, ...], columns: list[tuple[Outside, ...]]
) -> tuple[str, list[tuple[Outside, ...]]]:
    """The text, and its arguments, each with what every component gives."""
    head = Text(0)
    names: dict[tuple[Outside, ...], str] = {}
    arguments: list[tuple[Outside, ...]] = []
    for column in columns:
        if column in names:
            continue
        first = column[0]
        if first.constant and all(o == first for o in column):
            names[column] = head.constant(first.text, first.kind)
        else:
            names[column] = f"%a{len(arguments)}"
            arguments.append(column)
    order = iter(columns)
    body = [re.sub(r"%\?", lambda _: names[next(order)], line) for line in lines]
    given = ", ".join(f"{names[a]}: {a[0].kind}" for a in arguments)
    text = [f"    func.func private @{name}({given}) {_ATTRIBUTES} {{"]
    return "\n".join([*text, *head.head, *body, "      return", "    }"]), arguments
