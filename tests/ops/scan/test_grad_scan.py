"""The gradient of scan, for any body, and what remat saves."""

from typing import Any

import numpy as np
import pytest
from loop_models import CELLS, SEED, WRT, B, H, I, model

import lstm_ir as li
from lstm_ir.training.gradient import grad


def check(graph: li.Graph, back: li.Graph, values: dict[str, Any], names: list[str]) -> None:
    """Central differences along a random direction of every name."""
    li.verify(back)
    got = li.interpret(back, values)
    rng = np.random.default_rng(SEED + 1)
    for k in names:
        along, e = rng.normal(size=values[k].shape), 1e-5
        ends = [li.interpret(graph, {**values, k: values[k] + s * e * along})["loss"] for s in (1, -1)]
        want = float(ends[0] - ends[1]) / (2 * e)
        have = float((got[f"d_{k}"] * along).sum())
        assert abs(have - want) <= 1e-7 * max(1.0, abs(want)), (k, have, want)


ENDS: list[tuple[str, Any]] = [
    (ends, reverse)
    for ends in ("", "count", "lengths")
    for reverse in (False, True, [True, False])
    if ends != "lengths" or reverse in (False, True)  # lengths needs one direction
]


@pytest.mark.parametrize("cell", list(CELLS))
@pytest.mark.parametrize(("ends", "reverse"), ENDS, ids=str)
def test_any_body(cell: str, reverse: Any, ends: str) -> None:
    for dynamic in (True, False):
        graph, values = model(cell, reverse, dynamic, **{ends: True})
        check(graph, grad(graph, "loss", WRT), values, WRT)


@pytest.mark.parametrize("length", [0, 1])
def test_short_loops(length: int) -> None:
    graph, values = model("lstm", length=length)
    got = li.interpret(grad(graph, "loss", WRT), values)
    if length == 0:
        np.testing.assert_array_equal(got["d_h0"], 2 * values["h0"])
        assert not got["d_w"].any()
    else:
        check(graph, grad(graph, "loss", WRT), values, WRT)


@pytest.mark.parametrize("segment", [1, 3, 4, 11, 20])
@pytest.mark.parametrize("reverse", [False, True, [True, False]], ids=str)
def test_remat_gives_the_same(segment: int, reverse: Any) -> None:
    for cell in CELLS:
        for dynamic in (True, False):
            graph, values = model(cell, reverse, dynamic)
            check(graph, grad(graph, "loss", WRT, remat=segment), values, WRT)


def test_remat_with_count() -> None:
    for cell in ("stepped", "lstm"):
        for reverse in (False, True):
            for dynamic in (True, False):
                graph, values = model(cell, reverse, dynamic, count=True)
                for remat in (1, 4, 5, 20, (4, 2), (5, 3)):
                    check(graph, grad(graph, "loss", WRT, remat=remat), values, WRT)
    graph, _ = model("lstm", [True, False], count=True)
    with pytest.raises(li.GradientError, match=r"remat does not go with count where rows .* both orders"):
        grad(graph, "loss", WRT, remat=4)


@pytest.mark.parametrize("remat", [(4, 2), (5, 2), (11, 3), (8, 4, 2), (3, 2)], ids=str)
@pytest.mark.parametrize("reverse", [False, True, [True, False]], ids=str)
def test_segments_of_segments(remat: tuple[int, ...], reverse: Any) -> None:
    """Eleven steps, also of a named number: the shorter segment is cut once more, in either order."""
    for cell in CELLS:
        for dynamic in (True, False):
            graph, values = model(cell, reverse, dynamic)
            check(graph, grad(graph, "loss", WRT, remat=remat), values, WRT)


