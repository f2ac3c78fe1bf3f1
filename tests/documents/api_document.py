"""The parts of docs/api.md that come from the code.

`python tests/machine/child.py tests/documents/api_document.py` writes them anew:

    <!-- builders: exp log -->              a table of calls with the first paragraph of each docstring
    <!-- members: exe package.file:Class --> the same of a class's public methods and properties
    <!-- errors: -->                        a table of the public error classes
    ### `compile`                           the signature, in a block below the heading; of a name in another
                                            module with its place: `lstm_ir.ray.Predictor`
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

from paths import DOCS

import lstm_ir as li

PAGE = DOCS / "api.md"
TABLE = re.compile(r"<!-- (builders|members|errors): ?([^>]*?) -->\n(?:\|.*\n)*")
SIGNED = re.compile(r"^### `([\w.]+)`\n\n```python\n.*?```\n", re.M | re.S)
HEADING = re.compile(r"^### `(\w+)`$", re.M)
WIDTH = 100
PROPERTY = (property, functools.cached_property)


class _Type(str):
    """An annotation, which `inspect` writes as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def first_paragraph(thing: Any) -> str:
    """The docstring up to its first empty line, in one line."""
    doc = inspect.getdoc(thing)
    assert doc, f"{thing!r} has no docstring"
    return " ".join(doc.partition("\n\n")[0].split())


def plain(function: Any, skip: int = 0) -> str:
    """(x, axis=0): names and defaults, without types."""
    signature = inspect.signature(function)
    kept = list(signature.parameters.values())[skip:]
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in kept]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def thing_of(name: str) -> Any:
    """The public thing of this name: `compile`, or `lstm_ir.ray.Predictor`."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module) if module else li, last)


def full(name: str) -> str:
    """The signature with its types, a parameter in each line where one line is too short."""
    thing = thing_of(name)
    signature = inspect.signature(thing)
    function = not inspect.isclass(thing)
    result: Any = _Type(signature.return_annotation) if function else inspect.Signature.empty
    typed = [p.replace(annotation=_Type(p.annotation)) for p in signature.parameters.values()]
    signature = signature.replace(parameters=typed, return_annotation=result)
    if len(name + str(signature)) <= WIDTH:
        return name + str(signature)
    end = f" -> {result}" if function else ""
    lines = [f"    {p},\n" for p in typed]
    named = [i for i, p in enumerate(typed) if p.kind is inspect.Parameter.KEYWORD_ONLY]
    if named:
        lines.insert(named[0], "    *,\n")
    return f"{name}(\n{''.join(lines)}){end}"


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties, those of bases after its own."""
    seen: set[str] = set()
    for base in (b for b in cls.__mro__ if b.__module__.startswith("lstm_ir")):
        for name, kind in vars(base).items():
            shown = inspect.isfunction(kind) or isinstance(kind, (*PROPERTY, classmethod, staticmethod))
            if shown and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, kind


def found(path: str) -> type:
    """The class at `package.file:Class`."""
    module, _, name = path.partition(":")
    cls = getattr(importlib.import_module(module), name)
    assert isinstance(cls, type)
    return cls


def errors() -> list[str]:
    """The public error classes, their root first."""
    classes = [n for n in li.__all__ if inspect.isclass(getattr(li, n))]
    named = [n for n in classes if issubclass(getattr(li, n), li.LstmIrError)]
    return sorted(named, key=lambda n: (n != "LstmIrError", n))


def _row(*cells: str) -> str:
    return "| " + " | ".join(c.replace("|x|", r"\|x\|") for c in cells) + " |\n"


def _builders(names: str) -> str:
    rows = (_row(f"`{n}{plain(getattr(li, n))}`", first_paragraph(getattr(li, n)))
            for n in names.split())  # fmt: skip
    return "| call | gives |\n|---|---|\n" + "".join(rows)


def _members(text: str) -> str:
    prefix, path = text.split()
    cls, rows = found(path), []
    for name, kind in members(cls):
        value = getattr(cls, name)
        bound = inspect.ismethod(value) or isinstance(kind, staticmethod)
        takes = "" if isinstance(kind, PROPERTY) else plain(value, 0 if bound else 1)
        rows.append(_row(f"`{prefix}.{name}{takes}`", first_paragraph(kind)))
    return "| member | gives, or does |\n|---|---|\n" + "".join(rows)


def _errors(_: str) -> str:
    rows = []
    for name in errors():
        cls = getattr(li, name)
        bases = ", ".join(f"`{b.__name__}`" for b in cls.__bases__)
        rows.append(_row(f"`{name}`", bases, first_paragraph(cls)))
    return "| error | is also | raised for |\n|---|---|---|\n" + "".join(rows)


MAKE = {"builders": _builders, "members": _members, "errors": _errors}


def renewed(page: str) -> str:
    """The page with its tables and signatures as the code has them."""

    def table(m: re.Match[str]) -> str:
        return f"<!-- {m.group(1)}: {m.group(2)} -->\n{MAKE[m.group(1)](m.group(2))}"

    def entry(m: re.Match[str]) -> str:
        return f"### `{m.group(1)}`\n\n```python\n{full(m.group(1))}\n```\n"

    return SIGNED.sub(entry, TABLE.sub(table, page))


def documented(page: str) -> list[str]:
    """The names that have an entry, in the order of the page."""
    names = list(HEADING.findall(page))
    for kind, text in TABLE.findall(page):
        names += errors() if kind == "errors" else text.split() if kind == "builders" else []
    return names


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
