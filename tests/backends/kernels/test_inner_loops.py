"""Loops inside of a body whose carries are numbers of a row: part of the kernel, and equal to NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ops.nn.threefry import number_key

Array = np.ndarray[Any, Any]
T, B, N = 5, 3, 37
HALVINGS = 40


def run(graph: li.Graph, given: dict[str, Array], kernel: bool = True) -> dict[str, Array]:
    """What the graph gives compiled; whether its outer loop is a kernel."""
    with li.compile(graph) as exe:
        notes = [n for n in exe.report.notes if n.startswith("scan at")]
        assert (": kernel, " in notes[0]) is kernel, notes
        assert len(notes) == 1 or not kernel
        out: dict[str, Array] = exe(given)
        return out


def sparsemax(scores: li.Value) -> li.Value:
    """Along the last axis: the threshold is found by halves."""
    halves = li.constant(0.5 ** np.arange(1, HALVINGS + 1), scores.dtype)

    def turn(low: li.Value, half: li.Value) -> tuple[li.Value, None]:
        middle = low + half
        total = li.sum(li.maximum(scores - li.expand_dims(middle, -1), 0.0), -1)
        return li.select(li.greater_equal(total, 1.0), middle, low), None

    low, _ = li.scan(turn, li.max(scores, -1) - 1.0, halves, name="halves")
    return li.maximum(scores - li.expand_dims(low, -1), 0.0)


def sorted_sparsemax(scores: Array) -> Array:
    """Martins and Astudillo, "From softmax to sparsemax", ICML 2016, algorithm 1."""
    z = -np.sort(-scores.astype("f8"), -1)
    k = np.arange(1, z.shape[-1] + 1)
    total = np.cumsum(z, -1) - 1
    support = (z * k > total).sum(-1, keepdims=True)
    tau = np.take_along_axis(total, support - 1, -1) / support
    out: Array = np.maximum(scores - tau, 0)
    return out


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("rows", [1, B, "B"])
@pytest.mark.parametrize("n", [N, 64])
def test_sparse_attention(n: int, rows: Any, dtype: str, rng: np.random.Generator) -> None:
    """h = tanh(x W + sparsemax(scores of h) memory)."""
    x, memory = li.input("x", (T, rows, n), dtype), li.input("memory", (n, n), dtype)
    w = li.input("w", (n, n), dtype)

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        p = sparsemax(h @ w + row)
        return li.tanh(row + p @ memory), p

    last, p = li.scan(cell, li.zeros((rows, n), dtype), x)
    many = 5 if rows == "B" else rows
    kind = np.float32 if dtype == "f32" else np.float64
    given = {"x": 2 * rng.normal(size=(T, many, n)), "memory": rng.normal(size=(n, n)) / 4}
    given["w"] = rng.normal(size=(n, n)) / 8
    given = {k: a.astype(kind) for k, a in given.items()}
    got = run(li.Graph("g", [x, memory, w], {"last": last, "p": p}), given)
    h = np.zeros((many, n))
    for t in range(T):
        want = sorted_sparsemax(h @ given["w"].astype("f8") + given["x"][t])
        np.testing.assert_allclose(got["p"][t], want, atol=2e-5 if dtype == "f32" else 1e-11)
        assert (want == 0).any()
        h = np.tanh(given["x"][t] + want @ given["memory"].astype("f8"))
    np.testing.assert_allclose(got["last"], h, atol=5e-5 if dtype == "f32" else 1e-11)


def test_a_root_of_each_head(rng: np.random.Generator) -> None:
    """u with sum tanh(s - u) = 0 by Newton's steps, for two heads; a carry keeps its axis of size 1."""
    x = li.input("x", (T, 2, B, N))

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        s = h + row

        def turn(u: li.Value, _: Any) -> tuple[li.Value, None]:
            y = li.tanh(s - u)
            slope = li.sum(1.0 - y * y, -1, keepdims=True)
            return u + li.sum(y, -1, keepdims=True) / slope, None

        u, _ = li.scan(turn, li.mean(s, -1, keepdims=True), length=20, name="newton")
        return li.tanh(s - u), u

    last, u = li.scan(cell, li.zeros((2, B, N)), x)
    given = rng.normal(size=(T, 2, B, N)).astype("f4")
    got = run(li.Graph("g", [x], {"last": last, "u": u}), {"x": given})
    h = np.zeros((2, B, N))
    for t in range(T):
        s = h + given[t]
        h = np.tanh(s - got["u"][t])
        assert np.abs(h.sum(-1)).max() < 2e-4
    np.testing.assert_allclose(got["last"], h, atol=1e-5)


