"""A compiled program in a few lines of text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lstm_ir.ir.signature import Entry, Port, Signature, StateVar

ROWS, LETTERS = 20, 120  # entries that are shown, and letters of a line


def executable_text(signature: Signature, target: str, device: str) -> str:
    """What it was compiled for, what its entries take and give, and what it keeps."""
    entries = list(signature.entries.values())
    wide = max(len(e.name) for e in entries[:ROWS])
    lines = [f"program @{signature.name}, compiled for {target}, on {device}"]
    lines += [f"  {e.name:{wide}}  {_ports(e)}" for e in entries[:ROWS]]
    if len(entries) > ROWS:
        lines.append(f"  and {len(entries) - ROWS} more entries")
    if signature.state:
        lines.append(f"state: {_listed(signature.state.values())}")
    return "\n".join(line if len(line) <= LETTERS else f"{line[: LETTERS - 1]}…" for line in lines)


def _ports(e: Entry) -> str:
    return f"{_listed(e.inputs) or 'nothing'} -> {_listed(e.outputs) or 'nothing'}"


def _listed(ports: Iterable[Port | StateVar]) -> str:
    return ", ".join(f"{p.name}: {p.type}" for p in ports)
