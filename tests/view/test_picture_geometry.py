"""Where boxes, lines and words of a picture lie: no line runs under a box, no word over another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations, pairwise

import pytest
import zoo
from drawn_models import models, scheduled
from hypothesis import HealthCheck, given, settings
from random_graphs import graphs

import lstm_ir as li
from lstm_ir.ir.loop import Loop
from lstm_ir.view.drawing import Box, Drawing, Line
from lstm_ir.view.picture import drawings

Point = tuple[float, float]
Rectangle = tuple[float, float, float, float]  # left, top, right, bottom
TOUCH = 0.6  # pixels by which a line may enter a box: where it begins and ends
PIECES = 24  # of a curve


@cache
def named(name: str) -> li.Graph:
    return ALL[name]


ALL = models()


def corners(b: Box) -> Rectangle:
    return b.x, b.y, b.x + b.w, b.y + b.h


def polyline(line: Line) -> list[Point]:
    """Points so close that the line between them is the curve."""
    if line.back:
        return line.points
    out: list[Point] = []
    for i, ((x0, y0), (x1, y1)) in enumerate(pairwise(line.points)):
        if i % 2 == 0:
            assert x0 == pytest.approx(x1), "a straight piece is vertical"
            assert y1 >= y0 - 1e-6
            out += [(x0, y0), (x1, y1)]
            continue
        mid = (y0 + y1) / 2
        for k in range(PIECES + 1):
            t = k / PIECES
            a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
            out.append(((a + b) * x0 + (c + d) * x1, a * y0 + (b + c) * mid + d * y1))
    return out


def enters(p: Point, q: Point, r: Rectangle) -> bool:
    """Whether the piece from p to q has a point inside of the rectangle, its edge left out (Liang and Barsky)."""
    left, top, right, bottom = r[0] + TOUCH, r[1] + TOUCH, r[2] - TOUCH, r[3] - TOUCH
    low, high = 0.0, 1.0
    dx, dy = q[0] - p[0], q[1] - p[1]
    for step, room in ((-dx, p[0] - left), (dx, right - p[0]), (-dy, p[1] - top), (dy, bottom - p[1])):
        if step == 0:
            if room <= 0:
                return False
        elif step < 0:
            low = max(low, room / step)
        else:
            high = min(high, room / step)
    return low < high


def overlap(a: Rectangle, b: Rectangle) -> bool:
    return min(a[2], b[2]) - max(a[0], b[0]) > 0.01 and min(a[3], b[3]) - max(a[1], b[1]) > 0.01


def within(a: Rectangle, b: Rectangle) -> bool:
    return a[0] >= b[0] - 0.01 and a[1] >= b[1] - 0.01 and a[2] <= b[2] + 0.01 and a[3] <= b[3] + 0.01


def levels(d: Drawing) -> Iterator[Drawing]:
    yield d
    for b in d.boxes:
        if b.inner is not None:
            yield from levels(b.inner)


def words(b: Box) -> list[Rectangle]:
    """Rectangles of the letters, small words 7 pixels high, others 9."""
    return [(t.x, t.y - (7 if t.style.startswith("p") else 9), t.x + t.w, t.y) for t in b.texts]


def check(d: Drawing) -> None:
    for level in levels(d):
        for a, b in combinations(level.boxes, 2):
            assert not overlap(corners(a), corners(b)), f"{a.title} over {b.title}"
        for line in level.lines:
            for p, q in pairwise(polyline(line)):
                for b in level.boxes:
                    assert not enters(p, q, corners(b)), f"a line runs under {b.title}"
        for b in level.boxes:
            for a_, b_ in combinations(words(b), 2):
                assert not overlap(a_, b_), f"words over words in {b.title}"
            for word in words(b):
                assert within(word, corners(b)), f"a word outside of {b.title}"
            if b.inner is None:
                continue
            for inside in b.inner.boxes:
                assert within(corners(inside), corners(b))
                assert not any(overlap(corners(inside), word) for word in words(b))
            for line in b.inner.lines:
                points = polyline(line)
                assert all(within((x, y, x, y), corners(b)) for x, y in points)
                for p, q in pairwise(points):
                    assert not any(enters(p, q, word) for word in words(b))
    whole = (0.0, 0.0, d.width, d.height)
    for b in d.boxes:
        assert within(corners(b), whole)
    for line in d.lines:
        assert all(within((x, y, x, y), whole) for x, y in polyline(line))


@pytest.mark.parametrize("name", ALL)
def test_models(name: str) -> None:
    for d in drawings([("g", named(name))]):
        check(d)


@pytest.mark.parametrize("name", zoo.ZOO)
def test_the_zoo(name: str) -> None:
    graph = zoo.get(name).graph
    for d in drawings([("source", graph), ("scheduled", scheduled(graph))]):
        check(d)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_random_graphs(drawn: tuple[li.Graph, object]) -> None:
    for d in drawings([("g", drawn[0])]):
        check(d)


def test_a_line_through_a_box_is_found() -> None:
    """The check itself: a line moved onto a box, a box moved onto another, a word moved out."""
    (d,) = drawings([("g", named("gru"))])
    check(d)
    line, box = d.lines[0], d.boxes[-1]
    kept = line.points
    line.points = [(box.x + box.w / 2, box.y - 9), (box.x + box.w / 2, box.y + box.h + 9)]
    with pytest.raises(AssertionError, match="runs under"):
        check(d)
    line.points = kept
    d.boxes[0].x += d.boxes[1].x - d.boxes[0].x
    with pytest.raises(AssertionError, match="over"):
        check(d)


def test_every_edge_and_every_carry_has_a_line() -> None:
    graph = named("decoder")
    (d,) = drawings([("g", graph)])
    (loop,) = [n for n in graph.nodes if n.op.name == "scan"]
    (box,) = [b for b in d.boxes if b.inner is not None]
    assert box.inner is not None
    back = [line for line in box.inner.lines if line.back]
    assert len(back) == len(Loop(loop).init) == 2
    for line, number in zip(back, (0, 1), strict=True):
        ends = [b for b in box.inner.boxes if b.texts[0].text == f"→ next carry{number}"]
        starts = [b for b in box.inner.boxes if b.texts[0].text == f"carry{number}"]
        (x0, y0), (x1, y1) = line.points[0], line.points[-1]
        assert (x0, y0) == pytest.approx((ends[0].x + ends[0].w / 2, ends[0].y + ends[0].h))
        assert (x1, y1) == pytest.approx((starts[0].x + starts[0].w / 2, starts[0].y))
    drawn = {(round(line.points[-1][0], 3), round(line.points[-1][1], 3)) for line in d.lines}
    hidden = {n for n in graph.nodes if n.op.name in ("constant", "broadcast_in_dim")}
    edges = sum(v.node not in hidden for n in graph.nodes for v in n.inputs) + len(graph.outputs)
    assert len(d.lines) == edges
    assert len(drawn) == edges, "each operand has its own place at the box"
