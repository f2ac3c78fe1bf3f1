"""A graph as an SVG picture: layers from top to bottom, bodies of loops drawn inside their node."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree as ET

from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import IRError
from lstm_ir.ir.foreign_errors import refusals_become
from lstm_ir.ir.graph import Arg, Graph, Node
from lstm_ir.ir.opdef import Level, Trait
from lstm_ir.view.networks import to_networkx

CHAR, LINE, PAD, GAP, RISE = 6.7, 15, 8, 18, 34  # pixels: letters, lines, inside, beside, between
LIMIT = 400  # nodes; long edges get bends only below it, where they can still be told apart
FILL = {
    "input": "#d7e8fa", "output": "#d7e8fa", "weight": "#f6e3b4", "constant": "#eeeeee",
    "recurrent": "#cdebd0", "loop": "#eef7ee", "elementwise": "#ffffff", "shape": "#f4f4f8",
    "product": "#fbdcd2", "other": "#ffffff",
}  # fmt: skip
STYLE = (
    "text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#222}"
    ".t{font-weight:bold}.d{fill:#666}path{fill:none;stroke:#888}rect{stroke:#777}"
)


@dataclass
class Box:
    """A node with its place; a bend of a long edge has no node."""

    lines: tuple[str, ...] = ()
    kind: str = "other"
    title: str = ""
    inner: Drawing | None = None
    x: float = 0.0  # centre
    y: float = 0.0  # top
    w: float = 2.0
    h: float = 0.0


@dataclass
class Drawing:
    """Boxes with places, and the chains of boxes that edges pass through."""

    width: float
    height: float
    boxes: list[Box]
    edges: list[tuple[list[Box], str]] = field(default_factory=list)


@refusals_become(IRError, "picture")
def picture(graphs: Sequence[tuple[str, Graph]]) -> str:
    """SVG text with the graphs side by side under their titles: `[("before", g), ("after", h)]`."""
    drawings = [(title, draw(g)) for title, g in graphs]
    gap = 40.0
    widths = [max(d.width, len(title) * CHAR) for title, d in drawings]
    width = sum(widths) + gap * (len(drawings) + 1)
    height = max(d.height for _, d in drawings) + 60
    svg = ET.Element(
        "svg", xmlns="http://www.w3.org/2000/svg", width=_n(width), height=_n(height),
        viewBox=f"0 0 {_n(width)} {_n(height)}",
    )  # fmt: skip
    ET.SubElement(svg, "style").text = STYLE
    ET.SubElement(svg, "rect", width="100%", height="100%", fill="#fff", style="stroke:none")
    x = gap
    for (title, d), w in zip(drawings, widths, strict=True):
        ET.SubElement(svg, "text", {"class": "t"}, x=_n(x), y="24").text = title
        _render(ET.SubElement(svg, "g", transform=f"translate({_n(x)},40)"), d)
        x += w + gap
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def draw(graph: Graph) -> Drawing:
    """Places for every node: layers by longest path, order in a layer by neighbours' places."""
    import networkx as nx

    net = to_networkx(graph)
    boxes: dict[Any, Box] = {n: _box(n) for n in graph.nodes}
    labels: dict[tuple[Any, Any], str] = {}
    for a, b, edge in net.edges(data=True):
        labels[a, b] = _edge_label(a, edge["value"].index)
    for name, v in zip(graph.output_names, graph.outputs, strict=True):
        boxes[name] = _sized(Box((f"→ {name}", str(v.type)), "output", f"output {name}: {v.type}"))
        labels[v.node, name] = _edge_label(v.node, v.index)
    plain = nx.DiGraph()
    plain.add_nodes_from(boxes)
    plain.add_edges_from(labels)
    layers = [list(g) for g in nx.topological_generations(plain)]
    _sink_leaves(plain, layers)
    rank = {n: i for i, layer in enumerate(layers) for n in layer}
    chains = _bends(layers, rank, labels, boxes)
    _order(layers, chains)
    width, height = _place(layers, boxes)
    edges = [([boxes[k] for k in chain], labels[chain[0], chain[-1]]) for chain in chains]
    return Drawing(width, height, [boxes[k] for layer in layers for k in layer], edges)


def _sink_leaves(plain: Any, layers: list[list[Any]]) -> None:
    """Weights and constants stand right above what reads them, not all in the first row."""
    rank = {n: i for i, layer in enumerate(layers) for n in layer}
    for n in list(layers[0]) if layers else []:
        if isinstance(n, Node) and n.op.name in ("weight", "constant"):
            readers = [rank[m] for m in plain.successors(n)]
            if readers and min(readers) > 1:
                layers[0].remove(n)
                layers[min(readers) - 1].append(n)


def _bends(
    layers: list[list[Any]], rank: dict[Any, int], edges: dict[tuple[Any, Any], str],
    boxes: dict[Any, Box],
) -> list[list[Any]]:  # fmt: skip
    """Each edge as a chain of keys; an edge over several layers gets a bend in each."""
    bend = len(boxes) <= LIMIT
    chains = []
    for a, b in edges:
        chain = [a]
        for level in range(rank[a] + 1, rank[b]) if bend else ():
            key = ("bend", a, b, level)
            boxes[key] = Box()
            layers[level].append(key)
            chain.append(key)
        chains.append([*chain, b])
    return chains


