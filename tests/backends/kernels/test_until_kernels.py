"""Loops with `until` as kernels: how many steps run, what is behind them, members that come late."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from child import script
from kernel_checks import AVX2, BASELINE, TOLERANCE, compare
from until_bodies import GRAPHS, arrays, recurrent

import lstm_ir as li
from lstm_ir.ir.binding import bind_sizes
from lstm_ir.ir.loop import Loop


@pytest.mark.parametrize("target", ["cpu", BASELINE, AVX2])
@pytest.mark.parametrize("name", GRAPHS)
def test_as_written(name: str, target: str, seed: int) -> None:
    """Ends at the first step, amid the loop, and never; against the NumPy meaning of the graph."""
    graph, rng = GRAPHS[name](), np.random.default_rng(seed)
    runs, kind = set(), graph.outputs[0].dtype.name
    with li.compile(graph, target) as exe:
        assert any("kernel, " in n and "ends by what its steps compute" in n for n in exe.report.notes)
        for _ in range(20):
            given = arrays(graph, rng)
            compare(exe, graph, given, TOLERANCE[kind])
            runs.add(int(np.max(exe(given)["steps"])))
    assert len(runs) > 2, runs


@pytest.mark.parametrize("sizes", [(1, 3), (1, 1), (5, 1), (2, 1, 3), (3,)], ids=str)
@pytest.mark.parametrize("B", ["B", 9])
def test_flags_are_those_of_the_batch(sizes: tuple[int, ...], B: str | int, seed: int) -> None:
    """Whichever axis of the carry the kernel takes for rows: one row never stops, wherever it stands."""
    x, start = li.input("x", ("T", B)), li.input("start", (B, *sizes))
    h, y, steps = li.scan(lambda h, r: (li.tanh(h), r), start, x, until=lambda h, y: y > 0.5)
    graph, rng = li.Graph("main", [x, start], {"h": h, "y": y, "steps": steps}), np.random.default_rng(seed)
    with li.compile(graph) as exe:
        assert any("kernel, " in n and "ends by what its steps compute" in n for n in exe.report.notes)
        for row in (0, 4, 8):
            flags = np.ones((6, 9), np.float32)
            flags[:, row] = 0
            given = {"x": flags, "start": rng.standard_normal((9, *sizes), np.float32)}
            compare(exe, graph, given, TOLERANCE["f32"])
            assert exe(given)["steps"].tolist() == [6 if b == row else 1 for b in range(9)]


@pytest.mark.parametrize("B", ["B", 5, 8])
def test_flags_are_those_of_the_batch_where_rows_meet(B: str | int, seed: int) -> None:
    """Its gradient, which computes exp(weight) in the loop, is one in which the channels might be the rows."""
    rng, rows = np.random.default_rng(seed), B if isinstance(B, int) else 8
    decay, mix = (li.weight(n, (0.3 * rng.standard_normal((5, 3))).astype("f4")) for n in ("decay", "mix"))

    def cell(s: Any, u: Any) -> Any:
        turn = li.exp(-0.1 * li.exp(decay))
        re = turn * li.cos(mix) * s[..., 0] - turn * li.sin(mix) * s[..., 1] + u[..., None]
        return li.stack([re, turn * s[..., 1]], -1), 0.01 * li.sum(re * mix, 2) + u

    u, start = li.input("u", ("T", B, 5)), li.input("start", (B, 5, 3, 2))
    s, y, _ = li.scan(cell, start, u, until=lambda s, y: li.sum(y, 1) > 100.0)
    made = li.vjp(li.Graph("g", [u, start], {"y": y, "s": s}), ["y"], ["start"])
    graph = li.Graph("main", made.params, dict(zip(made.output_names, made.outputs, strict=True)))
    with li.compile(graph) as exe:
        for row in range(0, rows, 3):
            given = {"u": np.full((6, rows, 5), 100, np.float32)}
            given["u"][:, row] = 0
            given |= {n: rng.standard_normal(v, np.float32) for n, v in
                      (("start", (rows, 5, 3, 2)), ("ct_y", (6, rows, 5)))}  # fmt: skip
            compare(exe, graph, given, TOLERANCE["f32"])


@pytest.mark.parametrize("T", [0, 1, 2])
def test_few_steps(T: int, seed: int) -> None:
    graph, rng = recurrent("B", 24, "T"), np.random.default_rng(seed)
    for made in (graph, bind_sizes(graph, {"T": T})):
        with li.compile(made) as exe:
            for _ in range(4):
                compare(exe, graph, arrays(graph, rng, T=T), TOLERANCE["f32"])


@pytest.mark.parametrize("T", [0, 1, 5])
def test_no_rows(T: int, seed: int) -> None:
    """All of no flags hold: the first step is the last."""
    graph, rng = recurrent("B", 24, "T"), np.random.default_rng(seed)
    with li.compile(graph) as exe:
        compare(exe, graph, arrays(graph, rng, T=T, B=0), TOLERANCE["f32"])
    x = li.input("x", ("T", "B", 24))
    y, _, steps = li.scan(lambda h, r: (h + r, None), li.zeros(("B", 24)), x, until=lambda h, y: h[:, 0] > 1.0)
    loop = next(n for n in li.Graph("g", [x], {"y": y, "n": steps}).nodes if n.op.name == "scan")
    ran = Loop(loop).steps
    assert ran is not None
    main = li.Graph("main", [x], {"ran": ran})
    with li.compile(main) as exe:
        compare(exe, main, {"x": np.ones((T, 0, 24), np.float32)}, 0)


@pytest.mark.parametrize("word", ["int8", "int8-dynamic", "bf16"])
def test_weights_of_fewer_bits(word: str, seed: int) -> None:
    """Members quantise rows of their own. A limit is chosen that no rounding turns: steps are those of f32."""
    graph, rng = recurrent(4, 64, 19), np.random.default_rng(seed)
    with li.compile(graph, options={"precision": word}) as exe:
        assert any("ends by what its steps compute" in n for n in exe.report.notes)
        tried = 0
        while tried < 4:
            given = arrays(graph, rng)
            want = li.interpret(graph, given)
            sure = li.interpret(graph, {**given, "limit": given["limit"] - np.float32(0.1)})
            late = li.interpret(graph, {**given, "limit": given["limit"] + np.float32(0.1)})
            if not (want["steps"] == sure["steps"]).all() or not (want["steps"] == late["steps"]).all():
                continue
            tried += 1
            got = exe(given)
            np.testing.assert_array_equal(got["steps"], want["steps"])
            np.testing.assert_allclose(got["h"], want["h"], atol=0.1)


@pytest.mark.slow_cases(threads=[2])
@pytest.mark.parametrize("threads", [2, 7])
def test_members_that_come_late(threads: int) -> None:
    """More workers than cores: a member that starts behind the end finds where it was, and changes nothing."""
    out = script("until_team_child.py", threads, 20261, timeout=240)
    found = re.search(r"worst (\S+)", out)
    assert found is not None
    assert float(found[1]) < 1
