"""Colours of pictures, for light and dark surroundings: a kind of node keeps its hue, and text its contrast."""

from __future__ import annotations

from collections.abc import Iterator

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


def style() -> str:
    """The style sheet of a picture: light colours, and dark ones where the reader asks for them."""
    plain = (
        "text{font:10.5px ui-monospace,Menlo,Consolas,monospace}.p{font-size:9px}.t{font-weight:bold}"
        "tspan{font-weight:normal}path{fill:none;stroke-width:1}rect{stroke-width:1}.b{stroke-dasharray:5 3}"
    )
    return f"{plain}{''.join(_rules(0))}@media (prefers-color-scheme:dark){{{''.join(_rules(1))}}}"


def _rules(mode: int) -> Iterator[str]:
    yield f"text{{fill:{TEXT[mode]}}}.d,.p{{fill:{DIM[mode]}}}"
    yield f".g{{fill:{GROUND[mode]};stroke:none}}rect{{stroke:{BORDER[mode]}}}path{{stroke:{LINE[mode]}}}"
    yield f".b{{stroke:{BACK[mode]}}}.a{{fill:{BACK[mode]};stroke:none}}"
    for kind, fills in KINDS.items():
        yield f".k-{kind}{{fill:{fills[mode]}}}"
    for i, fills in enumerate(TIMES):
        yield f".s{i}{{fill:{fills[mode]}}}"
    yield f".h{{fill:{TEXT[mode]}}}"
