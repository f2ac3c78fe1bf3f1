"""Products of a loop over one row are made by the loop's kernel, block by block of steps, and only these."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.interpret import interpret

T, I, H = 9, 5, 20
CELLS = {"lstm": (li.lstm, 4), "gru": (li.gru, 3), "rnn": (li.rnn, 1)}


def _graph(
    cell: str, direction: str, *, steps: int | str = T, rows: int | str = 1, dtype: str = "f32",
    training: bool = False, lengths: bool = False,
) -> li.Graph:  # fmt: skip
    op: Any
    op, gates = CELLS[cell]
    ways = 2 if direction == "bidirectional" else 1
    x = li.input("x", (steps, rows, I), dtype)
    shapes = {"w_ih": (ways, gates * H, I), "w_hh": (ways, gates * H, H), "b": (ways, gates * H)}
    w = [li.input(n, s, dtype) for n, s in shapes.items()]
    n = li.input("n", (rows,), "i32") if lengths else None
    y, *_ = op(x, *w, direction=direction, **({"lengths": n} if lengths else {}))
    inputs = [x, *w, *([n] if n is not None else [])]
    if not training:
        return li.Graph("one", inputs, {"y": y})
    return li.grad(li.Graph("one", inputs, {"loss": li.sum(y * y)}), "loss", ["x", *shapes])


def _arrays(graph: li.Graph, rng: np.random.Generator) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, p in zip(graph.input_names, graph.params, strict=True):
        shape = tuple(int(d) for d in p.shape)
        if name == "n":
            out[name] = rng.integers(0, T + 1, shape).astype(np.int32)
        else:
            # Larger weights make a chaotic recurrence, in which f32 says nothing.
            scale = 1.0 if name == "x" else 0.3
            out[name] = (scale * rng.standard_normal(shape)).astype(p.dtype.numpy)
    return out


def _loops(graph: li.Graph) -> int:
    return prepare(graph, resolve("cpu")).text.count("flow.dispatch @recurrence_")


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("cell", CELLS)
def test_one_dispatch(cell: str, direction: str, rng: np.random.Generator) -> None:
    graph = _graph(cell, direction)
    assert _loops(graph) == 1
    exe = li.compile(graph)
    for _ in range(3):  # memory that an earlier call wrote
        given = _arrays(graph, rng)
        np.testing.assert_allclose(exe(given)["y"], interpret(graph, given)["y"], rtol=2e-5, atol=2e-5)


@pytest.mark.slow_cases(dtype=["f64"])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("dtype", "limit"), [("f32", 1e-4), ("f64", 1e-11)])
def test_gradients(cell: str, dtype: str, limit: float, rng: np.random.Generator) -> None:
    graph = _graph(cell, "bidirectional", dtype=dtype, training=True, lengths=True)
    exe, given = li.compile(graph), _arrays(graph, rng)
    for name, want in interpret(graph, given).items():
        np.testing.assert_allclose(exe(given)[name], want, rtol=limit, atol=limit, err_msg=name)


# Steps and rows -> dispatches: of one kernel whose scratch stays, and of one for many rows, whose scratch is open where
# rows are, and then also that of a call.
NAMED = {("T", "B"): 3, ("T", 1): 2, (T, "B"): 3}


@pytest.mark.slow_cases(cell=["gru", "rnn"])
@pytest.mark.slow_cases(sizes=[(T, "B")])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("sizes", NAMED)
def test_named_sizes(sizes: tuple[int | str, int | str], cell: str, direction: str, rng: np.random.Generator) -> None:
    """One kernel for few rows, which makes the product, and one for many or a single step."""
    steps, rows = sizes
    graph = _graph(cell, direction, steps=steps, rows=rows)
    assert _loops(graph) == NAMED[sizes]
    exe = li.compile(graph)
    w = _arrays(_graph(cell, direction), rng)
    for t, b in [(1, 1), (T, 1), (300, 1), (0, 1), (2, 1), (T, 2), (2, 3), (5, 0), (T, 0), (300, 2), (T, 70)]:
        if steps not in ("T", t) or rows not in ("B", b):
            continue
        given = {**w, "x": rng.standard_normal((t, b, I)).astype(np.float32)}
        np.testing.assert_allclose(exe(given)["y"], interpret(graph, given)["y"], rtol=2e-5, atol=2e-5)


# With 384 columns a block has these steps: half of the second level of caches holds its rows and their products.
WIDTH, IN = 96, 7
BLOCK = resolve("cpu").info.l2_bytes // 2 // (4 * (4 * WIDTH + IN)) // 8 * 8


def _wide(
    direction: str, steps: int | str, rows: int | str, rng: np.random.Generator, *, lengths: bool = False
) -> li.Graph:
    """An LSTM of more columns, its weights constants."""
    ways = 2 if direction == "bidirectional" else 1
    shapes = {"w": (ways, 4 * WIDTH, IN), "r": (ways, 4 * WIDTH, WIDTH), "b": (ways, 4 * WIDTH)}
    w = [li.weight(n, (0.1 * rng.standard_normal(s)).astype(np.float32)) for n, s in shapes.items()]
    x, n = li.input("x", (steps, rows, IN)), li.input("n", (rows,), "i32")
    y, h, c = li.lstm(x, *w, direction=direction, lengths=n if lengths else None)
    return li.Graph("wide", [x, n] if lengths else [x], {"y": y, "h": h, "c": c})


@pytest.mark.slow_cases(direction=["reverse"])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_blocks_of_steps_with_names(direction: str, lengths: bool, rng: np.random.Generator) -> None:
    """Below a block, at its end, behind it, several blocks; of two rows a block has half the steps."""
    graph = _wide(direction, "T", "B", rng, lengths=lengths)
    exe = li.compile(graph)
    half = BLOCK // 2
    for steps, rows in [(half - 1, 1), (half, 1), (half + 1, 2), (2 * BLOCK + 3, 1), (3 * half, 2), (2, 2), (9, 3)]:
        x = rng.standard_normal((steps, rows, IN)).astype(np.float32)
        given = {"x": x, "n": rng.integers(0, steps + 1, (rows,)).astype(np.int32)} if lengths else {"x": x}
        for name, want in interpret(graph, given).items():
            np.testing.assert_allclose(exe(given)[name], want, rtol=2e-5, atol=2e-5, err_msg=f"{name} {x.shape}")


@pytest.mark.slow_cases(steps=[BLOCK, 2 * BLOCK])
@pytest.mark.parametrize("steps", [BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 5])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_blocks_of_steps_with_numbers(direction: str, steps: int, rng: np.random.Generator) -> None:
    """Blocks have about as many steps each, the last one fewer."""
    graph = _wide(direction, steps, 1, rng)
    assert _loops(graph) == 1
    x = rng.standard_normal((steps, 1, IN)).astype(np.float32)
    for name, want in interpret(graph, {"x": x}).items():
        np.testing.assert_allclose(li.compile(graph)(x=x)[name], want, rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("threads", [1, 7])
def test_blocks_shared_by_any_number_of_workers(threads: int) -> None:
    """Of two directions each has its own team; every call gives the same bits."""
    code = f"""
