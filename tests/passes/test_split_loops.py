"""Loops that are split mean what they meant: any sizes, orders, counts, and ops between the circles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.passes.pipeline import Pipeline

Array = np.ndarray[Any, Any]
B, I, H = 2, 4, 3
PASSES = "expand,decompose,split-carries,canonicalize,cse,split-loops,canonicalize,cse"


def weight(name: str, *shape: int) -> li.Value:
    return li.weight(name, np.random.default_rng(len(name) + sum(shape)).standard_normal(shape).astype("f"))


W, R, V, Q, U = weight("w", I, H), weight("r", H, H), weight("vv", H, H), weight("qqq", H, H), weight("u", H, 5)


def two_layers(carry: Any, row: li.Value) -> Any:
    h, g = carry
    h = li.tanh(row @ W + h @ R)
    g = li.tanh(h @ V + g @ Q)
    return (h, g), (g @ U, h)


def split(graph: li.Graph) -> tuple[li.Graph, dict[str, tuple[str, ...]]]:
    result = Pipeline.parse(PASSES).run(graph)
    return result.graph, {s.name: s.fired for s in result.steps if s.name.startswith("split")}


def loops(graph: li.Graph) -> int:
    return sum(n.op.name == "scan" for n in graph.nodes)


def same(before: li.Graph, after: li.Graph, **arrays: Array) -> None:
    want, got = li.interpret(before, arrays), li.interpret(after, arrays)
    for name, a in want.items():
        np.testing.assert_allclose(got[name], a, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("steps", [0, 1, 7])
@pytest.mark.parametrize("reverse", [False, True])
def test_two_layers(steps: int, reverse: bool, rng: np.random.Generator) -> None:
    x = li.input("x", ("T", B, I))
    (h, g), (y, s) = li.scan(two_layers, (li.ones((B, H)), li.zeros((B, H))), x, reverse=reverse)
    graph = li.Graph("two", [x], {"y": y, "s": s, "h": h, "g": g})
    after, fired = split(graph)
    assert loops(after) == 2
    assert fired["split-loops"]
    same(graph, after, x=rng.standard_normal((steps, B, I)).astype("f"))


@pytest.mark.parametrize("count", [0, 1, 4, 6])
@pytest.mark.parametrize("reverse", [False, True])
def test_steps_that_do_not_run(count: int, reverse: bool, rng: np.random.Generator) -> None:
    """Rows of steps that `count` leaves out are zero, of products behind the loops too."""
    x, n = li.input("x", ("T", B, I)), li.input("n", (), "i32")

    def cell(carry: Any, row: li.Value) -> Any:
        carry, (y, s) = two_layers(carry, row)
        return carry, (y + 1.0, s, li.cos(row) @ W)

    (h, g), ys = li.scan(cell, (li.ones((B, H)), li.zeros((B, H))), x, reverse=reverse, count=li.in_range(n, 0, "T"))
    graph = li.Graph("some", [x, n], {"h": h, "g": g, **{f"y{k}": y for k, y in enumerate(ys)}})
    after, fired = split(graph)
    assert fired["split-loops"]
    same(graph, after, x=rng.standard_normal((6, B, I)).astype("f"), n=np.array(count, np.int32))


def test_rows_in_both_orders_are_left_alone() -> None:
    x = li.input("x", ("T", B, I))
    _, (y, s) = li.scan(two_layers, (li.ones((B, H)), li.zeros((B, H))), x, reverse=[False, True, True])
    result = Pipeline.parse(PASSES).run(li.Graph("mixed", [x], {"y": y, "s": s}))
    assert loops(result.graph) == 1
    (step,) = (s for s in result.steps if s.name == "split-loops")
    assert [m.reason for m in step.misses] == ["a loop of several parts reads or gives rows in both orders"]


OPS: dict[str, Callable[[li.Value], li.Value]] = {
    "pad": lambda v: li.pad(v, (0, 1), (1, 0)),
    "cumsum": lambda v: li.cumsum(v, 1, reverse=True),
    "argmax": lambda v: li.convert(li.argmax(v, 1), "f32"),
    "take": lambda v: li.take(weight("table", 9, 3), li.argmax(v, 1)),
    "take columns": lambda v: li.take(weight("table", 4, 9), li.argmax(v, 1), 1),
    "max": lambda v: li.max(v, 1),
    "mean": lambda v: li.mean(v, 0),
    "reverse": lambda v: li.reverse(v, 1),
    "transpose": lambda v: li.transpose(v, (1, 0))[1:],
    "concat": lambda v: li.concat([v, v * 2.0], 1),
    "select": lambda v: li.select(li.greater(v, 0.0), v, -v),
    "conv1d": lambda v: li.conv1d(li.reshape(v, (B, 1, 5)), weight("kernel", 2, 1, 3), stride=2, padding=1),
}


@pytest.mark.parametrize("name", sorted(OPS))
def test_what_is_done_for_all_steps_at_once(name: str, rng: np.random.Generator) -> None:
    """Behind the product of a state; before a layer, where its shape allows one."""
    x = li.input("x", ("T", B, I))

    def cell(h: li.Value, row: li.Value) -> Any:
        h = li.tanh(row @ W + h @ R)
        return h, OPS[name](h @ U)

    h, y = li.scan(cell, li.zeros((B, H)), x)
    graph = li.Graph("op", [x], {"h": h, "y": y})
    after, fired = split(graph)
    assert fired["split-loops"]
    (loop,) = (n for n in after.nodes if n.op.name == "scan")
    assert [n.op.name for n in loop.attrs["body"].nodes].count("dot_general") == 2
    for steps in (0, 5):
        same(graph, after, x=rng.standard_normal((steps, B, I)).astype("f"))


def test_a_carry_that_a_loop_gives_to_the_next_step_s_layer(rng: np.random.Generator) -> None:
    """The second layer reads the first one's last state: rows of a carry before its step."""
    x = li.input("x", ("T", B, I))

    def cell(carry: Any, row: li.Value) -> Any:
        h, g = carry
        return (li.tanh(row @ W + h @ R), li.tanh(h @ V + g @ Q)), g

    (h, g), y = li.scan(cell, (li.ones((B, H)), li.zeros((B, H))), x)
    graph = li.Graph("late", [x], {"h": h, "g": g, "y": y})
    after, _ = split(graph)
    assert loops(after) == 2
    same(graph, after, x=rng.standard_normal((6, B, I)).astype("f"))


