"""Delta rules by chunks: the numbers and gradients of loops that are written with matrices (delta_loops.py)."""

from __future__ import annotations

from typing import Any

import delta_loops as oracle
import numpy as np
import pytest
from delta_cells import CELLS, ROWS, Sizes, arrays, drawn, graph, loops_over_steps, pair, read

import lstm_ir as li
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ops.scan.tuned import DELTA_ROWS
from lstm_ir.passes.base import Notes
from lstm_ir.passes.chunk_states import ChunkStates
from lstm_ir.passes.pipelines import NAMED

EVERYWHERE = ChunkStates(on="all")


def chunks(g: li.Graph) -> li.Graph:
    notes = Notes()
    made = EVERYWHERE.run(g, notes)
    assert len(notes.fired) == 1
    assert not notes.misses
    assert not [n for n in loops_over_steps(made) if isinstance(n, int)]
    assert EVERYWHERE.run(made, Notes()) is made
    return made


def near(got: Any, want: Any, bound: float, what: object) -> None:
    for i, (n, w) in enumerate(zip(got, want, strict=True)):
        assert n.shape == w.shape
        scale = 1 + np.abs(w).max(initial=0)
        np.testing.assert_allclose(n, w, rtol=0, atol=bound * scale, err_msg=f"{i} {what}")


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("axes", [0, 1, 2])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_numbers_of_the_recurrence(name: str, axes: int, reverse: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes, T = drawn(rng, axes), int(rng.integers(DELTA_ROWS + 1, 150))
    g = graph(name, T, sizes, reverse=reverse)
    given = arrays(g, T, seed)
    got = li.interpret(chunks(g), given)
    near(got.values(), oracle.run(name, given, reverse), 1e-12, (seed, sizes, T))


@pytest.mark.parametrize("name", ["delta_net", "erases_another", "between_carries"])
@pytest.mark.parametrize("T", [0, 1, 31, 32, 77, 130])
def test_a_named_number_of_steps(name: str, T: int, seed: int) -> None:
    sizes = drawn(np.random.default_rng(seed), 2)
    g = graph(name, "T", sizes, reverse=bool(seed % 2))
    given = arrays(g, T, seed)
    got = list(li.interpret(chunks(g), given).values())
    want = oracle.run(name, given, bool(seed % 2)) if T else list(li.interpret(g, given).values())
    near(got, want, 1e-12, (seed, sizes))


@pytest.mark.parametrize("rows", [0, 3])
def test_a_named_batch(rows: int, seed: int) -> None:
    def built(B: Any) -> li.Graph:
        given = [li.input(n, (40, B, *s), "f64") for n, s in zip(ROWS, ((8,), (8,), (8,), (9,), (), ()), strict=True)]
        given.append(li.input("first", (B, 8, 9), "f64"))
        last, y = li.scan(CELLS["delta_net"], given[-1], tuple(given[:-1]))
        return li.Graph("g", given, {"last": last, "y": y})

    g = built("B")
    given = arrays(built(rows), 40, seed)
    near(li.interpret(chunks(g), given).values(), oracle.run("delta_net", given), 1e-12, seed)


@pytest.mark.parametrize("name", ["gated", "erases_another", "two_erasures"])
@pytest.mark.parametrize("reverse", [False, True])
def test_lengths_and_padding_that_may_be_anything(name: str, reverse: bool, seed: int) -> None:
    sizes = drawn(np.random.default_rng(seed), 2)
    T = 70
    g = graph(name, T, sizes, reverse=reverse, lengths=True)
    given = arrays(g, T, seed)
    want = oracle.run(name, given, reverse)
    for b, n in enumerate(given["lengths"]):
        for row in ROWS:
            given[row][n:, b] = np.nan
    near(li.interpret(chunks(g), given).values(), want, 1e-12, (seed, sizes))


def test_keys_that_are_shared_by_heads(seed: int) -> None:
    """A key for each row of the batch; values, decays and states for each head."""

    def cell(s: Any, x: Any) -> Any:
        q, k, v, a, b = x
        k = k[:, None, :]
        s = a[..., None, None] * s
        held = li.sum(k[..., :, None] * s, 2)
        s = s + k[..., :, None] * (b[..., None] * (v - held))[..., None, :]
        return s, li.sum(q[:, None, :, None] * s, 2)

    B, H, K, V, T = 2, 9, 8, 11, 40
    shapes = {"q": (B, K), "k": (B, K), "v": (B, H, V), "a": (B, H), "b": (B, H)}
    rows = [li.input(n, (T, *s), "f64") for n, s in shapes.items()]
    first = li.input("first", (B, H, K, V), "f64")
    last, y = li.scan(cell, first, tuple(rows))
    g = li.Graph("g", [*rows, first], {"last": last, "y": y})
    given = arrays(g, T, seed)
    wide = dict(given) | {n: np.repeat(given[n][:, :, None], H, 2) for n in "qk"}
    want = oracle.run("gated", wide | {"e": wide["k"], "first": np.swapaxes(given["first"], -1, -2)})
    want[0] = np.swapaxes(want[0], -1, -2)
    near(li.interpret(chunks(g), given).values(), want, 1e-12, seed)


def hard(name: str, T: int, seed: int, keys: str, decay: float, rate: float) -> tuple[li.Graph, dict[str, Any]]:
    """Keys of length 1, drawn alike or nearly alike, in f32."""
    g = graph(name, T, Sizes((2, 3), 16, 9), "f32")
    given, rng = arrays(g, T, seed), np.random.default_rng(seed)
    k = rng.standard_normal(given["k"].shape)
    if keys != "random":
        k = k[:1] + (1e-3 if keys == "near" else 0) * k
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    given |= {"k": k, "e": k, "a": np.full(given["a"].shape, decay), "b": np.full(given["b"].shape, rate)}
    return g, {n: np.asarray(x, "f4") for n, x in given.items()}


@pytest.mark.parametrize("keys", ["random", "near", "equal"])
@pytest.mark.parametrize(
    ("decay", "rate"), [(1, 1), (1, 2), (1, 1.5), (1, 0.5), (0, 1), (1e-30, 2), (0.97, 2), (0.97, 1), (-0.5, 1)]
)
def test_as_exact_as_the_loop_over_steps(keys: str, decay: float, rate: float, seed: int) -> None:
    """In f32, beside the recurrence in f64: at most six times the error of the loop over steps, and some roundings.

    Steps that reflect (a rate of 2) forget nothing: where keys are alike their products are rounded alike, and the
    error of k.k adds up over all steps that a decay leaves, where that of a loop over steps is now up, now down.
    """
    T = 200
    g, given = hard("gated", T, seed, keys, decay, rate)
    exact = oracle.run("gated", {n: x.astype("f8") for n, x in given.items()})
    steps, by_chunks = (li.interpret(x, given).values() for x in (g, chunks(g)))
    left = min(T, 1 / (1 - decay)) if decay < 1 else T
    roundings = 8 + (4 * left if rate == 2 and keys != "random" else 0)
    for want, one, other in zip(exact, steps, by_chunks, strict=True):
        error, least = (np.abs(x - want).max() for x in (other, one))
        assert error < 6 * least + roundings * 2.0**-24 * (1 + np.abs(want).max()), (seed, error, least)


LEFT: dict[str, tuple[Any, str]] = {
    "a decay for each key": (
        lambda s, x: x[1][..., None] * s + pair(x[1], x[3] - read(x[1], s)),
        "a delta rule with a decay for each row or column",
    ),
    "a rate for each column": (
        lambda s, x: s + pair(x[1], li.tanh(x[3]) * (x[3] - read(x[1], s))),
        "a delta rule with numbers for each column",
    ),
    "another place": (lambda s, x: s + pair(x[1], x[3] - li.concat([read(x[1], s)[1:], read(x[1], s)[:1]], 0)), ""),
}


@pytest.mark.parametrize("what", LEFT)
def test_what_stays_a_loop(what: str) -> None:
    f, why = LEFT[what]
    sizes = Sizes((3,), 8, 9)
    rows = [li.input(n, (70, *sizes.row(n))) for n in ROWS]
    last, y = li.scan(lambda s, x: (f(s, x), read(x[0], s)), li.zeros((3, 8, 9)), tuple(rows))
    g, notes = li.Graph("g", rows, {"last": last, "y": y}), Notes()
    assert EVERYWHERE.run(g, notes) is g
    assert [m.reason for m in notes.misses] == ([f"{why} stays a loop over steps"] if why else [])


@pytest.mark.parametrize(("dtype", "T"), [("bf16", 70), ("f16", 70), ("f32", DELTA_ROWS)])
def test_small_types_and_few_steps_stay_loops(dtype: str, T: int) -> None:
    """Of a chunk or less nothing is gained: its system is solved by a loop of as many steps."""
    g, notes = graph("gated", T, Sizes((3,), 8, 9), dtype), Notes()
    assert EVERYWHERE.run(g, notes) is g
    assert [m.reason for m in notes.misses] == (
        [f"a matrix state in {dtype} stays a loop over steps"] if T == 70 else []
    )


@pytest.mark.parametrize(("rows", "chunked"), [(4, True), (1, False), ("B", False)])
def test_without_kernels_large_states_alone_go_by_chunks(rows: Any, chunked: bool) -> None:
    """Those of a step that stay in a cache are run step by step sooner; of named rows that is not known."""
    shapes = ((256,), (256,), (256,), (256,), (), ())
    given = [li.input(n, (70, rows, *s)) for n, s in zip(ROWS, shapes, strict=True)]
    given.append(li.input("first", (rows, 256, 256)))
    last, y = li.scan(CELLS["delta_net"], given[-1], tuple(given[:-1]))
    g, notes = li.Graph("g", given, {"last": last, "y": y}), Notes()
    made = ChunkStates(kernels="no").run(g, notes, resolve("cpu").info)
    assert (made is not g) is chunked
    assert [m.reason for m in notes.misses] == (
        [] if chunked else ["a delta rule whose states are small stays a loop over steps"]
    )


def test_count_stays_a_loop() -> None:
    g, notes = graph("gated", 70, Sizes((3,), 8, 9), count=li.constant(3, "i32")), Notes()
    assert EVERYWHERE.run(g, notes) is g
    assert "with `count`" in notes.misses[0].reason


@pytest.mark.parametrize("T", [70, "T"])
def test_compiled(T: Any, seed: int) -> None:
    g = graph("gated", T, Sizes((2, 3), 8, 11), "f32")
    chosen = NAMED["default"].replace("chunk-states", "chunk-states{on=all}")
    with li.compile(g, options={"pipeline": chosen}) as exe:
        steps = next(iter(exe.report.steps.values()))
        assert any(s.name == "chunk-states" and s.changed for s in steps)
        for n in (70,) if T == 70 else (1, 16, 70):
            given = arrays(g, n, seed)
            want = oracle.run("gated", {k: a.astype("f8") for k, a in given.items()})
            near(exe(given).values(), want, 1e-5, (n, seed))
