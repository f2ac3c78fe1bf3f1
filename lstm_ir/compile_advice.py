"""What an error of the compiler says besides IREE's own words: what was being lowered, and what to try."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from lstm_ir.ir.program import Program, every_node

if TYPE_CHECKING:
    from lstm_ir.backends.compile.compiler import CompilerRefusedError

CHOSEN = frozenset(("opt_level", "data_tiling", "flags"))
"""Options with which no other way is tried, since the caller chose one."""
_OPS = 4  # of one line that are named


def advice(e: CompilerRefusedError, optimized: Program, notes: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """Lines for the error: the nodes at the places that IREE names, and ways that were not tried.

    optimized: the program after the passes; notes: of each loop, whether it is a kernel; options: the caller's options.
    """
    return [
        f"being lowered: {'; '.join(_lowered(e, optimized))}",
        f"to try: {'; '.join(_tries(optimized, notes, options))}",
    ]


def _lowered(e: CompilerRefusedError, optimized: Program) -> Iterator[str]:
    nodes: dict[tuple[str, int], dict[str, None]] = {}
    for g in optimized.entries.values():
        for n in every_node(g):
            nodes.setdefault((PurePath(n.loc.file).name, n.loc.line), {})[n.op.name] = None
    for file, line in e.places:
        ops = list(nodes.get((file, line), ()))
        more = f" and {len(ops) - _OPS} others" if len(ops) > _OPS else ""
        yield f"{', '.join(ops[:_OPS])}{more} at {file}:{line}".lstrip()
    if not e.places:
        for name, g in optimized.entries.items():
            yield f"entry {name}, {len(g.nodes)} nodes (IREE names no line)"


def _tries(optimized: Program, notes: Sequence[str], options: Mapping[str, Any]) -> Iterator[str]:
    sizes = sorted({n for g in optimized.entries.values() for v in g.params for n in v.type.names})
    if sizes:
        yield f"numbers for the sizes {', '.join(sizes)}"
    chosen = sorted(CHOSEN & set(options))
    if chosen:
        yield f"no option {', '.join(chosen)}: then weaker flags are tried too"
    if (chosen or options.get("kernels") is True) and any(": kernel, " in note for note in notes):
        yield 'options={"kernels": False} (--no-kernels)'
    yield "LSTM_IR_DUMP=folder, which keeps what the compiler was given"
