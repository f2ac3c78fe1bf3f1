"""What an error of the compiler says besides IREE's own words: what was being lowered, and what to try."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from lstm_ir.ir.program import Program, every_node

if TYPE_CHECKING:
    from lstm_ir.backends.compile.compiler_errors import CompilerError

CHOSEN = frozenset(("opt_level", "data_tiling", "flags"))
"""Options with which no other way is tried, since the caller chose one."""
_DUMP = "LSTM_IR_DUMP=folder, which keeps what the compiler was given"
_OPS = 4  # of one line that are named


def advice(e: CompilerError, optimized: Program, notes: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """Lines for the error: the nodes at the places that IREE names, and ways that were not tried.

    optimized: the program after the passes; notes: of each loop, whether it is a kernel; options: the caller's options.
    """
    from lstm_ir.backends.compile.compiler_errors import CompilerSlowError  # what only runs needs no compiler

    if isinstance(e, CompilerSlowError):
        lowered, tries = _entries(optimized), _longer(optimized)
    else:
        lowered, tries = _lowered(e, optimized), _tries(optimized, notes, options)
    return [f"being lowered: {'; '.join(lowered)}", f"to try: {'; '.join([*tries, _DUMP])}"]


def _entries(optimized: Program) -> Iterator[str]:
    for name, g in optimized.entries.items():
        yield f"entry {name}, {len(g.nodes)} nodes"


def _lowered(e: CompilerError, optimized: Program) -> Iterator[str]:
    nodes: dict[tuple[str, int], dict[str, None]] = {}
    for g in optimized.entries.values():
        for n in every_node(g):
            nodes.setdefault((PurePath(n.loc.file).name, n.loc.line), {})[n.op.name] = None
    for file, line in e.places:
        ops = list(nodes.get((file, line), ()))
        more = f" and {len(ops) - _OPS} others" if len(ops) > _OPS else ""
        yield f"{', '.join(ops[:_OPS])}{more} at {file}:{line}".lstrip()
    if not e.places:
        yield from (f"{entry} (IREE names no line)" for entry in _entries(optimized))


def _longer(optimized: Program) -> Iterator[str]:
    yield "a larger timeout"
    yield from _numbers(optimized)


def _numbers(optimized: Program) -> Iterator[str]:
    sizes = sorted({n for g in optimized.entries.values() for v in g.params for n in v.type.names})
    if sizes:
        yield f"numbers for the sizes {', '.join(sizes)}"


def _tries(optimized: Program, notes: Sequence[str], options: Mapping[str, Any]) -> Iterator[str]:
    yield from _numbers(optimized)
    chosen = sorted(CHOSEN & set(options))
    if chosen:
        yield f"no option {', '.join(chosen)}: then weaker flags are tried too"
    if (chosen or options.get("kernels") is True) and any(": kernel, " in note for note in notes):
        yield 'options={"kernels": False} (--no-kernels)'
