"""Graphs as an SVG picture: layers from top to bottom, bodies of loops inside their node, or beside where one stands
for several; light, and dark where the reader's surroundings are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from lstm_ir.ir.errors import IRError
from lstm_ir.ir.foreign_errors import refusals_become
from lstm_ir.ir.graph import Graph, Node
from lstm_ir.view.colours import SCOPE, TIMES, style
from lstm_ir.view.drawing import CHAR, Box, Coloured, Drawing, Line, Sheet
from lstm_ir.view.folding import Folded

MARGIN, HEAD, SCREEN = 16.0, 30.0, 1600.0  # pixels: around panels, of a title, where a row of panels ends
SHOWN = 200  # letters of a title or of a word


@dataclass
class _Panel:
    """A drawing under its title, and its place."""

    title: str
    drawing: Drawing
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return max(self.drawing.width, len(self.title[:SHOWN]) * CHAR)


@refusals_become(IRError, "picture")
def picture(
    graphs: Sequence[tuple[str, Graph]], times: Mapping[Node, Coloured] | None = None, legend: Sequence[str] = ()
) -> str:
    """SVG text with the graphs side by side under their titles: `[("before", g), ("after", h)]`.

    times: of nodes, the step of the scale of colours and the words for it; legend: what each step means.
    """
    panels = list(_panels(graphs, times))
    width, height = _arranged(panels)
    width = max(width, *(2 * MARGIN + 20 + len(t) * CHAR for t in legend)) if legend else width
    rows = _legend_rows(legend, width)
    below = HEAD * len(rows)
    svg = ET.Element(
        "svg", {"class": SCOPE}, xmlns="http://www.w3.org/2000/svg", width=number(width), height=number(height + below),
        viewBox=f"0 0 {number(width)} {number(height + below)}",
    )  # fmt: skip
    ET.SubElement(svg, "style").text = style()
    ET.SubElement(svg, "rect", {"class": "g"}, width="100%", height="100%")
    for p in panels:
        ET.SubElement(svg, "text", {"class": "t"}, x=number(p.x), y=number(p.y + 18)).text = printable(p.title[:SHOWN])
        place = f"translate({number(p.x)},{number(p.y + HEAD)})"
        _render(ET.SubElement(svg, "g", transform=place), p.drawing)
    _legend(svg, rows, height)
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _panels(graphs: Sequence[tuple[str, Graph]], times: Mapping[Node, Coloured] | None) -> Iterator[_Panel]:
    folded = Folded([g for _, g in graphs] if times is None else [])  # equal bodies take different times
    sheet = Sheet(folded, times)
    for title, g in graphs:
        yield _Panel(title, sheet.draw(g))
    for letter, loop, count in folded.bodies:
        yield _Panel(f"body {letter} of {count} loops, x{count} (sizes of the first)", sheet.draw(loop.body, loop))


def _arranged(panels: list[_Panel]) -> tuple[float, float]:
    """Panels in rows of a screen's width. The size of all."""
    x, y, low, wide = MARGIN, 0.0, 0.0, 0.0
    for p in panels:
        if x > MARGIN and x + p.width + MARGIN > SCREEN:
            x, y = MARGIN, low
        p.x, p.y = x, y
        x += p.width + MARGIN
        wide, low = max(wide, x), max(low, y + HEAD + p.drawing.height + MARGIN)
    return max(wide, 2 * MARGIN), low


def drawings(graphs: Sequence[tuple[str, Graph]]) -> list[Drawing]:
    """The drawings of a picture's panels, each in a frame of its own: for what looks at their geometry."""
    return [p.drawing for p in _panels(graphs, None)]


def _render(parent: ET.Element, d: Drawing) -> None:
    """Boxes under lines: a line begins and ends at the edge of a box, and passes none."""
    for b in d.boxes:
        _node(parent, b)
    for line in d.lines:
        _line(parent, line)


def _line(parent: ET.Element, line: Line) -> None:
    if line.back:
        path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in line.points)
        ET.SubElement(parent, "path", {"class": "b"}, d=path)
        (x, y) = line.points[-1]
        ET.SubElement(parent, "path", {"class": "a"}, d=f"M{number(x)} {number(y)}l-3 -6h6z")
        return
    parts = []
    for i, (x, y) in enumerate(line.points):
        if i == 0:
            parts.append(f"M{number(x)} {number(y)}")
        elif i % 2:
            parts.append(f"V{number(y)}")
        else:
            before = line.points[i - 1]
            mid = number((before[1] + y) / 2)
            parts.append(f"C{number(before[0])} {mid} {number(x)} {mid} {number(x)} {number(y)}")
    ET.SubElement(parent, "path", d="".join(parts))


def _node(parent: ET.Element, b: Box) -> None:
    g = ET.SubElement(parent, "g")
    ET.SubElement(g, "title").text = printable(b.title)
    place = {"x": number(b.x), "y": number(b.y), "width": number(b.w), "height": number(b.h), "rx": "4"}
    ET.SubElement(g, "rect", {"class": b.style, **place})
    for t in b.texts:
        given = {"class": t.style} if t.style else {}
        word = ET.SubElement(g, "text", given, x=number(t.x), y=number(t.y))
        word.text = printable(t.text[:SHOWN])
        if t.tail:  # of the same text, so that it stands behind the word in every font
            dim = "h" if "h" in t.style.split() else "d"
            ET.SubElement(word, "tspan", {"class": dim, "dx": number(CHAR)}).text = printable(t.tail[:SHOWN])
    if b.inner is not None:
        _render(g, b.inner)


Words = tuple[int, str, float]
"""A step of the scale or a sentence behind it: its number, the words, how far from the left they stand."""


def _legend_rows(legend: Sequence[str], width: float) -> list[list[Words]]:
    """The words in rows that fit the picture's width; a sentence that fits no row stands alone."""
    rows: list[list[Words]] = []
    x = MARGIN
    for i, words in enumerate(legend):
        long = 20 + len(words) * CHAR
        if not rows or x + long > width:
            rows.append([])
            x = MARGIN
        rows[-1].append((i, words, x))
        x += long + 20
    return rows


def _legend(svg: ET.Element, rows: Sequence[Sequence[Words]], top: float) -> None:
    for row, several in enumerate(rows):
        y = top + row * HEAD
        for i, words, x in several:
            if i < len(TIMES):
                place = {"x": number(x), "y": number(y), "width": "14", "height": "14", "rx": "3"}
                ET.SubElement(svg, "rect", {"class": f"s{i}", **place})
            ET.SubElement(svg, "text", x=number(x + 20), y=number(y + 11)).text = words


def printable(text: str) -> str:
    """The text without signs that XML does not have; names may hold any."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def number(x: float) -> str:
    """A length as SVG has it."""
    return f"{x:.1f}".removesuffix(".0")
