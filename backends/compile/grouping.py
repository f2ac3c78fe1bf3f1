"""Executables of a module put together in two, which IREE translates side by side.

IREE translates each executable by itself, links all to one, and has LLVM make code of that one in a single thread, for
half of the last phase. Two of them are made by two threads. With one for each LLVM takes longer: one costs 0.06 s,
whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Measured with two cores: 3 and 4 groups take longer than 2.
GROUPS = 2
# Executables. Measured, the last phase with two groups by that with one: of 5 executables 0.91 to 0.95, of 9 to 15
# 0.81 to 0.92, of 19 to 30 0.78 to 0.81, of 46 to 122 three quarters.
FROM = 2
# Characters of text that take as long as an executable takes whatever it holds; reasoned from 0.02 s to translate one.
ANY = 1500
UNLINKED = "--iree-hal-link-executables=false"
_EXECUTABLE = re.compile(
    r"^  hal\.executable private @(?P<name>[\w$.]+) \{\n"
    r"(?P<variant>    hal\.executable\.variant public @[\w$.]+ target\(<\"llvm-cpu\", .*\n)"
    r"(?P<exports>(?:      (?:hal\.executable\.export |  |\}).*\n)+)"
    r"      builtin\.module \{\n(?P<body>(?:        .*\n)+)      \}.*\n    \}.*\n  \}.*\n",
    re.MULTILINE,
)
_BEGINS = re.compile(r"^  hal\.executable ", re.MULTILINE)
_NUMBER = re.compile(r"^(      hal\.executable\.export public @[\w$.]+ )ordinal\(\d+\)", re.MULTILINE)
_USE = re.compile(r"@([\w$.]+)(?=::@[\w$.]+::@)")


def grouped(text: str) -> str | None:
    """The module with its executables in groups, or None where they are few or of another form.

    `text`: a module as IREE prints it before it translates executables.
    """
    found = list(_EXECUTABLE.finditer(text))
    if len(found) < FROM or len(found) != len(_BEGINS.findall(text)) or len({m["variant"] for m in found}) > 1:
        return None
    groups: list[list[re.Match[str]]] = [[] for _ in range(GROUPS)]
    for m in sorted(found, key=_cost, reverse=True):
        min(groups, key=lambda members: sum(map(_cost, members))).append(m)
    names = {m["name"]: f"group_{i}" for i, members in enumerate(groups) for m in members}
    if not names.keys().isdisjoint(names.values()):
        return None
    executables = (_executable(f"group_{i}", members) for i, members in enumerate(groups))
    head, *rest = (_USE.sub(lambda use: f"@{names.get(use[1], use[1])}", part) for part in _others(text, found))
    return "".join([head, *executables, *rest])


def _cost(m: re.Match[str]) -> int:
    return m.end() - m.start() + ANY


def _others(text: str, found: Iterable[re.Match[str]]) -> Iterable[str]:
    """What stands between executables."""
    end = 0
    for m in found:
        yield text[end : m.start()]
        end = m.end()
    yield text[end:]


def _executable(name: str, members: list[re.Match[str]]) -> str:
    """One with the functions of all; its exports are numbered in order."""
    exports = "".join(m["exports"] for m in members)
    numbers = iter(range(len(_NUMBER.findall(exports))))
    exports = _NUMBER.sub(lambda found: f"{found[1]}ordinal({next(numbers)})", exports)
    bodies = "".join(m["body"] for m in members)
    head = f"  hal.executable private @{name} {{\n{members[0]['variant']}"
    return f"{head}{exports}      builtin.module {{\n{bodies}      }}\n    }}\n  }}\n"
