"""What `print` shows of an executable."""

from __future__ import annotations

import lstm_ir as li
from lstm_ir.view.summary import LETTERS


def test_an_executable_in_a_few_lines() -> None:
    x, h = li.input("x", ("B", 2)), li.input("h", ("B", 2))
    graph = li.Graph("sums", [x, h], {"y": x + h, "h_n": x - h})
    with li.compile(li.stateful(graph, {"h": "h_n"}).only("main", "step", "reset")) as exe:
        assert str(exe).splitlines() == [
            f"program @sums, compiled for {exe.target}, on cpu",
            "  main   x: f32[B,2], h: f32[B,2] -> y: f32[B,2], h_n: f32[B,2]",
            "  step   x: f32[B,2] -> y: f32[B,2]",
            "  reset  nothing -> nothing",
            "state: h: f32[B,2]",
        ]


def test_long_lines_are_cut() -> None:
    x = li.input("x", (2,))
    graph = li.Graph("wide", [x], {f"output{i}": x + float(i) for i in range(40)})
    with li.compile(graph) as exe:
        (line,) = str(exe).splitlines()[1:]
    assert len(line) == LETTERS
    assert line.startswith("  main  x: f32[2] -> output0: f32[2], ")
    assert line.endswith("…")
