"""Colours of pictures, for light and dark surroundings: a kind of node keeps its hue, and text its contrast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

KINDS = {
    "input": ("#d7e8fa", "#1d3a5c"),
    "weight": ("#f6e3b4", "#5a4712"),
    "constant": ("#e4e4e4", "#414141"),
    "recurrent": ("#c3e8c8", "#1f5230"),
    "loop": ("#eaf6ea", "#142e1b"),
    "elementwise": ("#ffffff", "#1b1e24"),
    "shape": ("#e9e4f7", "#352f57"),
    "product": ("#fbd5c9", "#6b2d1b"),
}
"""Fill of a kind of node: light, dark."""
TIMES = (
    ("#fff6d0", "#3d371c"), ("#fde19a", "#5a441a"), ("#fbbf66", "#774716"), ("#f29a59", "#8f3c17"),
    ("#e8785c", "#a82d1e"),
)  # fmt: skip
"""Fill by share of time: little to much."""
GROUND, TEXT, DIM = ("#ffffff", "#121418"), ("#1a1a1a", "#f4f4f4"), ("#484848", "#cfcfcf")
LINE, BORDER, BACK = ("#8a8a8a", "#8d939c"), ("#777777", "#7d838c"), ("#1f7a3d", "#5fd28a")


SCOPE = "lir"
"""The class of a picture. Rules hold within it alone: a notebook puts pictures into its own page."""
_PLAIN = (
    ("text", "font:10.5px ui-monospace,Menlo,Consolas,monospace"), (".p", "font-size:9px"), (".t", "font-weight:bold"),
    ("tspan", "font-weight:normal"), ("path", "fill:none;stroke-width:1"), ("rect", "stroke-width:1"),
    (".b", "stroke-dasharray:5 3"),
)  # fmt: skip


def style() -> str:
    """The style sheet of a picture: light colours, and dark ones where the reader asks for them."""
    return f"{_sheet(_PLAIN)}{_sheet(_rules(0))}@media (prefers-color-scheme:dark){{{_sheet(_rules(1))}}}"


def _sheet(rules: Iterable[tuple[str, str]]) -> str:
    return "".join(f".{SCOPE} {selector}{{{body}}}" for selector, body in rules)


def _rules(mode: int) -> Iterator[tuple[str, str]]:
    yield from (("text", f"fill:{TEXT[mode]}"), (".d", f"fill:{DIM[mode]}"), (".p", f"fill:{DIM[mode]}"))
    yield from ((".g", f"fill:{GROUND[mode]};stroke:none"), ("rect", f"stroke:{BORDER[mode]}"))
    yield from (("path", f"stroke:{LINE[mode]}"), (".b", f"stroke:{BACK[mode]}"))
    yield ".a", f"fill:{BACK[mode]};stroke:none"
    yield from ((f".k-{kind}", f"fill:{fills[mode]}") for kind, fills in KINDS.items())
    yield from ((f".s{i}", f"fill:{fills[mode]}") for i, fills in enumerate(TIMES))
    yield ".h", f"fill:{TEXT[mode]}"