@pytest.mark.parametrize("remat", [None, 1, 2, 3])
@pytest.mark.parametrize("end", ["count", "until"])
def test_steps_that_do_not_run_have_no_gradient(end: str, remat: int | None) -> None:
    """Behind the end log(w x) is that of 0: 0/0 on the way back, if such a step were run again."""
    x, w = li.input("x", (5,), "f64"), li.input("w", (), "f64")
    ways: dict[str, Any] = {"count": {"count": 2}, "until": {"until": lambda c, row: c > 1.0}}
    total = li.scan(lambda c, row, w: ((new := c + li.log(w * row)), new), li.zeros((), "f64"), x, w, **ways[end])[0]
    graph = li.Graph("ended", [x, w], {"loss": total})
    back = grad(graph, "loss", ["x", "w"], remat=remat)
    given = np.array([1.0, 2.0, 0.0, 0.0, 0.0])
    got = li.interpret(back, x=given, w=np.float64(1.5))
    np.testing.assert_allclose(got["d_w"], 2 / 1.5)
    np.testing.assert_allclose(got["d_x"], [1.0, 0.5, 0, 0, 0])


def saved_bytes(back: li.Graph) -> int:
    """Bytes that the loops which go forward stack, and the loss does not need."""
    scans = [n for n in back.nodes if n.op.name == "scan"]
    forward = [n for n in scans if not n.attrs["body"].name.endswith("_back")]
    stacked = [v for n in forward for v in n.values[len(n.args[1] or ()) :]]
    return sum(int(np.prod([int(str(d)) for d in v.shape])) * v.dtype.bytes for v in stacked)


def test_remat_saves_memory() -> None:
    """Segments of 32 steps of 1024: the stacks shrink more than twentyfold."""
    graph, _ = model("lstm", dynamic=False, length=1024)
    plain = saved_bytes(grad(graph, "loss", WRT))
    cut = saved_bytes(grad(graph, "loss", WRT, remat=32))
    y = 1024 * B * H * 8
    assert (plain - y) > 20 * (cut - y) > 0


def test_sums_over_all_steps_are_outside() -> None:
    """The loop that goes back has the one product of the recurrence."""
    graph, _ = model("lstm")
    back = grad(graph, "loss", WRT)
    loops = [n for n in back.nodes if n.op.name == "scan"]
    assert len(loops) == 2
    body = loops[1].attrs["body"]
    assert [n.op.name for n in body.nodes].count("dot_general") == 1
    assert not any(n.op.name in ("pad", "reduce_sum", "tanh", "logistic") for n in body.nodes)
    assert len([n for n in back.nodes if n.op.name == "dot_general"]) == 3


def test_loop_in_a_loop() -> None:
    rng = np.random.default_rng(SEED)
    values = {"x": rng.normal(size=(4, 3, 2)), "w": rng.normal(size=(2, 2)), "h": rng.normal(size=2)}
    v = {k: li.input(k, a.shape, "f64") for k, a in values.items()}

    def inner(h: Any, x: Any, w: Any) -> Any:
        h = li.tanh(x + h @ w)
        return h, h

    def outer(h: Any, xs: Any, w: Any) -> Any:
        h, ys = li.scan(inner, h, xs, (w,), reverse=True)
        return h, li.sum(ys * ys)

    h, ys = li.scan(outer, v["h"], v["x"], (v["w"],))
    graph = li.Graph("g", v.values(), {"loss": li.sum(ys) + li.sum(h)})
    for remat in (None, 2):
        check(graph, grad(graph, "loss", ["x", "w", "h"], remat=remat), values, ["x", "w", "h"])