import numpy as np, lstm_ir as li
li.set_threads({threads})
rng = np.random.default_rng(3)
w = [li.weight(f"w{{i}}", rng.uniform(-0.1, 0.1, (2, 384, n)).astype(np.float32)) for i, n in enumerate((7, 96))]
x = li.input("x", ("T", 1, 7))
graph = li.Graph("g", [x], {{"y": li.lstm(x, *w, direction="bidirectional")[0]}})
exe = li.compile(graph, "cpu", device="local-task")
a = rng.standard_normal(({2 * BLOCK + 9}, 1, 7)).astype(np.float32)
first = exe(x=a)["y"]
np.testing.assert_allclose(first, li.interpret(graph, {{"x": a}})["y"], rtol=2e-5, atol=2e-5)
for _ in range(30):
    assert (exe(x=a)["y"] == first).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


@pytest.mark.parametrize("ends", [3, BLOCK, 2 * BLOCK + 1, 10**6])
def test_a_loop_that_ends_by_what_it_computes(ends: int, rng: np.random.Generator) -> None:
    """It makes the products of the blocks that it begins."""
    steps = 3 * BLOCK
    w = li.weight("w", (0.1 * rng.standard_normal((IN, 4 * WIDTH))).astype(np.float32))
    r = li.weight("r", (0.05 * rng.standard_normal((4 * WIDTH, 4 * WIDTH))).astype(np.float32))

    x, given = li.input("x", (steps, 1, IN)), rng.uniform(-1, 1, (steps, 1, IN)).astype(np.float32)
    given[ends - 1 :, 0, 0] = 9

    def body(h: li.Value, row: li.Value) -> Any:
        h = li.tanh(row @ w + h @ r)
        return h, (h, row[:, 0] > 5)

    h, (y, end), ran = li.scan(body, li.zeros((1, 4 * WIDTH)), x, until=lambda _, results: results[1])
    graph = li.Graph("ends", [x], {"h": h, "y": y, "end": end, "ran": ran})
    assert _loops(graph) == 1
    got = li.compile(graph)(x=given)
    for name, want in interpret(graph, {"x": given}).items():
        np.testing.assert_allclose(got[name], want, rtol=2e-5, atol=2e-5, err_msg=name)
    assert got["ran"] == min(ends, steps)


def test_memory_does_not_grow_with_steps() -> None:
    """Beside x and y a module of a hundred times as many steps has the same scratch."""
    few, many = (prepare(_graph("lstm", "forward", steps=n), resolve("cpu")).text for n in (2 * 10**4, 2 * 10**6))
    found = [re.findall(r"util.global private @lstm_ir.scratch\d+ : tensor<(\d+)xi8>", text) for text in (few, many)]
    assert len(found[0]) == 1
    assert max(int(n[0]) for n in found) <= resolve("cpu").info.l2_bytes // 2


def test_others_stay_apart() -> None:
    """Several rows share the work by rows."""
    assert _loops(_graph("lstm", "forward", rows=2)) == 2
    assert _loops(_graph("lstm", "forward", steps=100_000)) == 1
