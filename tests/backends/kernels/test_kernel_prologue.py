"""Products before a loop over one row are made by the loop's kernel, and only these."""

from __future__ import annotations

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


# Steps and rows -> dispatches: of two kernels, with scratch that stays and, where it is open, with that of a call.
NAMED = {("T", "B"): 4, ("T", 1): 3, (T, "B"): 4}


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


def test_others_stay_apart() -> None:
    """Several rows share the work by rows; more rows than L2 holds are read panel by panel."""
    assert _loops(_graph("lstm", "forward", rows=2)) == 2
    assert _loops(_graph("lstm", "forward", steps=100_000)) == 2