def test_a_layer_inside_a_loop() -> None:
    """A body may hold core ops: their saving twins are stacked with the rest."""
    rng = np.random.default_rng(SEED)
    shapes = {"x": (5, B, I), "w": (4 * H, I), "u": (4 * H, H), "h": (B, H), "c": (B, H)}
    values = {k: rng.normal(size=s) for k, s in shapes.items()}
    v = {k: li.input(k, a.shape, "f64") for k, a in values.items()}

    def cell(state: Any, x: Any, w: Any, u: Any) -> Any:
        y, h, c = li.lstm(li.expand_dims(x, 0), w, u, None, *state)
        return (h[0], c[0]), y[0]

    (h, c), ys = li.scan(cell, (v["h"], v["c"]), v["x"], (v["w"], v["u"]))
    graph = li.Graph("g", v.values(), {"loss": li.sum(ys * ys) + li.sum(h) + li.sum(c)})
    for remat in (None, 2):
        check(graph, grad(graph, "loss", list(values), remat=remat), values, list(values))


def test_integers_pass_by() -> None:
    """Scanned indices and an integer carry have no gradient and disturb none."""
    table = np.random.default_rng(SEED).normal(size=(6, 4))
    tokens = np.array([[1, 5], [0, 0], [3, 1]], np.int32)
    t, k = li.input("table", (6, 4), "f64"), li.input("tokens", ("T", 2), "i32")
    h0 = li.zeros((2, 4), "f64")

    def cell(state: Any, ids: Any, table: Any) -> Any:
        h, n = state
        h = li.tanh(h + li.take(table, ids, 0))
        return (h, n + 1), h

    (h, _), ys = li.scan(cell, (h0, li.constant(0)), k, (t,))
    graph = li.Graph("g", [t, k], {"loss": li.sum(ys) + li.sum(h * h)})
    check(graph, grad(graph, "loss", ["table"]), {"table": table, "tokens": tokens}, ["table"])


def test_second_derivative_of_a_loop() -> None:
    graph, values = model("lstm", dynamic=False, length=3)
    first = grad(graph, "loss", ["x", "u"])
    again = li.Graph("h", first.params, {"loss": li.sum(first.output("d_x") * first.output("d_x"))})
    check(again, grad(again, "loss", ["x", "u", "b"]), values, ["x", "u", "b"])


@pytest.mark.parametrize("remat", [None, 2, (3, 2)], ids=str)
@pytest.mark.parametrize("way", [{}, {"count": 3}, {"reverse": True}, {"lengths": np.array([2, 5, 0])}], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_that_are_picked_from_a_constant(axis: int, way: dict[str, Any], remat: Any) -> None:
    """By what a step reads and by what it computes, a number or one for each row: one sum for each after the loop."""
    x, ids, w = li.input("x", ("T", 3, 4), "f64"), li.input("ids", ("T", 3), "i32"), li.input("w", (6, 6), "f64")

    def cell(h: li.Value, row: Any) -> tuple[li.Value, li.Value]:
        given, read = row
        best = li.argmax(li.take(h, 0, axis=0), 0)  # a number: w[best]
        wide = li.take(w, read, axis=axis) if axis == 0 else li.transpose(li.take(w, read, axis=1), (1, 0))
        h = li.tanh(0.3 * h + given + wide[:, :4] * 0.5 + li.expand_dims(li.take(w, best, axis=axis)[:4], 0))
        return h, h

    y = li.scan(cell, li.zeros((3, 4), "f64"), (x, ids), **way)[1]
    graph = li.Graph("picked", [x, ids, w], {"loss": li.sum(y * y)})
    back = grad(graph, "loss", ["x", "w"], remat=remat)
    assert not [n for n in back.nodes for m in bodies(n) if m.op.name == "scatter_add"]
    rng = np.random.default_rng(SEED)
    values = {"x": rng.standard_normal((5, 3, 4)), "ids": rng.integers(0, 6, (5, 3)).astype(np.int32)}
    check(graph, back, {**values, "w": rng.standard_normal((6, 6))}, ["x", "w"])


def bodies(n: li.Node) -> list[li.Node]:
    """The nodes of a loop's body, and of loops in it, but for loops of all steps of a segment."""
    if n.op.name != "scan":
        return []
    own = list(n.attrs["body"].nodes)
    return [] if any(m.op.name == "scan" for m in own) else own
