"""What a picture says: operands at their box, equal bodies once, a model on one screen, colours in light and dark."""

from __future__ import annotations

import colorsys
import re
from itertools import combinations
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from drawn_models import decoder, scheduled, three_layers, weight, written_gru

import lstm_ir as li
from lstm_ir.view import colours
from lstm_ir.view.folding import Folded, structure
from lstm_ir.view.picture import picture

SVG = "{http://www.w3.org/2000/svg}"
MODES = ("light", "dark")


def texts(svg: str) -> list[str]:
    return [t.text or "" for t in ET.fromstring(svg).iter(f"{SVG}text")]


def size(svg: str) -> tuple[float, float]:
    root = ET.fromstring(svg)
    return float(root.get("width", "")), float(root.get("height", ""))


def test_the_scheduled_three_layer_bidirectional_model_fits_one_screen() -> None:
    svg = picture([("scheduled", scheduled(three_layers()))])
    width, height = size(svg)
    assert width <= 1600
    assert height <= 1000
    assert 'transform="scale' not in svg
    assert "font:10.5px" in svg


def test_equal_bodies_are_drawn_once() -> None:
    graph = scheduled(three_layers())
    said = texts(picture([("g", graph)]))
    assert said.count("tanh") == 2  # of one body, where three have six
    assert "body A of 3 loops, x3 (sizes of the first)" in said
    assert said.count("body A, drawn beside") == 3


def cell(activation: Any, order: tuple[int, int], width: int = 7) -> li.Graph:
    x, w = li.input("x", (11, 3, 2 * width)), weight("w", width, 2 * width)

    def step(h: Any, row: Any) -> Any:
        p = h @ w + row
        a, b = (p[:, k * width : (k + 1) * width] for k in order)
        h = activation(a) * b
        return h, h

    return li.Graph("g", [x], {"y": li.scan(step, li.zeros((3, width)), x)[1]})


def body(graph: li.Graph) -> li.Graph:
    (found,) = [n.attrs["body"] for n in graph.nodes if n.op.name == "scan"]
    assert isinstance(found, li.Graph)
    return found


def test_bodies_are_equal_where_ops_and_operands_are() -> None:
    same = structure(body(cell(li.tanh, (0, 1))))
    assert same == structure(body(cell(li.tanh, (0, 1))))
    assert same == structure(body(cell(li.tanh, (0, 1), 5))), "sizes do not count"
    assert same != structure(body(cell(li.sin, (0, 1)))), "another op"
    assert same != structure(body(cell(li.tanh, (1, 0)))), "the gates in another order"
    one = cell(li.tanh, (0, 1))
    assert Folded([one]).bodies == []
    assert [(a, n) for a, _, n in Folded([one, cell(li.tanh, (0, 1), 5), cell(li.sin, (0, 1))]).bodies] == [("A", 2)]


def test_operands_are_labelled_at_their_box_and_numbers_stand_there() -> None:
    x, y = li.input("x", (3, 5)), li.input("y", (3, 5))
    said = texts(picture([("g", li.Graph("g", [x, y], {"z": li.select(x > y, x - 0.5, li.tanh(y))}))]))
    for label in ("pred", "on_true", "on_false", "rhs=0.5"):
        assert label in said
    assert said.count("lhs") == 2  # of the comparison and of the difference; tanh has one operand
    assert not any(t.startswith(("constant", "broadcast_in_dim")) for t in said)
    said = texts(picture([("g", decoder())]))
    assert {"operand", "indices", "outer0", "carry0=0", "x0", "finals0", "ys0"} <= set(said)
    assert {"const encoded", "const q", "row x0", "carry0", "carry1"} <= set(said)  # in the body


def test_slices_and_products_are_written_as_users_write_them() -> None:
    said = texts(picture([("g", written_gru())]))
    assert "[:, :64]" in said
    assert "[:, 64:]" in said
    assert "ba,ac->bc" in said


@pytest.mark.parametrize("shapes", [("bij,bkj->bik"), ("ij,jk->ik"), ("abij,abjk->abik"), ("ijk,kjl->il")])
def test_a_product_reads_as_its_einsum(shapes: str) -> None:
    rng = np.random.default_rng(5)
    sizes = dict(zip("abijkl", (2, 3, 4, 5, 6, 7), strict=True))
    left, right = shapes.split("->")[0].split(",")
    arrays = [rng.standard_normal([sizes[c] for c in side]).astype("f4") for side in (left, right)]
    values = [li.input(n, a.shape) for n, a in zip("xy", arrays, strict=True)]
    graph = li.Graph("g", values, {"z": li.einsum(shapes, *values)})
    (node,) = [n for n in graph.nodes if n.op.name == "dot_general"]
    (said,) = [t for t in texts(picture([("g", graph)])) if re.fullmatch(r"\w+,\w+->\w*", t)]
    inner = li.Graph("p", values, {"z": node.values[0]})
    if all(v.op == "parameter" for v in node.inputs):
        got = li.interpret(inner, x=arrays[0], y=arrays[1])["z"]
        order = [arrays["xy".index(str(v.node.attrs["name"]))] for v in node.inputs]
        np.testing.assert_allclose(got, np.einsum(said, *order), rtol=1e-4, atol=1e-5)


