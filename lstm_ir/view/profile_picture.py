"""Where the time of a call goes, as an SVG picture: one bar per part, longest first."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from lstm_ir.view.colours import SCOPE, style
from lstm_ir.view.drawing import CHAR, LINE
from lstm_ir.view.picture import number, printable

BAR, LEFT, GAP = 420.0, 16.0, 10.0  # pixels: the longest bar, the margin, between parts
STYLES = ("k-recurrent", "k-constant")  # a dispatch, what is outside of them


def bars(title: str, parts: Sequence[tuple[str, str, float]], outside: float = 0.0) -> str:
    """SVG text; `parts` are (name, nodes and lines, seconds), `outside` seconds of nothing named."""
    shown = [(n, w, s, STYLES[0]) for n, w, s in parts]
    if outside > 0:
        shown.append(("outside dispatches", "", outside, STYLES[1]))
    total = sum(s for *_, s, _ in shown)
    longest = max((s for *_, s, _ in shown), default=0.0)
    texts = [title, *(n for n, *_ in shown), *(w for _, w, *_ in shown)]
    width = 2 * LEFT + max(BAR + 24 * CHAR, *(len(t) * CHAR for t in texts))
    step = 2 * LINE + LINE + GAP
    height = 48 + step * len(shown)
    svg = ET.Element(
        "svg", {"class": SCOPE}, xmlns="http://www.w3.org/2000/svg", width=number(width), height=number(height),
        viewBox=f"0 0 {number(width)} {number(height)}",
    )  # fmt: skip
    ET.SubElement(svg, "style").text = style()
    ET.SubElement(svg, "rect", {"class": "g"}, width="100%", height="100%")
    ET.SubElement(svg, "text", {"class": "t"}, x=number(LEFT), y="24").text = printable(title)
    for i, (name, where, seconds, kind) in enumerate(shown):
        g = ET.SubElement(svg, "g", transform=f"translate({number(LEFT)},{number(40 + i * step)})")
        share = seconds / total if total else 0.0
        ET.SubElement(g, "title").text = printable(f"{name}\n{where}\n{seconds * 1e6:.1f} us, {share:.1%}")
        long = BAR * seconds / longest if longest else 0.0
        ET.SubElement(g, "rect", {"class": kind}, width=number(max(long, 1.0)), height=number(LINE), rx="3")
        at = {"x": number(long + 6), "y": number(LINE - 3)}
        ET.SubElement(g, "text", at).text = f"{seconds * 1e3:.3f} ms  {share:.1%}"
        ET.SubElement(g, "text", {"class": "t", "y": number(2 * LINE - 2)}).text = printable(name)
        ET.SubElement(g, "text", {"class": "d", "y": number(3 * LINE - 3)}).text = printable(where)
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"