def test_a_sum_of_a_turn_that_reads_another_one(rng: np.random.Generator) -> None:
    """The gain at which tanh of a row has a deviation of 1/2: a mean and a variance in each turn."""
    x = li.input("x", (T, B, N))

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, None]:
        s = h + row

        def turn(gain: li.Value, half: li.Value) -> tuple[li.Value, None]:
            y = li.tanh(s * li.expand_dims(gain + half, -1))
            apart = y - li.mean(y, -1, keepdims=True)
            return li.select(li.less(li.mean(apart * apart, -1), 0.25), gain + half, gain), None

        gain, _ = li.scan(turn, li.zeros((B,)), li.constant(4.0 * 0.5 ** np.arange(30), "f32"), name="gain")
        return li.tanh(s * li.expand_dims(gain, -1)), None

    last, _ = li.scan(cell, li.zeros((B, N)), x)
    a = rng.normal(size=(T, B, N)).astype("f4")
    got = run(li.Graph("g", [x], {"last": last}), {"x": a})["last"]
    np.testing.assert_allclose(got.std(-1), 0.5, atol=1e-5)
    h = np.zeros((B, N))
    for row in a.astype("f8"):
        s, gain = h + row, np.zeros(B)
        for half in 4 * 0.5 ** np.arange(30):
            y = np.tanh(s * (gain + half)[:, None])
            gain = np.where(y.std(-1) < 0.5, gain + half, gain)
        h = np.tanh(s * gain[:, None])
    np.testing.assert_allclose(got, h, atol=1e-4)


@pytest.mark.parametrize("reads", ["input", "computed"])
def test_rows_that_turns_scan(reads: str, rng: np.random.Generator) -> None:
    """A polynomial by Horner's rule, whose coefficients are columns of a row, at a point that the carry says."""
    k = 20
    x = li.input("x", (T, B, k))

    def cell(u: li.Value, row: li.Value) -> tuple[li.Value, None]:
        row = row if reads == "input" else li.tanh(row * li.expand_dims(u, -1))

        def turn(total: li.Value, coefficient: li.Value) -> tuple[li.Value, None]:
            return total * u + coefficient, None

        total, _ = li.scan(turn, li.zeros((B,)), li.transpose(row), name="horner")
        return li.tanh(total), None

    last, _ = li.scan(cell, li.full((B,), 0.5), x)
    g, a = li.Graph("g", [x], {"last": last}), rng.normal(size=(T, B, k)).astype("f4")
    u = np.full(B, 0.5)
    for row in a.astype("f8"):
        row = row if reads == "input" else np.tanh(row * u[:, None])
        u = np.tanh([np.polyval(c, at) for c, at in zip(row, u, strict=True)])
    np.testing.assert_allclose(li.interpret(g, x=a)["last"], u, atol=1e-5)
    np.testing.assert_allclose(run(g, {"x": a})["last"], u, atol=1e-5)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_integers(dtype: str, rng: np.random.Generator) -> None:
    """The greatest common divisor by Euclid's steps, two numbers and the turn that found it."""
    x = li.input("x", (T, B), dtype)

    def cell(d: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        zero = li.constant(0, d.dtype)

        def turn(pair: Any, _: Any, number: li.Value) -> Any:
            a, b, end = pair
            goes = li.not_equal(b, zero)
            rest = li.remainder(a, li.select(goes, b, li.constant(1, d.dtype)))
            return (li.select(goes, b, a), li.select(goes, rest, zero), li.select(goes, number + 1, end)), None

        (found, _, end), _ = li.scan(turn, (d, row, li.zeros((B,), "i32")), length=50, with_step=True, name="euclid")
        return found, end

    last, ends = li.scan(cell, li.full((B,), 720720, dtype), x)
    a = rng.integers(1, 2**20, (T, B)) * 12
    got = run(li.Graph("g", [x], {"last": last, "ends": ends}), {"x": a.astype(x.dtype.numpy)})
    assert (got["last"] == [math.gcd(720720, *map(int, c)) for c in a.T]).all()
    assert (got["ends"][0] > 1).all()
    assert (got["ends"] < 50).all()


def test_a_loop_in_it(rng: np.random.Generator) -> None:
    """sqrt of the row's length by Newton's steps, so many for each of 20 turns that halve it."""
    x = li.input("x", (T, B, N))

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, None]:
        s = h + row

        def turn(u: li.Value, _: Any) -> tuple[li.Value, None]:
            wanted = li.sum(s * s, -1) + u
            root, _ = li.scan(lambda r, _: (0.5 * (r + wanted / r), None), wanted, length=24, name="root")
            return 0.5 * root, None

        u, _ = li.scan(turn, li.zeros((B,)), length=20, name="turns")
        return li.tanh(s / li.expand_dims(u, -1)), None

    last, _ = li.scan(cell, li.zeros((B, N)), x)
    a = rng.normal(size=(T, B, N)).astype("f4")
    got = run(li.Graph("g", [x], {"last": last}), {"x": a})["last"]
    h = np.zeros((B, N))
    for row in a:
        s, u = h + row, np.zeros(B)
        for _ in range(20):
            u = 0.5 * np.sqrt((s * s).sum(-1) + u)
        h = np.tanh(s / u[:, None])
    np.testing.assert_allclose(got, h, atol=2e-5)


