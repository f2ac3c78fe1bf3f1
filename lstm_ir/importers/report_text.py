"""The report of an import on one screen."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lstm_ir.importers.recurrences import Recurrence
from lstm_ir.importers.report import ImportReport
from lstm_ir.ir.printable import UNBROKEN, bytes_text, safe

WIDTH = 120  # columns where nobody says how many there are
SHOWN = 3  # names of nodes in one line


def text(report: ImportReport) -> str:
    """The report without spaces at the ends of lines, so that it can be pasted."""
    on_screen = sys.stdout is not None and sys.stdout.isatty()  # None: it was closed when the process began
    width = shutil.get_terminal_size((WIDTH, 24)).columns if on_screen else WIDTH
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as made:
        _print(console, report)
    return "\n".join(line.rstrip() for line in made.get().replace(UNBROKEN, " ").splitlines())


def _print(console: Console, report: ImportReport) -> None:
    console.print(_head(report))
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    rows.add_column(no_wrap=True)
    rows.add_column()
    for name, text in _lines(report):
        rows.add_row(Text(name, "bold"), Text(safe(text)))
    console.print(rows)
    if report.refusals:
        console.print(_refusals(report))
        console.print(Text("Refused as a whole: nothing is dropped.", "bold"))


def _head(r: ImportReport) -> Text:
    state = "taken" if r.ok else f"{len(r.refusals)} refusal{'s' if len(r.refusals) > 1 else ''}"
    text = f"{r.file}: {bytes_text(r.bytes)}, {r.format}, {r.nodes} nodes of {len(r.ops)} ops: "
    return Text.assemble(safe(text), (state, "bold green" if r.ok else "bold red"))


def _lines(r: ImportReport) -> Iterator[tuple[str, str]]:
    yield "ops taken", _counts([(o.op, o.taken) for o in r.ops])
    if any(o.refused for o in r.ops):
        yield "refused", _counts([(o.op, o.refused) for o in r.ops])
    if any(o.passed for o in r.ops):
        yield "behind those", _counts([(o.op, o.passed) for o in r.ops])
    unread = sum(o.unread for o in r.ops)
    if unread:
        where = "branches that are not taken" if r.ok else "branches and bodies that were not reached"
        yield "not looked at", f"{unread} nodes in {where}"
    yield "inputs", "  ".join(r.inputs) or "none"
    if r.outputs:
        yield "outputs", "  ".join(r.outputs)
    yield "open sizes", "  ".join(f"{s.name} ({_some(s.axes)})" for s in r.sizes) or "none"
    for w in r.constants:
        hint = f"--constant {w.input}={w.values[0]}" if w.values else f"--constant {w.input}=VALUE"
        seen = f"compared with {', '.join(map(str, w.values))}" if w.values else "compared with no number"
        yield "wants constant", f"{w.input}, {seen}: {hint}"
    for name in r.numbers:
        yield "wants number", f"{name}: --size {name}=NUMBER"
    for first, *others in r.alike:
        hints = " ".join(f"--size {n}={first}" for n in others)
        yield "wants one size", f"{' and '.join((first, *others))}, if they are always equal: {hints}"
    for sum_, name in ((r.weights, "weights"), (r.literals, "literals")):
        if sum_.count:
            kinds = ", ".join(f"{k} {bytes_text(b)}" for k, b in sum_.dtypes.items())
            yield name, f"{sum_.count} arrays, {bytes_text(sum_.bytes)}: {kinds}"
    for found in r.recurrences:
        yield "recurrence", _recurrence(found)
    if r.fused:
        yield "cells found", f"{r.fused} among plain ops (fuse-cell)"
    for s in r.states:
        yield "state", f"{s.input} -> {s.output}, {s.type}, of {_some([_node(p) for p in s.layers])}"
    if r.liftable:
        kept = [f"{_node(s.layer)} {','.join(s.states)} {s.type}" for s in r.liftable]
        yield "could be kept", f"{_some(kept)}: start from zeros at each call"


def _counts(ops: Sequence[tuple[str, int]]) -> str:
    return "  ".join(f"{name}{UNBROKEN}{n}" for name, n in ops if n) or "none"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def _node(place: str) -> str:
    """The name of a node alone: the file stands above."""
    return place.partition(":")[2]


def _recurrence(r: Recurrence) -> str:
    sizes = " ".join(f"{name}={d}" for name, d in (("T", r.T), ("B", r.B), ("I", r.I), ("H", r.H)) if d is not None)
    target = "" if r.runs is None else f": {r.runs}"
    return f"{r.count} x {r.kind} {r.direction} {sizes}{target}"


def _refusals(r: ImportReport) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("refused op", "node", "reason"):
        table.add_column(name, overflow="fold")
    for refusal in r.refusals:
        table.add_row(*(Text(safe(t)) for t in (refusal.op, refusal.node, refusal.reason)))
    return table
