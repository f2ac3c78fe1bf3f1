"""What a notebook shows of a graph, a program and an executable: bounded, and escaped."""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
from drawn_models import trained, written_gru

import lstm_ir as li
from lstm_ir.view.notebook import NODES


def html(text: str | None) -> str:
    """The text, which is one element of well formed HTML."""
    assert text is not None
    ET.fromstring(text)
    return text


def long(count: int, name: str = "long") -> li.Graph:
    x = li.input("x", (3,))
    v = x
    for _ in range(count):
        v = li.tanh(v)
    return li.Graph(name, [x], {"y": v})


def test_a_graph_is_a_picture() -> None:
    graph: Any = written_gru()
    svg = graph._repr_svg_()
    assert ET.fromstring(svg).tag.endswith("svg")
    assert "@gru" in svg
    assert graph._repr_html_() is None  # which notebooks would show instead


def test_a_program_is_a_picture_of_its_entries() -> None:
    program: Any = trained()
    shown = program._repr_svg_()
    large = shown is None
    assert large == (sum(_nodes(g) for g in program.entries.values()) > NODES)
    text = html(program._repr_html_()) if large else shown
    for entry in program.entries:
        assert entry in text
    small: Any = li.Program("two", {"a": long(3), "b": long(4)})
    assert "@two, a" in small._repr_svg_()


def _nodes(graph: li.Graph) -> int:
    inner = [a for n in graph.nodes for a in n.attrs.values() if isinstance(a, li.Graph)]
    return len(graph.nodes) + sum(map(_nodes, inner))


def test_a_large_graph_is_a_table() -> None:
    graph: Any = long(NODES + 1, "a<b")
    assert graph._repr_svg_() is None
    text = html(graph._repr_html_())
    assert len(text) < 5_000
    assert "a&lt;b" in text
    assert f"tanh x{NODES + 1}" in text
    assert "lstm-ir show -o FILE.svg" in text


def test_a_table_is_bounded() -> None:
    values = [li.input(f"x{i}", (2,)) for i in range(600)]
    graph: Any = li.Graph("many", values, {f"y{i}": v for i, v in enumerate(values)})
    text = html(graph._repr_html_())
    assert len(text) < 8_000
    assert "and 1160 more" in text


def test_an_executable_says_what_it_takes_and_where_it_runs() -> None:
    x = li.input("<x>\0&", (2, 3))
    h0 = li.input("h0", (2, 3))
    h = li.tanh(x + h0 * li.weight("w", np.ones((2, 3), "f4")))
    graph = li.Graph("my-graph", [x, h0], {"h": h, "y": h * 2.0})
    program = li.Program(
        "my-graph", {"main": graph}, {"h": li.State("h", li.Data.of(np.zeros((2, 3), "f4")))},
        {"main": ({"h0": "h"}, {"h": "h"})},
    )  # fmt: skip
    with li.compile(program) as exe:
        shown: Any = exe
        text = html(shown._repr_html_())
    for part in ("my-graph", "&lt;x&gt;\ufffd&amp;", "f32[2,3]", "1 weights, 24 bytes", "compiled for cpu", "state"):
        assert part in text


def test_pictures_are_not_imported_before_they_are_asked_for() -> None:
    code = """
import sys, lstm_ir as li
x = li.input('x', (3,)); g = li.Graph('g', [x], {'y': x}); str(g); repr(g)
assert not any(m.startswith('lstm_ir.view') for m in sys.modules)
assert g._repr_svg_().startswith('<svg') and 'networkx' not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