def test_names_of_any_letters_are_escaped() -> None:
    x = li.input('<x>&"\0', (2,))
    svg = picture([("<t>", li.Graph("g", [x], {"</text>": x * li.weight("w\x07", np.ones(2, "f4"))}))])
    said = texts(svg)
    assert "<t>" in said
    assert any(t.startswith('<x>&"\ufffd') for t in said)
    assert "→ </text>" in said


def test_names_are_cut_and_stand_in_the_tooltip() -> None:
    name = "encoder/" * 40
    x = li.input(name, (2,))
    svg = picture([("g", li.Graph("g", [x], {name: li.tanh(x)}))])
    assert size(svg)[0] < 600
    assert all(len(t) < 60 for t in texts(svg))
    assert svg.count(name) >= 2


def test_a_graph_of_nothing_and_one_of_many_nodes() -> None:
    assert size(picture([("none", li.Graph("none", [], {}))]))[0] > 0
    x = li.input("x", (3,))
    v = x
    for _ in range(1500):
        v = li.tanh(v) + x
    width, height = size(picture([("long", li.Graph("long", [x], {"y": v}))]))
    assert height > 20_000
    assert width < 2_000


# -- colours


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.1."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def rules(mode: str) -> dict[str, str]:
    """Class -> fill, as the style sheet gives it in that mode; `text` and `.d` too."""
    light, dark = colours.style().split("@media (prefers-color-scheme:dark){")
    found: dict[str, str] = {}
    for part in (light, dark) if mode == "dark" else (light,):
        found.update(re.findall(r"\.lir ([^{}]+)\{fill:(#\w+)", part))
    return found


def test_rules_hold_within_the_picture_alone() -> None:
    """A notebook puts the picture into its page: a rule for every `path` would change the page's own."""
    assert ET.fromstring(picture([("g", written_gru())])).get("class") == "lir"
    sheet = colours.style().replace("@media (prefers-color-scheme:dark){", "")
    selectors = re.findall(r"([^{}]+)\{[^{}]*\}", sheet)
    assert len(selectors) > 30
    assert all(s.startswith(".lir ") and "," not in s for s in selectors)


@pytest.mark.parametrize("mode", MODES)
def test_text_can_be_read_in_both_modes(mode: str) -> None:
    fill = rules(mode)
    boxes = [f".k-{k}" for k in colours.KINDS]
    for name in [*boxes, ".g"]:
        for word in ("text", ".d", ".p"):
            assert contrast(fill[word], fill[name]) >= 4.5, (mode, name, word)
    for i in range(len(colours.TIMES)):
        assert contrast(fill["text"], fill[f".s{i}"]) >= 4.5
        assert contrast(fill[".h"], fill[f".s{i}"]) >= 4.5


def hue(colour: str) -> tuple[float, float]:
    """Hue in degrees, and saturation."""
    h, _, s = colorsys.rgb_to_hls(*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)))
    return 360 * h, s


def test_a_kind_keeps_its_hue_in_dark_mode() -> None:
    for kind, (light, dark) in colours.KINDS.items():
        (a, strong), (b, _) = hue(light), hue(dark)
        if strong > 0.1 and kind != "elementwise":
            assert min(abs(a - b), 360 - abs(a - b)) < 25, kind


@pytest.mark.parametrize("mode", MODES)
def test_kinds_differ_from_each_other_in_both_modes(mode: str) -> None:
    fill = rules(mode)
    for a, b in combinations(colours.KINDS, 2):
        pair = [[int(fill[f".k-{k}"][i : i + 2], 16) for i in (1, 3, 5)] for k in (a, b)]
        assert sum(abs(x - y) for x, y in zip(*pair, strict=True)) >= 24, (mode, a, b)
    steps = [luminance(fill[f".s{i}"]) for i in range(len(colours.TIMES))]
    assert len({round(s, 3) for s in steps}) == len(steps)


def test_a_line_can_be_seen_in_both_modes() -> None:
    for mode, at in zip(MODES, (0, 1), strict=True):
        for colour in (colours.LINE, colours.BACK):
            assert contrast(colour[at], colours.GROUND[at]) >= 3, mode
