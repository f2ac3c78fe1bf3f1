"""Blocks of columns, and the parts of their rows that members take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_bodies import BODIES, Loop

import lstm_ir as li
from lstm_ir.backends.kernels.body.plan import LoopPlan
from lstm_ir.backends.kernels.body.planner import make_plan
from lstm_ir.backends.kernels.cpu.schedule import choose
from lstm_ir.backends.kernels.cpu.sums import Tile
from lstm_ir.backends.run.devices import resolve


def tile(body: str, rows: Any, width: int, target: str) -> tuple[Tile, int]:
    """Of the last sweep of a loop, and its blocks."""
    graph = Loop((9, rows, 6, width), np.random.default_rng(4)).graph(body, BODIES[body])
    (n,) = (n for n in graph.nodes if n.op.name == "scan")
    plan = make_plan(n, False)
    schedule = choose(plan, resolve(target).info)
    sweep = plan.components[0].sweeps[-1]
    return schedule.tiles[sweep], schedule.tiles[sweep].blocks(sweep.width, schedule.lanes)


@pytest.mark.parametrize(
    ("rows", "width", "target", "blocks", "parts"),
    [
        (4, 200, "cpu:x86-64-v4", 13, 2),  # two members: six and a half each
        (4, 208, "cpu:x86-64-v4", 13, 2),
        (4, 256, "cpu:x86-64-v4", 16, 1),
        (1, 200, "cpu:x86-64-v4", 13, 1),  # nothing to cut
        ("B", 200, "cpu:x86-64-v4", 13, 1),
        (4, 200, "cpu:x86-64-v3", 25, 2),
        (4, 264, "cpu:x86-64-v3", 33, 1),  # one more of so many is little
    ],
)
def test_odd_blocks_are_cut(rows: Any, width: int, target: str, blocks: int, parts: int) -> None:
    found, count = tile("gated", rows, width, target)
    assert (count, found.parts) == (blocks, parts)


@pytest.mark.parametrize(
    ("width", "vectors"),  # of 16 columns, past the last column too
    [(64, 4), (128, 8), (200, 14), (208, 14), (256, 16), (512, 32), (40, 3), (16, 1)],
)
def test_few_vectors_are_past_the_last_column(width: int, vectors: int) -> None:
    found, count = tile("ends_in_product", 4, width, "cpu:x86-64-v4")
    assert count * found.q == vectors


def test_results_without_products_are_no_component_beside_one_that_has_them() -> None:
    """Workers are shared out evenly: a row that is passed on would take as many as all products."""

    def plan(directions: int) -> LoopPlan:
        w = [li.constant(np.eye(8, dtype="f4")) for _ in range(directions)]
        x = li.input("x", (5, 3, 8))

        def cell(h: Any, row: Any) -> Any:
            h = tuple(li.tanh(a @ m + row) for a, m in zip(h, w, strict=True))
            return h, (*h, row * 2, li.tanh(row))

        ys = li.scan(cell, tuple(li.zeros((3, 8)) for _ in w), x)[1]
        (scan,) = [n for n in li.Graph("g", [x], {f"y{i}": y for i, y in enumerate(ys)}).nodes if n.op.name == "scan"]
        return make_plan(scan, False)

    one, two = plan(1), plan(2)
    results = [sum(len(s.roots) for c in p.components for s in c.sweeps) for p in (one, two)]
    assert (len(one.components), len(two.components)) == (3, 4)
    one.join_rest()
    two.join_rest()
    assert len(one.components) == 1
    assert len(two.components) == 4  # either direction is one function, as the other
    assert [sum(len(s.roots) for c in p.components for s in c.sweeps) for p in (one, two)] == results
