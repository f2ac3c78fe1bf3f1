"""Axes of named sizes in a loop's body, beside the batch: loops of its kernel, whatever the call's sizes are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve

H, R = 6, 5
SIZES = ((4, 3, 7), (3, 2, 1), (5, 1, 2), (2, 3, 33), (3, 17, 16))  # of T, B, S
Body = Callable[..., Any]


def attention(h: Any, row: Any, memory: Any) -> Any:
    """Scores of all places, and what they find."""
    a = li.softmax(li.einsum("bh,bsh->bs", li.tanh(h), memory), 1)
    h = li.tanh(li.einsum("bs,bsh->bh", a, memory) + row)
    return h, (h, a)


def additive(h: Any, row: Any, memory: Any) -> Any:
    """A sum over the columns of each place, behind a function of them."""
    weights = li.constant(np.linspace(-1, 1, H * H).reshape(H, H).astype("f4"), str(h.dtype))
    e = li.sum(li.tanh((h @ weights)[:, None] + memory), 2)
    top = li.max(e, 1, keepdims=True)
    h = li.sum(li.exp(e - top)[:, :, None] * memory, 1) / li.sum(li.exp(e - top), 1, keepdims=True) + row
    return h, h


def shifts(a: Any, row: Any, start: Any) -> Any:
    """Neighbours before and behind, one and two places off, as in connectionist temporal classification."""
    one, two = li.concat([start[:, :1], a[:, :-1]], 1), li.concat([a[:, 1:], start[:, :1]], 1)
    a = li.tanh(a + 0.5 * one - 0.25 * two + row)
    return a, a


def pads(a: Any, row: Any, start: Any) -> Any:
    """The same by pads, of which the boundaries before and behind meet where S is small."""
    around = li.pad(a[:, 1:], (0, 0), (0, 1)) + li.pad(a[:, :-1], (0, 1), (0, 0), value=0.5)
    a = li.tanh(a * start - around + row)
    return a, li.log(li.exp(a) + 1)


def last(a: Any, row: Any, start: Any) -> Any:
    """A queue: the oldest place leaves, the row's sum enters."""
    a = li.concat([a[:, 1:], li.sum(row, 1, keepdims=True)], 1)
    return a, li.max(a * start, 1)


def planes(a: Any, row: Any, start: Any) -> Any:
    """Columns beside the axis, joined along it."""
    moved = li.concat([start, a[:, :-1]], 1)
    a = li.tanh(a + moved * row[:, None] + li.sum(a, 1, keepdims=True))
    return a, li.sum(a, 2)


def masked(a: Any, row: Any, start: Any) -> Any:
    """Integers and conditions."""
    place = li.broadcast_to(li.arange(start.shape[1], dtype="i32"), start.shape)
    a = li.select(li.equal(place % 2, 0) & (start > 0), a + row, a * start)
    return a, li.convert(a > 0, "i32")


def best(h: Any, row: Any, memory: Any) -> Any:
    """The place of the largest score, whose number a later step reads."""
    e = li.einsum("bh,bsh->bs", h, memory)
    at = li.argmax(e, 1)
    h = li.tanh(row + 0.1 * li.convert(at, str(h.dtype))[:, None] + li.max(e, 1, keepdims=True))
    return h, at


# Of each case: the carry beside the batch, the scanned row, what is constant, and the least S.
CASES: dict[str, tuple[Body, tuple[Any, ...], tuple[Any, ...], tuple[Any, ...], int]] = {
    "attention": (attention, (H,), (H,), ("S", H), 1),
    "additive": (additive, (H,), (H,), ("S", H), 1),
    "shifts": (shifts, ("S",), ("S",), ("S",), 1),
    "pads": (pads, ("S",), ("S",), ("S",), 1),
    "last": (last, ("S",), (R,), ("S",), 1),
    "planes": (planes, ("S", H), (H,), (1, H), 1),
    "best": (best, (H,), (H,), ("S", H), 1),
    "masked": (masked, ("S",), ("S",), ("S",), 0),
}


def graph(name: str, dtype: str = "f32", sizes: Sequence[Any] = ("T", "B", "S")) -> li.Graph:
    body, carry, row, constant, _ = CASES[name]
    t, b, s = sizes
    shape = [tuple(s if d == "S" else d for d in part) for part in (carry, row, constant)]
    first, x = li.input("first", (b, *shape[0]), dtype), li.input("x", (t, b, *shape[1]), dtype)
    fixed = li.input("fixed", (b, *shape[2]), dtype)
    final, ys = li.scan(lambda a, r, c: body(a, r, c), first, x, (fixed,))
    ys = ys if isinstance(ys, tuple) else (ys,)
    return li.Graph("g", [first, x, fixed], {"final": final, **{f"y{i}": y for i, y in enumerate(ys)}})