def test_an_op_that_cannot_be_lifted_stays_in_a_loop(rng: np.random.Generator) -> None:
    """An inner loop over rows of the first layer."""
    x = li.input("x", ("T", B, I))

    def summed(row: li.Value) -> li.Value:
        last: li.Value = li.scan(lambda c, v: (li.tanh(c + v), None), li.zeros((H,)), row)[0]
        return last

    def cell(carry: Any, row: li.Value) -> Any:
        h, g = carry
        h = li.tanh(row @ W + h @ R)
        g = li.tanh((h + summed(h)) @ V + g @ Q)
        return (h, g), summed(g @ R) @ V

    (h, g), y = li.scan(cell, (li.ones((B, H)), li.zeros((B, H))), x)
    graph = li.Graph("inner", [x], {"h": h, "g": g, "y": y})
    after, fired = split(graph)
    assert fired["split-loops"]
    same(graph, after, x=rng.standard_normal((4, B, I)).astype("f"))


def test_what_reads_a_matrix_state_stays_beside_it(rng: np.random.Generator) -> None:
    """Outside, the state of every step would be kept, for rows that the loop may as well compute."""

    def body(carry: Any, row: li.Value) -> Any:
        h, s = carry
        h = li.tanh(h @ R + row)
        s = 0.9 * s + li.einsum("bi,bj->bij", h @ V, h @ Q)
        return (h, s), li.einsum("bi,bij->bj", h @ weight("read", H, H), s)

    x = li.input("x", (7, B, H))
    _, y = li.scan(body, (li.zeros((B, H)), li.zeros((B, H, H))), x)
    graph = li.Graph("g", [x], {"y": y @ U})
    after, _ = split(graph)
    kept = [v for n in after.nodes if n.op.name == "scan" for v in n.values if v.rank == 4]
    assert not kept, "the state of every step is kept"
    same(graph, after, x=rng.standard_normal((7, B, H)).astype("f"))


