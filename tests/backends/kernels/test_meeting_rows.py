"""Bodies in which rows meet are kernels: numbers, columns and matrices of all rows, and one flag that ends a loop."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from child import script
from kernel_checks import AVX2, BASELINE, TOLERANCE
from meeting_bodies import BODIES, ENDS, Arrays, Sizes, draw, ended, ending
from meeting_random import random_graph

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.passes.pipeline import Pipeline
from lstm_ir.passes.pipelines import NAMED


def close(got: Arrays, want: dict[str, Any], tolerance: float) -> None:
    for k, w in want.items():
        wanted = np.asarray(w)
        np.testing.assert_allclose(got[k], wanted.reshape(got[k].shape), rtol=tolerance, atol=tolerance, err_msg=k)


def loops(exe: Any) -> list[str]:
    return [n for n in exe.report.notes if n.startswith("scan at")]


@pytest.mark.parametrize(("target", "kind"), [("cpu", "f32"), ("cpu", "f64"), (BASELINE, "f32"), (AVX2, "f64")])
@pytest.mark.parametrize("name", BODIES)
def test_numbers(name: str, target: str, kind: str, seed: int) -> None:
    """Beside NumPy, in f64 whatever the kind: statistics of a batch make more of a rounding than a cell does."""
    build, meaning = BODIES[name]
    rng = np.random.default_rng(seed)
    for sizes in (Sizes(9, 5, 21), Sizes(4, 17, 32)):
        graph = build(sizes, kind)
        with li.compile(graph, target) as exe:
            assert all(": kernel, " in n for n in loops(exe))
            assert loops(exe)
            for _ in range(3):
                given = draw(graph, rng, sizes.T, sizes.B)
                wide = {k: v.astype("f8") if v.dtype.kind == "f" else v for k, v in given.items()}
                close(exe(given), meaning(wide, sizes.H), 20 * TOLERANCE[kind])


@pytest.mark.parametrize("name", [n for n in BODIES if n not in ("temperature", "one_row")])
def test_named_sizes(name: str, seed: int) -> None:
    """Few rows and many, one, and none: what is common to all of none is that of the interpreter."""
    graph, rng = BODIES[name][0](Sizes("T", "B", 24), "f32"), np.random.default_rng(seed)
    with li.compile(graph) as exe:
        assert all(": kernel, " in n for n in loops(exe))
        for T, B in ((7, 3), (7, 1), (1, 2), (0, 4), (6, 19), (3, 0)):
            given = draw(graph, rng, T, B)
            close(exe(given), li.interpret(graph, given), 20 * TOLERANCE["f32"])


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", ENDS)
def test_one_flag_for_all_rows(name: str, kind: str, seed: int) -> None:
    """The loop ends where NumPy and the interpreter end it: early, late, and never."""
    rng, runs = np.random.default_rng(seed), set()
    for sizes in (Sizes(23, 3, 20), Sizes("T", "B", 33)):
        graph = ending(name, sizes, kind)
        with li.compile(graph) as exe:
            assert any(": kernel, " in n and "ends by what its steps compute" in n for n in loops(exe))
            for _ in range(12):
                T, B = (23, 3) if sizes.T == 23 else (int(rng.integers(0, 30)), int(rng.integers(0, 6)))
                given = draw(graph, rng, T, B)
                got, want = exe(given), li.interpret(graph, given)
                np.testing.assert_array_equal(got["steps"], want["steps"])
                close(got, want, 20 * TOLERANCE[kind])
                if B:
                    close(got, ended(name, given, sizes.H), 20 * TOLERANCE[kind])
                    runs.add(int(got["steps"]))
    assert len(runs) > 2, runs


@pytest.mark.parametrize("name", [n for n in BODIES if n != "one_row"])
def test_gradients(name: str, seed: int) -> None:
    """The loop back sums cotangents over rows: a kernel too. Slopes are those of the graph in f64."""
    graph = BODIES[name][0](Sizes(5, 3, 20), "f64")
    floats = {k: v for k, v in zip(graph.output_names, graph.outputs, strict=True) if v.dtype.is_float}
    total: Any = 0.0
    for k, v in enumerate(floats.values()):
        total = total + li.sum(li.sin(v + 0.1 * k))
    back = li.grad(li.Graph("l", list(graph.params), {"loss": total}), "loss", ["x"])
    rng = np.random.default_rng(seed)
    given = draw(graph, rng, 5, 3)
    with li.compile(back) as exe:
        assert [n for n in loops(exe) if ": loop, " in n] == []
        assert any("grad" in n for n in loops(exe))
        got = exe(given)
    way, step = rng.standard_normal(given["x"].shape), 1e-6
    there, here = (float(li.interpret(back, {**given, "x": given["x"] + s * way})["loss"]) for s in (step, -step))
    np.testing.assert_allclose(np.sum(got["d_x"] * way), (there - here) / (2 * step), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("i", range(3))
def test_random_bodies(i: int, seed: int) -> None:
    """In f64, where only a wrong kernel differs; odd ones end by one flag."""
    named, rng = bool(seed & 1), np.random.default_rng(seed)
    graph = random_graph(seed + i, Sizes("T", "B", 20) if named else Sizes(7, 5, 20), "f64")
    with li.compile(graph) as exe:
        assert all(": kernel, " in n for n in loops(exe)), loops(exe)
        for T, B in ((7, 3), (4, 1), (5, 18)) if named else [(7, 5)]:
            given = draw(graph, rng, T, B)
            close(exe(given), li.interpret(graph, given), 1e-9)


def test_random_bodies_with_pairs_of_rows(seed: int) -> None:
    for i in range(3):
        graph = random_graph(seed + i, Sizes(5, 4, 8), "f64", pairs=True)
        with li.compile(graph) as exe:
            given = draw(graph, np.random.default_rng(seed), 5, 4)
            close(exe(given), li.interpret(graph, given), 1e-9)


def test_a_body_that_is_too_deep_the_usual_way(seed: int) -> None:
    """Many rows, each of which is written out there; found by random bodies."""
    graph = random_graph(50002, Sizes(5, 18, 3), "f64")
    with li.compile(graph) as exe:
        assert all(": kernel, " in n for n in loops(exe))
        given = draw(graph, np.random.default_rng(seed), 5, 18)
        close(exe(given), li.interpret(graph, given), 1e-9)


def test_sums_have_one_order(seed: int) -> None:
    """Whoever runs: workers of several counts give the same bits."""
    graph, rng = BODIES["scalars"][0](Sizes(11, 37, 48), "f32"), np.random.default_rng(seed)
    given = draw(graph, rng, 11, 37)
    results = []
    for device in ("local-sync", "local-task"):
        with li.compile(graph, device=device, options={"thresholds": {"shared_step": 1}}) as exe:
            results += [exe(given) for _ in range(5)]
    for r in results[1:]:
        for k, v in r.items():
            np.testing.assert_array_equal(v, results[0][k], err_msg=k)


@pytest.mark.slow_cases(threads=[2])
@pytest.mark.parametrize("threads", [2, 7])
def test_members_that_share_a_step(threads: int) -> None:
    out = script("meeting_team_child.py", threads, 20261, timeout=240)
    found = re.search(r"worst (\S+)", out)
    assert found is not None
    assert float(found[1]) < 1


@pytest.mark.parametrize("kind", ["each_row_of_all", "columns_first"])
def test_rows_in_pairs_are_no_kernel(kind: str, seed: int) -> None:
    """A product with a matrix of rows by rows gives each row a sum over all: a fold has one place of rows."""
    rng = np.random.default_rng(seed)
    w, x = li.constant(0.4 * rng.standard_normal((6, 6))), li.input("x", (7, 6, 9), "f64")

    def cell(h: Any, x: Any) -> Any:
        mixed = li.einsum("bh,bc->ch", h, w) if kind == "each_row_of_all" else li.transpose(li.transpose(h) @ w)
        h = li.tanh(mixed + x - 0.1 * li.mean(h))
        return h, h

    h, y = li.scan(cell, li.zeros((6, 9), "f64"), x)
    back = li.grad(li.Graph("l", [x], {"loss": li.sum(y * y) + li.sum(h)}), "loss", ["x"])
    for name in ("default", "without"):
        passes = ",".join(p.name for p in Pipeline.parse(NAMED["default"]).passes if p.name != "turn-bodies")
        with li.compile(back, options={"pipeline": passes} if name == "without" else {}) as exe:
            given = {"x": rng.standard_normal((7, 6, 9))}
            close(exe(given), li.interpret(back, given), 1e-11)


def test_what_is_compared_is_made_once(seed: int) -> None:
    """The row that holds the largest number equals it, and no row is above it."""
    rng = np.random.default_rng(seed)
    w, v = (rng.standard_normal(s).astype("f4") for s in ((24, 24), (24, 1)))
    x = li.input("x", (9, "B", 24))

    def cell(h: Any, x: Any) -> Any:
        z = (h @ li.constant(w) + x) @ li.constant(v)
        top = li.max(z[:, 0])
        here = li.convert(li.equal(z[:, 0], top), "f32")
        h = li.tanh(h + x * li.broadcast_in_dim(here, x.shape, (0,)))
        return h, (li.sum(here), li.sum(li.convert(z[:, 0] > top, "i32")))

    _, (equal, above) = li.scan(cell, li.zeros(("B", 24)), x)
    graph = li.Graph("g", [x], {"equal": equal, "above": above})
    with li.compile(graph) as exe:
        assert all(": kernel, " in n for n in loops(exe))
        for rows in (1, 3, 17):
            got = exe(x=rng.standard_normal((9, rows, 24)).astype("f4"))
            np.testing.assert_array_equal(got["equal"], np.ones(9))
            np.testing.assert_array_equal(got["above"], np.zeros(9))


def test_one_wait_in_a_step() -> None:
    """Columns of a batch-normalised cell keep to themselves but for the product: its sweeps go block by block."""
    text = prepare(BODIES["batch_norm"][0](Sizes(9, 5, 64), "f32"), resolve("cpu:x86-64-v3")).text
    assert text.count("scf.while") == 1 + 1  # before the first step; in it


@pytest.mark.parametrize("word", ["int8", "int8-dynamic", "bf16"])
def test_weights_of_fewer_bits(word: str, seed: int) -> None:
    """Members quantise rows of their own."""
    graph, rng = BODIES["statistics"][0](Sizes(6, 4, 64), "f32"), np.random.default_rng(seed)
    with li.compile(graph, options={"precision": word}) as exe:
        assert all(": kernel, " in n for n in loops(exe))
        given = draw(graph, rng, 6, 4)
        close(exe(given), li.interpret(graph, given), 0.1)


def test_a_count_ends_it_early(seed: int) -> None:
    """Rows of what is common to all are zero from there on."""
    x, n = li.input("x", ("T", 3, 8)), li.input("n", (), "i32")
    w = li.weight("w", np.random.default_rng(seed).standard_normal((8, 8)).astype("f4"))
    out, y = li.scan(
        lambda s, r: ((li.tanh(s[0] @ w + r * s[1]), li.mean(s[0]) + 1.0), li.sum(s[0] + r, 0)),
        (li.zeros((3, 8)), li.constant(1.0)), x, count=n,
    )  # fmt: skip
    graph = li.Graph("g", [x, n], {"h": out[0], "m": out[1], "y": y})
    with li.compile(graph) as exe:
        assert all(": kernel, " in k for k in loops(exe))
        for count in (0, 1, 4, 6):
            given = {"x": np.random.default_rng(seed).standard_normal((6, 3, 8)).astype("f4"), "n": np.int32(count)}
            close(exe(given), li.interpret(graph, given), 2e-5)


@pytest.mark.parametrize("word", ["vulkan:rdna3", "cuda:sm_90"])
def test_gpus_keep_the_loop(word: str) -> None:
    """Their workgroups do not wait for each other; the reason says it."""
    for name in ("batch_norm", "scalars", "statistics"):
        report = prepare(BODIES[name][0](Sizes(9, 6, 64), "f32"), resolve(word), {"kernels": True}).report
        assert any("loop, because a row reads another row's carry; instead: one row" in n for n in report.notes)
    report = prepare(ending("all", Sizes(9, 6, 64), "f32"), resolve(word), {"kernels": True}).report
    assert any("loop, because its steps compute when it ends (until); instead: count" in n for n in report.notes)