def gradient(name: str, dtype: str = "f32") -> li.Graph:
    made = graph(name, dtype)
    total = li.sum(li.tanh(made.outputs[0]))
    for y in made.outputs[1:]:
        if y.dtype.is_float:
            total = total + li.sum(y * y)
    return li.grad(li.Graph("g", made.params, {"loss": total}), "loss", ["first", "x", "fixed"])


def arrays(g: li.Graph, sizes: tuple[int, int, int], rng: np.random.Generator) -> dict[str, Any]:
    env = dict(zip("TBS", sizes, strict=True))
    shapes = {n: [env.get(str(d), d) for d in v.shape] for n, v in zip(g.input_names, g.params, strict=True)}
    return {n: rng.standard_normal(s).astype(g.params[0].dtype.numpy) for n, s in shapes.items()}


def loops(g: li.Graph, target: str = "cpu:x86-64-v3") -> list[str]:
    notes: list[str] = prepare(g, resolve(target), {"kernels": True}).report.notes
    return [n for n in notes if n.startswith("scan at")]


def compare(exe: li.Executable, g: li.Graph, given: dict[str, Any], bound: float) -> None:
    want, got = li.interpret(g, given), exe(given)
    for n, a in want.items():
        assert got[n].shape == a.shape
        np.testing.assert_allclose(got[n], a, rtol=bound, atol=bound * max(1.0, np.abs(a).max(initial=0)), err_msg=n)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", CASES)
def test_results(name: str, dtype: str, seed: int) -> None:
    g, rng = graph(name, dtype), np.random.default_rng(seed)
    assert [": kernel, " in n for n in loops(g)] == [True]
    sizes = [s for s in (*SIZES, (3, 2, 0), (0, 2, 3), (2, 0, 3)) if s[2] >= CASES[name][4]]
    with li.compile(g) as exe:
        for size in sizes:
            compare(exe, g, arrays(g, size, rng), 1e-5 if dtype == "f32" else 1e-13)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, seed: int) -> None:
    g, rng = gradient(name), np.random.default_rng(seed)
    assert all(": kernel, " in n for n in loops(g))
    with li.compile(g) as exe:
        for size in SIZES:
            compare(exe, g, arrays(g, size, rng), 3e-5)


@pytest.mark.parametrize("name", ["shifts", "planes"])
def test_a_number_above_those_that_are_written_out(name: str, seed: int) -> None:
    """Pieces are joined along an axis of 33 places, which a loop counts too."""
    g, rng = graph(name, sizes=("T", "B", 33)), np.random.default_rng(seed)
    assert [": kernel, " in n for n in loops(g)] == [True]
    with li.compile(g) as exe:
        compare(exe, g, arrays(g, (4, 3, 33), rng), 1e-5)


def test_many_joins_whose_order_the_sizes_decide(seed: int) -> None:
    """Three taps to both sides are a kernel for any S, twelve stay a loop."""

    def made(taps: int) -> li.Graph:
        x, first = li.input("x", ("T", "B", "S")), li.input("first", ("B", "S"))

        def cell(a: Any, row: Any) -> Any:
            total = row
            for k in range(1, taps + 1):
                total = total + li.pad(a[:, k:], (0, 0), (0, k)) * (0.3 / k) - li.pad(a[:, :-k], (0, k), (0, 0)) / 4
            return (n := li.tanh(total)), n

        final, y = li.scan(cell, first, x)
        return li.Graph("g", [x, first], {"final": final, "y": y})

    assert ["more than 32 joins" in n for n in loops(made(12))] == [True]
    g, rng = made(3), np.random.default_rng(seed)
    assert [": kernel, " in n for n in loops(g)] == [True]
    with li.compile(g) as exe:
        for s in (3, 4, 5, 6, 7, 40):
            shapes = {"x": (4, 2, s), "first": (2, s)}
            compare(exe, g, {n: rng.standard_normal(v).astype("f4") for n, v in shapes.items()}, 1e-5)


def test_two_named_axes(seed: int) -> None:
    """Both are loops, one inside of the other."""
    x, m = li.input("x", ("T", "B", H)), li.input("m", ("B", "S", "R", H))

    def cell(h: Any, row: Any, m: Any) -> Any:
        e = li.einsum("bh,bsrh->bsr", h, m)
        h = li.tanh(li.einsum("bsr,bsrh->bh", li.logistic(e), m) + row)
        return h, (h, li.max(e, 2))

    first = li.zeros(("B", H))
    h, (y, top) = li.scan(cell, first, x, (m,))
    g = li.Graph("g", [x, m], {"h": h, "y": y, "top": top})
    assert [": kernel, " in n for n in loops(g)] == [True]
    rng = np.random.default_rng(seed)
    with li.compile(g) as exe:
        for b, s, r in ((3, 4, 2), (1, 1, 5), (2, 17, 3)):
            shapes = {"x": (4, b, H), "m": (b, s, r, H)}
            compare(exe, g, {n: 0.5 * rng.standard_normal(v).astype("f4") for n, v in shapes.items()}, 1e-5)