def test_state_in_one_tensor(rng: np.random.Generator) -> None:
    """Two layers of an LSTM whose states are one input, [layers, 2, B, H], as exported models keep it."""
    x, s = li.input("x", ("T", B, I)), li.input("s", (2, 2, B, H))
    w, r, v, q = weight("lw", I, 4 * H), weight("lr", H, 4 * H), weight("lv", H, 4 * H), weight("lq", H, 4 * H)

    def lstm(z: li.Value, c: li.Value) -> tuple[li.Value, li.Value]:
        i, f, g, o = (z[:, k * H : (k + 1) * H] for k in range(4))
        c = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
        return li.logistic(o) * li.tanh(c), c

    def cell(state: li.Value, row: li.Value) -> Any:
        h, c = lstm(row @ w + state[0, 0] @ r, state[0, 1])
        g, d = lstm(h @ v + state[1, 0] @ q, state[1, 1])
        return li.stack([li.stack([h, c]), li.stack([g, d])]), g @ U

    last, y = li.scan(cell, s, x)
    graph = li.Graph("exported", [x, s], {"last": last, "y": y})
    after, fired = split(graph)
    assert [f.startswith("a carry is 4") for f in fired["split-carries"]] == [True]
    assert loops(after) == 2
    arrays = {"x": rng.standard_normal((5, B, I)).astype("f"), "s": rng.standard_normal((2, 2, B, H)).astype("f")}
    same(graph, after, **arrays)
    exe = li.compile(graph)
    assert sum(": kernel" in n for n in exe.report.notes) == 2, exe.report.notes
    for name, a in li.interpret(graph, arrays).items():
        np.testing.assert_allclose(exe(arrays)[name], a, rtol=2e-5, atol=2e-6, err_msg=name)


def test_gradients_of_what_was_one_loop(rng: np.random.Generator) -> None:
    """The loop backward is split as well: what the second layer gives the first are rows."""
    x = li.input("x", ("T", B, I))
    _, (y, _) = li.scan(two_layers, (li.ones((B, H)), li.zeros((B, H))), x)
    graph = li.grad(li.Graph("two", [x], {"loss": li.mean(y * y)}), "loss", ["x", *("w", "r", "vv", "qqq", "u")])
    after, fired = split(graph)
    assert len(fired["split-loops"]) >= 2
    arrays = {"x": rng.standard_normal((6, B, I)).astype("f")}
    same(graph, after, **arrays)
    exe = li.compile(graph)
    for name, a in li.interpret(graph, arrays).items():
        np.testing.assert_allclose(exe(arrays)[name], a, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_gradient_in_segments_stays_one_loop(rng: np.random.Generator) -> None:
    """Its parts would keep for all steps what a segment keeps for its own."""
    x = li.input("x", (24, B, H))
    w, h = li.weight("w", rng.standard_normal((H, H)).astype("f")), li.zeros((B, H))
    _, y = li.scan(lambda h, row, w: (s := li.tanh(row + h @ w), s), h, x, w)
    gradient = li.grad(li.Graph("g", [x], {"loss": li.mean(y * y)}), "loss", ["w"], remat=4)
    result = Pipeline.parse(PASSES).run(gradient)
    (step,) = (s for s in result.steps if s.name == "split-loops")
    assert "rows of a loop in it would be kept for all of its steps" in [m.reason for m in step.misses]
    same(gradient, result.graph, x=rng.standard_normal((24, B, H)).astype("f"))
