"""Kernels of one form: texts that differ in numbers alone, as those of layers of unequal width do.

Numbers are index constants, where they are used, and sizes of memories. Those that differ become
arguments of one text. Divisors, steps of loops and buffers on the stack have to be equal: what a
compiler knows of them is worth more than a shared kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Column = tuple[int, ...]  # what one number is in each text

_HEADER = "    func.func "
_CONSTANT = re.compile(r" +(%c\d+) = arith\.constant (.*)")
_USE = re.compile(r"(?P<step>step )?(?P<name>%c\d+)\b|memref<(?P<sizes>(?:(?:\d+|\?)x)+)")
_KEPT = re.compile(r"memref\.alloca|= arith\.(?:ceil|floor)?(?:div|rem)")
_INDEX, _SIZE = "\0", "\1"  # marks: a constant where it is used, a size of a memory
_MARK = re.compile(f"[{_INDEX}{_SIZE}]|\2([^\3]*)\3")  # between the last two: any other constant
_CALL = re.compile(r"( *func\.call @)([\w.]+)\((.*)\) : \((.*)\) -> \(\)")


@dataclass(frozen=True)
class Form:
    """A text without its numbers, and the numbers in order."""

    lines: tuple[str, ...]
    numbers: tuple[int, ...]


def length(text: str) -> int:
    """Lines without those of constants: texts of one form have as many."""
    return text.count("\n") - text.count("= arith.constant ")


def form(text: str) -> Form:
    """The form of a kernel's functions."""
    constants: dict[str, str] = {}
    numbers: list[int] = []
    fixed = False

    def mark(m: re.Match[str]) -> str:
        if m["sizes"] is not None:
            if fixed:
                return m[0]
            sizes = m["sizes"].split("x")[:-1]
            numbers.extend(int(d) for d in sizes if d != "?")
            return "memref<" + "".join("?x" if d == "?" else f"{_SIZE}x" for d in sizes)
        what = constants[m["name"]]
        if fixed or m["step"] or not what.endswith(" : index"):
            return f"{m['step'] or ''}\2{what}\3"
        numbers.append(int(what.removesuffix(" : index")))
        return _INDEX

    lines = []
    for line in text.split("\n"):
        constant = _CONSTANT.fullmatch(line)
        if constant is not None:
            constants[constant[1]] = constant[2]
            continue
        if line.startswith(_HEADER):
            constants = {}
        fixed = _KEPT.search(line) is not None
        lines.append(_USE.sub(mark, line))
    return Form(tuple(lines), tuple(numbers))


def merged(forms: Sequence[Form]) -> tuple[str, list[Column]]:
    """The one text of forms with equal lines, and what its further arguments are for each of them."""
    columns = list(zip(*(f.numbers for f in forms), strict=True))
    differing = [c for c in dict.fromkeys(columns) if len(set(c)) > 1]
    names = {c: f"%n{i}" for i, c in enumerate(differing)}
    return "\n".join(_Merged(forms[0].lines, columns, names).lines()), differing


class _Merged:
    """Writes the text that several kernels share."""

    def __init__(
        self, lines: Sequence[str], columns: list[Column], names: dict[Column, str]
    ) -> None:
        self._lines, self._columns, self._names = lines, iter(columns), names
        self._given: dict[str, list[str]] = {}  # function -> its further arguments
        self._constants: dict[str, str] = {}
        self._used: dict[str, None] = {}

    def lines(self) -> Iterator[str]:
        """Function by function; those that others call stand first."""
        part: list[str] = []
        for line in self._lines:
            if line.startswith(_HEADER) and part:
                yield from self._function(part)
                part = []
            part.append(line)
        yield from self._function(part)

    def _function(self, lines: list[str]) -> Iterator[str]:
        self._constants, self._used = {}, {}
        end = next(i for i, line in enumerate(lines) if line.endswith("{"))
        header = [self._line(line) for line in lines[: end + 1]]
        body = [self._line(line) for line in lines[end + 1 :]]
        first = header[0]
        if " private " in first:
            name = first[first.index("@") + 1 : first.index("(")]
            self._given[name] = list(self._used)
            arguments, _, rest = first.partition(") attributes")
            more = "".join(f", {n}: index" for n in self._used)
            header[0] = f"{arguments}{more}) attributes{rest}"
        else:
            # Numbers stand between the tensors that are read and those that are written.
            more = "".join(f"{n}: index, " for n in self._names.values())
            at = first.find("%b_out")
            last = first.rindex(")")
            header[0] = (
                f"{first[:at]}{more}{first[at:]}"
                if at >= 0
                else f"{first[:last]}, {more[:-2]}{first[last:]}"
            )
        yield from header
        yield from (f"      {v} = arith.constant {k}" for k, v in self._constants.items())
        yield from body

    def _line(self, line: str) -> str:
        if "stream.binding.subspan" in line:
            return self._subspan(line)
        line = _MARK.sub(self._put, line)
        call = _CALL.fullmatch(line)
        if call is None:
            return line
        more = self._given[call[2]]
        self._used |= dict.fromkeys(more)
        names = ", ".join(filter(None, [call[3], *more]))
        kinds = ", ".join(filter(None, [call[4], *(["index"] * len(more))]))
        return f"{call[1]}{call[2]}({names}) : ({kinds}) -> ()"

    def _put(self, m: re.Match[str]) -> str:
        if m[1] is not None:
            return self._constant(m[1])
        name, number = self._number()
        if m[0] == _SIZE:
            return str(number) if name is None else "?"
        return self._constant(f"{number} : index") if name is None else name

    def _number(self) -> tuple[str | None, int]:
        """The next number, and the argument that it is, if any."""
        column = next(self._columns)
        name = self._names.get(column)
        if name is not None:
            self._used[name] = None
        return name, column[0]

    def _constant(self, literal: str) -> str:
        return self._constants.setdefault(literal, f"%c{len(self._constants)}")

    def _subspan(self, line: str) -> str:
        """Sizes that are not known are operands."""
        before, _, after = line.partition("memref<")
        before = _MARK.sub(self._put, before)
        kind, _, given = after.partition(">")
        operands = iter(given.strip("{}").split(", "))
        *sizes, element = kind.split("x")
        dims, names = [], []
        for d in sizes:
            name, number = self._number() if d == _SIZE else (next(operands), 0)
            dims.append(str(number) if name is None else "?")
            names += [] if name is None else [name]
        held = "{" + ", ".join(names) + "}" if names else ""
        return f"{before}memref<{'x'.join([*dims, element])}>{held}"