def _order(layers: list[list[Any]], chains: list[list[Any]]) -> None:
    """Sweeps down and up; each layer sorted by the mean place of its neighbours."""
    above: dict[Any, list[Any]] = {}
    below: dict[Any, list[Any]] = {}
    for chain in chains:
        for a, b in itertools.pairwise(chain):
            above.setdefault(b, []).append(a)
            below.setdefault(a, []).append(b)
    at = {k: i for layer in layers for i, k in enumerate(layer)}
    for sweep in range(6):
        near = above if sweep % 2 == 0 else below
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            mean = {k: statistics.fmean(at[m] for m in near[k]) if k in near else at[k]
                    for k in layer}  # fmt: skip
            layer.sort(key=mean.__getitem__)
            at.update((k, i) for i, k in enumerate(layer))


def _place(layers: list[list[Any]], boxes: dict[Any, Box]) -> tuple[float, float]:
    widths = [sum(boxes[k].w + GAP for k in layer) - GAP for layer in layers]
    width = max([*widths, 40.0])
    y = 0.0
    for layer, own in zip(layers, widths, strict=True):
        x = (width - own) / 2
        tall = max((boxes[k].h for k in layer), default=0.0)
        for k in layer:
            b = boxes[k]
            b.x, b.y = x + b.w / 2, y
            x += b.w + GAP
        for k in layer:
            if not boxes[k].lines:
                boxes[k].h = tall  # an edge passes a layer straight down
        y += tall + RISE
    return width, y


def _box(n: Node) -> Box:
    name = str(n.attrs["name"]) if n.op.name in ("parameter", "weight") else n.op.name
    types = [str(t) for t in n.types[:3]] + ["…"] * (len(n.types) > 3)
    inner = next((draw(a) for a in n.attrs.values() if isinstance(a, Graph)), None)
    return _sized(Box((name, *_attributes(n), *types), _kind(n), _title(n), inner))


def _sized(b: Box) -> Box:
    b.w = max(len(line) for line in b.lines) * CHAR + 2 * PAD
    b.h = len(b.lines) * LINE + PAD
    if b.inner is not None:
        b.w = max(b.w, b.inner.width + 2 * PAD)
        b.h += b.inner.height
    return b


def _attributes(n: Node) -> Iterator[str]:
    """What distinguishes this node, short; the tooltip has everything."""
    for key, spec in n.op.attrs.items():
        value = n.attrs[key]
        if key in ("name", "shape") or isinstance(value, (Graph, Data)) or value == spec.default:
            continue
        text = f"{key}={_short(value)}"
        yield text if len(text) <= 34 else text[:33] + "…"


def _short(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _title(n: Node) -> str:
    given = zip(n.op.operands, n.args, strict=True)
    operands = ", ".join(f"{o.name}: {_arg(a)}" for o, a in given)
    attrs = ", ".join(f"{k}={_short(v)}" for k, v in n.attrs.items()
                      if not isinstance(v, (Graph, Data)))  # fmt: skip
    results = ", ".join(map(str, n.types))
    return f"{n.op.name}({operands}) {{{attrs}}} : {results}\n{n.loc}"


def _arg(arg: Arg) -> str:
    if arg is None:
        return "None"
    return f"[{', '.join(str(v.type) for v in arg)}]" if isinstance(arg, tuple) else str(arg.type)


def _kind(n: Node) -> str:
    known = {"parameter": "input", "weight": "weight", "constant": "constant", "scan": "loop",
             "dot_general": "product"}  # fmt: skip
    if n.op.name in known:
        return known[n.op.name]
    if n.op.level is not Level.primitive:
        return "recurrent"
    if Trait.elementwise in n.op.traits:
        return "elementwise"
    return "shape" if Trait.data_movement in n.op.traits else "other"


def _edge_label(n: Any, index: int) -> str:
    """The result's name, where an op has several."""
    if isinstance(n, Node) and len(n.values) > 1:
        names = [k for k, t in n.results for _ in (t if isinstance(t, tuple) else (t,))]
        return names[index]
    return ""


def _render(parent: ET.Element, d: Drawing) -> None:
    for chain, label in d.edges:
        _edge(parent, chain, label)
    for b in d.boxes:
        if b.lines:
            _node(parent, b)


def _edge(parent: ET.Element, chain: list[Box], label: str) -> None:
    first = chain[0]
    parts = [f"M{_n(first.x)} {_n(first.y + first.h)}"]
    for a, b in itertools.pairwise(chain):
        mid = (a.y + a.h + b.y) / 2
        parts.append(f"C{_n(a.x)} {_n(mid)} {_n(b.x)} {_n(mid)} {_n(b.x)} {_n(b.y)}")
        if not b.lines:
            parts.append(f"V{_n(b.y + b.h)}")
    ET.SubElement(parent, "path", d="".join(parts))
    if label:
        b = chain[1]
        x, y = first.x + (b.x - first.x) * 0.2 + 3, first.y + first.h + RISE * 0.4
        ET.SubElement(parent, "text", {"class": "d"}, x=_n(x), y=_n(y)).text = label


def _node(parent: ET.Element, b: Box) -> None:
    g = ET.SubElement(parent, "g")
    ET.SubElement(g, "title").text = b.title
    left = b.x - b.w / 2
    ET.SubElement(g, "rect", x=_n(left), y=_n(b.y), width=_n(b.w), height=_n(b.h), rx="4", fill=FILL[b.kind])
    for i, line in enumerate(b.lines):
        style, down = "t" if i == 0 else "d", b.y + LINE * (i + 0.9)
        place = {"class": style, "x": _n(left + PAD), "y": _n(down)}
        ET.SubElement(g, "text", place).text = line
    if b.inner is not None:
        x, y = b.x - b.inner.width / 2, b.y + len(b.lines) * LINE + PAD
        _render(ET.SubElement(g, "g", transform=f"translate({_n(x)},{_n(y)})"), b.inner)


def _n(x: float) -> str:
    return f"{x:.1f}".removesuffix(".0")