def test_steps_that_rows_do_not_have(seed: int) -> None:
    """Lengths of rows, and rows of stacked results behind them are zero."""
    x, first = li.input("x", ("T", "B", "S")), li.input("first", ("B", "S"))
    n = li.input("n", ("B",), "i32")

    def cell(a: Any, r: Any) -> Any:
        a = li.tanh(a + li.pad(r[:, 1:], (0, 0), (0, 1)))
        return a, a

    final, y = li.scan(cell, first, x, lengths=n, reverse=True)
    g = li.Graph("g", [x, first, n], {"final": final, "y": y})
    assert [": kernel, " in n for n in loops(g)] == [True]
    rng = np.random.default_rng(seed)
    with li.compile(g) as exe:
        for t, b, s in SIZES:
            given = {"x": rng.standard_normal((t, b, s)).astype("f4"), "n": rng.integers(0, t + 1, b).astype("i4"),
                     "first": rng.standard_normal((b, s)).astype("f4")}  # fmt: skip
            compare(exe, g, given, 1e-5)


def test_without_a_batch(seed: int) -> None:
    """One row: a matrix of a named size is read once for it."""
    x, m = li.input("x", ("T", 1, H)), li.input("m", ("S", H))

    def cell(h: Any, row: Any, m: Any) -> Any:
        a = li.softmax(li.einsum("bh,sh->bs", h, m), 1)
        h = li.tanh(li.einsum("bs,sh->bh", a, m) + row)
        return h, a

    h, y = li.scan(cell, li.zeros((1, H)), x, (m,))
    g = li.Graph("g", [x, m], {"h": h, "y": y})
    assert [": kernel, " in n for n in loops(g)] == [True]
    rng = np.random.default_rng(seed)
    with li.compile(g) as exe:
        for s in (1, 4, 33):
            given = {"x": rng.standard_normal((5, 1, H)).astype("f4"), "m": rng.standard_normal((s, H)).astype("f4")}
            compare(exe, g, given, 1e-5)


def test_ctc_is_two_kernels() -> None:
    """The loss and its gradient, with every size named."""
    logits, labels = li.input("logits", ("T", "B", 9)), li.input("labels", ("B", "S"), "i32")
    steps, count = li.input("steps", ("B",), "i32"), li.input("count", ("B",), "i32")
    loss = li.ctc_loss(logits, labels, steps, count, reduction="sum")
    g = li.grad(li.Graph("g", [logits, labels, steps, count], {"loss": loss}), "loss", ["logits"])
    assert [": kernel, " in n for n in loops(g)] == [True, True]


MEETING: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda s: li.softmax(s, 2),
    "largest": lambda s: s - li.max(s, 2, keepdims=True),
    "mean": lambda s: li.tanh(s - li.mean(s, 2, keepdims=True)),
    "other": lambda s: li.softmax(s, 1),
}


@pytest.mark.parametrize("meeting", MEETING)
def test_all_of_an_axis_meet_each_other(meeting: str, seed: int) -> None:
    """A fold along the axis whose turns are the lanes around it: each lane folds all of them."""
    x, h, w = li.input("x", ("T", "B", "S", 3)), li.input("h", ("B", "S", 3)), np.eye(3, dtype="f4")[[1, 2, 0]]

    def cell(h: Any, x: Any) -> Any:
        shares = MEETING[meeting](li.einsum("bsd,btd->bst", h, x))
        h = li.tanh(0.3 * li.einsum("bst,btd->bsd", shares, h @ li.constant(w)) + x)
        return h, (li.sum(h, 2), h[:, 0])

    last, (total, first) = li.scan(cell, h, x)
    graph, rng = li.Graph("main", [x, h], {"last": last, "total": total, "first": first}), np.random.default_rng(seed)
    with li.compile(graph) as exe:
        assert any(": kernel, " in n for n in exe.report.notes)
        for T, B, S in ((3, 2, 5), (1, 1, 1), (2, 3, 16), (2, 2, 17), (2, 1, 40)):
            given = {n: rng.standard_normal(v, np.float32) for n, v in (("x", (T, B, S, 3)), ("h", (B, S, 3)))}
            compare(exe, graph, given, 2e-5)