@pytest.mark.parametrize("rows", [1, 5, "B"])
@pytest.mark.parametrize("options", [{"top_k": 40}, {"top_p": 0.8}, {"top_k": 200, "top_p": 0.6}], ids=str)
def test_draws_of_many_tokens(options: dict[str, Any], rows: Any, rng: np.random.Generator) -> None:
    """A state that a drawn token changes; every draw lies in what NumPy's order keeps."""
    n, width = 300, 16
    key, table, w = li.input("key", (2,), "u32"), li.input("table", (n, width)), li.input("w", (width, n))
    first = li.input("first", (rows,), "i32")

    def step(state: Any, _: Any, step: Any) -> Any:
        h, token = state
        h = li.tanh(0.5 * h + li.take(table, token, 0))
        logits = h @ w
        token = li.sample(logits, li.random_key(key, step), 0.8, **options)
        return (h, token), (token, logits)

    start = (li.zeros((rows, width)), first)
    _, (tokens, logits) = li.scan(step, start, None, length=12, with_step=True)
    g = li.Graph("g", [key, table, w, first], {"tokens": tokens, "logits": logits})
    many = 4 if rows == "B" else rows
    given = {"key": number_key(7), "table": rng.normal(size=(n, width)).astype("f4")}
    given |= {"w": rng.normal(size=(width, n)).astype("f4"), "first": rng.integers(0, n, many).astype("i4")}
    got = run(g, given)
    for row, chosen in zip(got["logits"].reshape(-1, n), got["tokens"].ravel(), strict=True):
        order = np.argsort(-row, kind="stable")[: options.get("top_k", n)]
        p = np.exp((row[order].astype("f8") - row.max()) / 0.8)
        p /= p.sum()
        kept = order[np.cumsum(p) - p < options.get("top_p", 2) + 1e-6]
        assert chosen in kept
    assert len(np.unique(got["tokens"])) > 4
    want = li.interpret(g, given)
    np.testing.assert_array_equal(got["tokens"], want["tokens"])


def test_what_stays_a_loop(rng: np.random.Generator) -> None:
    """Rows as a carry, stacked results, a computed number of turns, many numbers, an end, rows in reverse: right."""
    x = li.input("x", (T, B, N))
    a = rng.normal(size=(T, B, N)).astype("f4")

    def of(turns: Any) -> li.Graph:
        last, _ = li.scan(lambda h, row: (li.tanh(turns(h + row)), None), li.zeros((B, N)), x)
        return li.Graph("g", [x], {"last": last})

    def row(s: li.Value) -> li.Value:
        return li.scan(lambda h, _: (li.tanh(h + s), None), s, length=30)[0]  # type: ignore[no-any-return]

    def stacked(s: li.Value) -> li.Value:
        _, made = li.scan(lambda u, _: (0.5 * u + li.sum(s, -1), u), li.zeros((B,)), length=30)
        return s + li.expand_dims(li.sum(made, 0), -1)

    def counted(s: li.Value) -> li.Value:
        count = li.convert(li.max(s) > 0, "i32")
        u, _ = li.scan(lambda u, _: (u + li.sum(s, -1), None), li.zeros((B,)), length=30, count=count)
        return s + li.expand_dims(u, -1)

    def many(s: li.Value) -> li.Value:
        start = tuple(s[:, k] for k in range(20))
        last, _ = li.scan(lambda u, _: ((*u[1:], 0.5 * (u[0] + u[1])), None), start, length=30)
        return s + li.expand_dims(last[0], -1)

    def ending(s: li.Value) -> li.Value:
        u, _, _ = li.scan(
            lambda u, _: (0.5 * u, None), li.sum(s * s, -1), length=30, until=lambda u, _: li.less(li.max(u), 1.0)
        )
        return s + li.expand_dims(u, -1)

    def backward(s: li.Value) -> li.Value:
        u, _ = li.scan(lambda u, r: (0.5 * u + r, None), li.zeros((B,)), li.transpose(s), reverse=True)
        return s + li.expand_dims(u, -1)

    for turns in (row, stacked, counted, many, ending, backward):
        g = of(turns)
        np.testing.assert_allclose(run(g, {"x": a}, kernel=False)["last"], li.interpret(g, x=a)["last"], atol=2e-5)
