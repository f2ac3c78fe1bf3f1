"""What a notebook shows of graphs, programs and executables: a picture where it is small, tables where it is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lstm_ir.ir.graph import Graph  # an executable of a package has none
    from lstm_ir.ir.program import Program
    from lstm_ir.ir.signature import Entry, Signature

NODES = 400  # of all graphs, bodies included, that are drawn
ROWS, LETTERS = 40, 120  # of a table, of a cell


def graph_svg(graph: Graph) -> str | None:
    """The graph as a picture; None where it has too many nodes for one."""
    return _picture({"": graph}, graph.name)


def graph_html(graph: Graph) -> str | None:
    """Inputs, outputs and ops of a graph that is too large for a picture; None where the picture is shown."""
    return _tables({"": graph}, f"graph @{graph.name}") if _count([graph]) > NODES else None


def program_svg(program: Program) -> str | None:
    """The entries as one picture; None where they have too many nodes for one."""
    return _picture(program.entries, program.name)


def program_html(program: Program) -> str | None:
    """Inputs, outputs and ops of entries that are too large for a picture; None where the picture is shown."""
    large = _count(program.entries.values()) > NODES
    return _tables(program.entries, f"program @{program.name}") if large else None


def executable_html(
    signature: Signature, target: str, device: str, weights: Mapping[str, Any], notes: Sequence[str]
) -> str:
    """What a compiled program takes, gives and keeps, where it runs, and how its loops do."""
    bytes_ = sum(a.nbytes for a in weights.values())
    head = f"program @{signature.name}, compiled for {target}, on {device}"
    parts = [_entry(name, e) for name, e in list(signature.entries.items())[:ROWS]]
    parts.append(_line(f"{len(weights)} weights, {bytes_:,} bytes"))
    if signature.state:
        parts.append(_table("state", [(n, str(s.type)) for n, s in signature.state.items()]))
    if notes:
        parts.append(_table("how", [(note,) for note in notes]))
    return _block(head, parts)


def _count(graphs: Iterable[Graph]) -> int:
    """Nodes, those of bodies included; no more are counted than decide."""
    from lstm_ir.ir.graph import Graph  # an executable of a package has none

    total, todo = 0, list(graphs)
    while todo and total <= NODES:
        nodes = todo.pop().nodes
        total += len(nodes)
        todo += [a for n in nodes for a in n.attrs.values() if isinstance(a, Graph)]
    return total


def _picture(graphs: Mapping[str, Graph], name: str) -> str | None:
    from lstm_ir.view.picture import picture  # of graphs, as above

    if _count(graphs.values()) > NODES:
        return None
    return picture([(f"@{name}, {entry}" if entry else f"@{name}", g) for entry, g in graphs.items()])


def _tables(graphs: Mapping[str, Graph], head: str) -> str:
    parts = []
    for entry, g in list(graphs.items())[:ROWS]:
        ops: dict[str, int] = {}
        for n in g.nodes:
            ops[n.op.name] = ops.get(n.op.name, 0) + 1
        rows = [("input", n, str(p.type)) for n, p in zip(g.input_names, g.params, strict=True)]
        rows += [("output", n, str(v.type)) for n, v in zip(g.output_names, g.outputs, strict=True)]
        parts.append(_table(entry, rows))
        often = sorted(ops.items(), key=lambda kv: -kv[1])[:12]
        parts.append(_line(f"{len(g.nodes)} nodes: {', '.join(f'{k} x{n}' for k, n in often)}"))
    parts.append(_line("too large to be drawn here; lstm-ir show -o FILE.svg draws it"))
    return _block(head, parts)


def _entry(name: str, e: Entry) -> str:
    rows = [("input", p.name, str(p.type)) for p in e.inputs] + [("output", p.name, str(p.type)) for p in e.outputs]
    return _table(name, rows)


def _block(head: str, parts: Iterable[str]) -> str:
    return f"<div><b>{_shown(head)}</b>{''.join(parts)}</div>"


def _line(text: str) -> str:
    return f"<div>{_shown(text)}</div>"


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    shown = "".join(f"<tr>{''.join(f'<td>{_shown(c)}</td>' for c in row)}</tr>" for row in rows[:ROWS])
    more = f"<tr><td>and {len(rows) - ROWS} more</td></tr>" if len(rows) > ROWS else ""
    caption = f"<caption>{_shown(title)}</caption>" if title else ""
    return f"<table>{caption}{shown}{more}</table>"


def _shown(text: str) -> str:
    short = text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"
    return escape("".join(c if c.isprintable() else "�" for c in short))
