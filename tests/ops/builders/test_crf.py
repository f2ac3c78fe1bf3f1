"""The CRF's loss and best path against all paths, in f64; lengths, masks, and what is not there."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

Array = np.ndarray[Any, Any]
T, B, C = 5, 4, 3
LENGTHS = np.array([5, 1, 0, 3], np.int32)
STEPS = np.arange(T)[:, None] < LENGTHS
HOLES = np.array([[1, 0, 0, 0], [1, 0, 0, 1], [0, 1, 0, 0], [1, 1, 0, 1], [0, 0, 0, 1]], bool)
FORMS = ("all", "lengths", "mask")


def there(form: str) -> Array:
    return {"all": np.ones((T, B), bool), "lengths": STEPS, "mask": HOLES}[form]


def score(path: Any, rows: Array, moves: Array, start: Array, end: Array) -> float:
    if not len(path):
        return 0.0
    total = start[path[0]] + end[path[-1]] + sum(rows[t, y] for t, y in enumerate(path))
    return float(total + sum(moves[a, b] for a, b in pairwise(path)))


def brute(x: Array, tags: Array, moves: Array, start: Array, end: Array, steps: Array) -> tuple[Array, Array, Array]:
    """Losses, best tags and their scores, from every path of every row."""
    losses, best, tops = [], np.zeros((T, B), int), []
    for b in range(B):
        kept = steps[:, b]
        rows, gold = x[kept, b], tags[kept, b]
        paths = list(product(range(C), repeat=len(rows)))
        scores = np.array([score(p, rows, moves, start, end) for p in paths])
        losses.append(np.logaddexp.reduce(scores) - score(gold, rows, moves, start, end))
        tops.append(scores.max())
        best[kept, b] = paths[int(scores.argmax())]
    return np.array(losses), best, np.array(tops)


def operands(rng: np.random.Generator, form: str, dtype: str = "f8") -> dict[str, Array]:
    x = 2 * rng.standard_normal((T, B, C))
    tags = rng.integers(0, C, (T, B))
    moves, start, end = rng.standard_normal((C, C)), rng.standard_normal(C), rng.standard_normal(C)
    given = {"x": x, "moves": moves, "start": start, "end": end}
    return {n: a.astype(dtype) for n, a in given.items()} | {"tags": tags.astype(np.int32)}


def behind(given: dict[str, Array], form: str) -> dict[str, Array]:
    """What is not there may be anything."""
    steps = there(form)
    more = {"lengths": {"lengths": LENGTHS}, "mask": {"mask": HOLES}, "all": {}}[form]
    x = np.where(steps[:, :, None], given["x"], np.nan).astype(given["x"].dtype)
    return given | {"x": x, "tags": np.where(steps, given["tags"], -7).astype(np.int32)} | more


def graphs(form: str, dtype: str, named: bool, reduction: str = "none") -> li.Graph:
    t, b = ("T", "B") if named else (T, B)
    x, tags = li.input("x", (t, b, C), dtype), li.input("tags", (t, b), "i32")
    moves, start, end = li.input("moves", (C, C), dtype), li.input("start", (C,), dtype), li.input("end", (C,), dtype)
    more = {"lengths": [li.input("lengths", (b,), "i32")], "mask": [li.input("mask", (t, b), "i1")], "all": []}[form]
    which: dict[str, Any] = {form: more[0]} if more else {}
    loss = li.crf_loss(x, tags, moves, start, end, **which, reduction=reduction)
    best = li.crf_decode(x, moves, start, end, **which)
    outputs = {"losses": loss, "loss": li.sum(loss), "best": best.tags, "score": best.score}
    return li.Graph("crf", [x, tags, moves, start, end, *more], outputs)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_against_all_paths(form: str, named: bool, rng: np.random.Generator) -> None:
    plain = operands(rng, form)
    given = behind(plain, form)
    want, best, tops = brute(plain["x"], plain["tags"], plain["moves"], plain["start"], plain["end"], there(form))
    g = graphs(form, "f64", named)
    wide = li.grad(g, "loss", ["x", "moves", "start", "end"])
    slopes = {n: numeric(plain, n, there(form)) for n in ("x", "moves", "start", "end")}
    with li.compile(li.Program("crf", {"value": g, "grad": wide})) as exe:
        for value, grad in (
            (li.interpret(g, given), li.interpret(wide, given)),
            (exe.entries["value"](given), exe.entries["grad"](given)),
        ):
            np.testing.assert_allclose(value["losses"], want, rtol=1e-10, atol=1e-10)
            np.testing.assert_array_equal(value["best"], best)
            np.testing.assert_allclose(value["score"], tops, rtol=1e-10, atol=1e-10)
            for n, slope in slopes.items():
                np.testing.assert_allclose(grad[f"d_{n}"], slope, rtol=0, atol=2e-7, err_msg=n)


def numeric(plain: dict[str, Array], name: str, steps: Array) -> Array:
    """Differences of the sum of losses over all paths."""
    out, near = np.zeros_like(plain[name]), 1e-5
    for i in np.ndindex(out.shape):
        sides = []
        for by in (near, -near):
            moved = {n: a.copy() for n, a in plain.items()}
            moved[name][i] += by
            sides.append(brute(moved["x"], moved["tags"], moved["moves"], moved["start"], moved["end"], steps)[0].sum())
        out[i] = (sides[0] - sides[1]) / (2 * near)
    return out


@pytest.mark.parametrize(("dtype", "limit"), [("f32", 2e-5), ("bf16", 3e-2), ("f16", 4e-3)])
def test_other_types(dtype: str, limit: float, rng: np.random.Generator) -> None:
    kind = li.DType(dtype).numpy
    plain = {n: a if a.dtype.kind == "i" else a.astype(kind) for n, a in operands(rng, "lengths").items()}
    wide = {n: a.astype("f8") if a.dtype.kind != "i" else a for n, a in plain.items()}
    want, *_ = brute(wide["x"], wide["tags"], wide["moves"], wide["start"], wide["end"], STEPS)
    g = graphs("lengths", dtype, True)
    given = behind(plain, "lengths")
    with li.compile(g) as exe:
        for out in (li.interpret(g, given), exe(given)):
            np.testing.assert_allclose(out["losses"].astype("f8"), want, rtol=limit, atol=limit)


@pytest.mark.vulkan
def test_on_vulkan(rng: np.random.Generator) -> None:
    need("vulkan")
    plain = operands(rng, "lengths", "f4")
    given = behind(plain, "lengths")
    wide = {n: a.astype("f8") if a.dtype.kind != "i" else a for n, a in plain.items()}
    want, best, _ = brute(wide["x"], wide["tags"], wide["moves"], wide["start"], wide["end"], STEPS)
    with li.compile(graphs("lengths", "f32", True), target="vulkan") as exe:
        out = exe(given)
    np.testing.assert_allclose(out["losses"], want, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(out["best"], best)


def test_reductions_and_defaults(rng: np.random.Generator) -> None:
    plain = operands(rng, "all")
    zero = np.zeros(C)
    want, best, _ = brute(plain["x"], plain["tags"], plain["moves"], zero, zero, there("all"))
    x, moves = li.input("x", (T, B, C), "f64"), li.constant(plain["moves"])
    outputs = {r: li.crf_loss(x, plain["tags"], moves, reduction=r) for r in ("none", "sum", "mean")}
    out = li.interpret(li.Graph("g", [x], outputs | {"best": li.crf_decode(x, moves).tags}), x=plain["x"])
    for r, w in (("none", want), ("sum", want.sum()), ("mean", want.mean())):
        np.testing.assert_allclose(out[r], w, rtol=1e-12)
    np.testing.assert_array_equal(out["best"], best)


def test_moves_that_cannot_be(rng: np.random.Generator) -> None:
    """A transition of -inf is not on the best path, and has no NaN in gradients of the others."""
    plain = operands(rng, "all")
    plain["moves"][0, 1] = plain["moves"][2, 2] = -np.inf
    plain["tags"] = np.tile(np.array([[0], [0], [2], [1], [1]], np.int32), (1, B))
    want, best, _ = brute(plain["x"], plain["tags"], plain["moves"], plain["start"], plain["end"], there("all"))
    g = graphs("all", "f64", False)
    out = li.interpret(g, plain)
    np.testing.assert_allclose(out["losses"], want, rtol=1e-10)
    np.testing.assert_array_equal(out["best"], best)
    found = li.interpret(li.grad(g, "loss", ["x", "moves"]), plain)
    assert np.isfinite(found["d_x"]).all()
    assert np.isfinite(found["d_moves"]).all()


def test_no_rows_and_no_steps() -> None:
    g = graphs("lengths", "f64", True)
    shapes = {"moves": (C, C), "start": (C,), "end": (C,)}
    fixed = {n: np.zeros(s) for n, s in shapes.items()}
    with li.compile(g) as exe:
        for run in (lambda a: li.interpret(g, a), exe):
            for t, b in ((0, 2), (3, 0)):
                out = run(fixed | {"x": np.zeros((t, b, C)), "tags": np.zeros((t, b), np.int32),
                                   "lengths": np.zeros(b, np.int32)})  # fmt: skip
                np.testing.assert_array_equal(out["losses"], np.zeros(b))
                assert out["best"].shape == (t, b)


X = li.input("x", (T, B, C))
TAGS = li.input("tags", (T, B), "i32")
MOVES = li.input("moves", (C, C))
REFUSED: dict[str, Callable[[], object]] = {
    "emissions are floats": lambda: li.crf_loss(X, TAGS, li.input("m", (C, 2))),
    "tags are integers": lambda: li.crf_loss(X, X, MOVES),
    "start is f32": lambda: li.crf_loss(X, TAGS, MOVES, np.zeros(2, "f4")),
    "mask is f32": lambda: li.crf_decode(X, MOVES, mask=np.zeros((T, B), "f4")),
    "lengths are i32": lambda: li.crf_decode(X, MOVES, lengths=np.zeros(2, "i4")),
    "reduction is 'all'": lambda: li.crf_loss(X, TAGS, MOVES, reduction="all"),
    "since lengths are given": lambda: li.crf_decode(X, MOVES, lengths=LENGTHS, mask=HOLES),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_refused(problem: str) -> None:
    with pytest.raises(li.IRError, match=problem):
        REFUSED[problem]()


def test_a_tag_that_is_none_is_refused_at_the_call() -> None:
    g = li.Graph("g", [X, TAGS, MOVES], {"loss": li.crf_loss(X, TAGS, MOVES)})
    given = {"x": np.zeros((T, B, C), "f4"), "tags": np.full((T, B), C, np.int32), "moves": np.zeros((C, C), "f4")}
    with pytest.raises(li.ValueRangeError, match=r"holds 3, outside 0\.\.2"):
        li.interpret(g, given)
