"""Draws with temperature, top_k and top_p: what may be drawn, how often, and in bodies of loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need
from likely import of_classes

import lstm_ir as li
from lstm_ir.ops.nn.threefry import folded, number_key
from lstm_ir.ops.scan.order import first_by_weight, keys

Array = np.ndarray[Any, Any]
V, N = 9, 20011
LOGITS = np.random.default_rng(4).normal(size=V).astype("f4") * 1.5


def chances(logits: Array, temperature: float, top_k: int | None, top_p: float | None) -> Array:
    """Probabilities after the filters, by sorting."""
    x = logits.astype("f8") / temperature
    order = np.argsort(-x, kind="stable")[: len(x) if top_k is None else top_k]
    p = np.exp(x[order] - x[order].max())
    p /= p.sum()
    if top_p is not None:
        kept = np.cumsum(p) - p < top_p
        order, p = order[kept], p[kept] / p[kept].sum()
    out = np.zeros(len(x))
    out[order] = p
    return out


CASES: list[dict[str, Any]] = [
    {}, {"temperature": 0.5}, {"temperature": 3.0}, {"top_k": 4}, {"top_k": 1}, {"top_p": 0.6}, {"top_p": 1.0},
    {"temperature": 0.7, "top_k": 5, "top_p": 0.8}, {"top_p": 1e-6},
]  # fmt: skip


@pytest.mark.parametrize("options", CASES, ids=str)
@pytest.mark.parametrize(
    "compiled", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["interpreted", "compiled"]
)
def test_how_often(options: dict[str, Any], compiled: bool) -> None:
    key, x = li.input("key", (2,), "u32"), li.input("x", (V,))
    g = li.Graph("g", [key, x], {"y": li.sample(li.broadcast_to(x, (N, V)), key, **options)})
    given = {"key": number_key(11), "x": LOGITS}
    got = (li.compile(g)(given) if compiled else li.interpret(g, given))["y"]
    want = chances(LOGITS, *({"temperature": 1.0, "top_k": None, "top_p": None} | options).values())
    counts = np.bincount(got, minlength=V)
    assert not counts[want == 0].any()
    if (want > 0).sum() > 1:
        of_classes(counts[want > 0], want[want > 0] * N)


def test_zero_takes_the_largest(rng: np.random.Generator) -> None:
    key, x, t = li.input("key", (2,), "u32"), li.input("x", ("B", V)), li.input("t", ("B",))
    outputs = {
        "number": li.sample(x, key, 0.0),
        "value": li.sample(x, key, t * 0.0),
        "filtered": li.sample(x, key, t * 0.0, top_k=3, top_p=0.5),
        "drawn": li.sample(x, key, t),
    }
    g = li.Graph("g", [key, x, t], outputs)
    a = rng.normal(size=(200, V)).astype("f4")
    warm = np.where(np.arange(200) < 100, 0, 5).astype("f4")
    for run in (lambda **k: li.interpret(g, **k), li.compile(g)):
        got = run(key=number_key(3), x=a, t=warm)
        for n in ("number", "value", "filtered"):
            np.testing.assert_array_equal(got[n], a.argmax(1), err_msg=n)
        np.testing.assert_array_equal(got["drawn"][:100], a[:100].argmax(1))
        assert (got["drawn"][100:] != a[100:].argmax(1)).sum() > 30


COLD = [0.0, -1.0, np.nan, 1e-45, 1e-40, 1e-38, 1e-37, 1e-36]
HOT = [1e30, 3e38, np.inf]


@pytest.mark.parametrize("filters", [{}, {"top_k": 2}, {"top_k": 4, "top_p": 0.9}, {"top_p": 0.4}], ids=str)
@pytest.mark.parametrize("n", [5, 200])
def test_extreme_temperatures(n: int, filters: dict[str, Any]) -> None:
    """No quotient overflows: the coldest take the largest logit, the hottest draw evenly of what is kept."""
    warm = np.array(COLD + HOT, "f4")
    key, x, t = li.input("key", (2,), "u32"), li.input("x", ("B", n)), li.input("t", ("B",))
    outputs = {"drawn": li.sample(x, key, t, **filters), "cold": li.sample(x, key, 1e-38, **filters)}
    outputs["hot"] = li.sample(x, key, 1e37, **filters)
    g = li.Graph("g", [key, x, t], outputs)
    a = np.repeat(np.roll(np.arange(n), 2)[None].astype("f4") * 40, 40 * len(warm), 0)
    kept = np.argsort(-a[0], kind="stable")[: filters.get("top_k", n)]
    cold = np.repeat(np.arange(len(warm)) < len(COLD), 40)
    for run in (lambda **k: li.interpret(g, **k), li.compile(g)):
        got = run(key=number_key(3), x=a, t=np.repeat(warm, 40))
        np.testing.assert_array_equal(got["drawn"][cold], a.argmax(1)[cold])
        np.testing.assert_array_equal(got["cold"], a.argmax(1))
        for drawn in (got["drawn"][~cold], got["hot"]):
            assert set(drawn) <= set(kept)
            assert len(set(drawn)) > min(len(kept), n // 3) // 2


@pytest.mark.parametrize("n", [1, 2, 9, 128, 129, 300])
def test_many_tokens(n: int, rng: np.random.Generator) -> None:
    """Few are compared in pairs, of many the last that is kept is searched."""
    key, x = li.input("key", (2,), "u32"), li.input("x", (3, n))
    k = min(n, 3)
    g = li.Graph("g", [key, x], {"y": li.sample(x, key, top_k=k), "p": li.sample(x, key, top_p=0.3)})
    a = rng.normal(size=(3, n)).astype("f4")
    for s in range(5):
        got = li.interpret(g, key=number_key(s), x=a)
        for row in range(3):
            assert chances(a[row], 1.0, k, None)[got["y"][row]] > 0
            assert chances(a[row], 1.0, None, 0.3)[got["p"][row]] > 0


@pytest.mark.parametrize("n", [12, 128, 129, 400, "V"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "u8"])
def test_first_by_weight(dtype: str, n: Any, rng: np.random.Generator) -> None:
    """Of equal ones the first, where the limit is among them; signs, NaN and weights of 0."""
    rows, many = 4, n if isinstance(n, int) else 150
    x, w = li.input("x", (rows, n), dtype), li.input("w", (rows, n), "i32")
    a = rng.integers(0 if dtype == "u8" else -3, 4, (rows, many)).astype(x.dtype.numpy)
    if x.dtype.is_float:
        a[:, :5] = [-0.0, 0.0, -np.inf, np.inf, np.nan]
    a[0] = a[0, 0]
    weights = rng.integers(0, 3, (rows, many), "i4")
    for down in (False, True) if n == 400 else (True,):
        key = keys(x, down)
        outputs = {f"k{k}": first_by_weight(key, li.constant(1, "i32"), k) for k in (1, many // 3, many + 5)}
        outputs |= {f"w{k}": first_by_weight(key, w, k) for k in (1, many // 3, 3 * many)}
        g = li.Graph("g", [x, w], outputs)
        order = np.argsort(np.argsort(li.interpret(li.Graph("k", [x], {"k": key}), x=a)["k"], 1, kind="stable"), 1)
        earlier = order[:, None] < order[:, :, None]  # [row, i, j]: j comes before i
        given = {"x": a, "w": weights}
        for got in (li.interpret(g, given), li.compile(g)(given)):
            for name, kept in got.items():
                each = weights[:, None] if name[0] == "w" else 1
                np.testing.assert_array_equal(kept, (earlier * each).sum(2) < int(name[1:]), err_msg=name)


def loop(T: Any = 12, **options: Any) -> li.Graph:
    """Tokens that feed back through a table of logits."""
    key, table = li.input("key", (2,), "u32"), li.input("table", (V, V))

    def step(token: Any, _: Any, step: Any) -> Any:
        token = li.sample(li.take(table, token, 0), li.random_key(key, step), **options)
        return token, token

    _, tokens = li.scan(step, li.zeros((4,), "i32"), None, length=T, with_step=True)
    return li.Graph("loop", [key, table], {"tokens": tokens})


@pytest.mark.parametrize("options", [{}, {"temperature": 0.6, "top_k": 4, "top_p": 0.9}], ids=str)
def test_in_a_loop(options: dict[str, Any], rng: np.random.Generator) -> None:
    """Every step has a key of its own, from the key of the call; compiled as interpreted."""
    given = {"key": number_key(2), "table": rng.normal(size=(V, V)).astype("f4")}
    g = loop(**options)
    want = li.interpret(g, given)["tokens"]
    assert len({tuple(r) for r in want.T}) > 1
    np.testing.assert_array_equal(li.compile(g)(given)["tokens"], want)
    other = li.interpret(g, {**given, "key": number_key(3)})["tokens"]
    assert (other != want).any()
    for b in range(4):
        last = 0
        for token in want[:, b]:
            assert chances(given["table"][last], options.get("temperature", 1.0), options.get("top_k"),
                           options.get("top_p"))[token] > 0  # fmt: skip
            last = token


def test_in_a_loop_on_vulkan(rng: np.random.Generator) -> None:
    need("vulkan")
    given = {"key": number_key(2), "table": rng.normal(size=(V, V)).astype("f4")}
    g = loop(top_k=3)
    np.testing.assert_array_equal(li.compile(g, "vulkan")(given)["tokens"], li.interpret(g, given)["tokens"])


def test_key_of_a_key() -> None:
    key = li.input("key", (2,), "u32")
    keys = {"same": li.random_key(key), "stream": li.random_key(key, stream=3), "step": li.random_key(key, 3)}
    got = li.interpret(li.Graph("g", [key], keys), key=number_key(5, 0))
    assert (got["same"] == number_key(5, 0)).all()
    assert (got["stream"] == folded(number_key(5, 0), 3, 0)).all()
    assert (got["step"] == li.interpret(li.Graph("g", [], {"k": li.random_key(5, 3)}))["k"]).all()


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda x: li.sample(x, number_key(0), top_k=0), "top_k is 0; expected a whole number from 1 on"),
        (lambda x: li.sample(x, number_key(0), top_k=V + 1), "top_k is 10; expected at most 9, the number of logits"),
        (lambda x: li.sample(x, number_key(0), top_p=0), "top_p is 0; expected a number above 0, at most 1"),
        (lambda x: li.sample(x, number_key(0), top_p=1.5), "top_p is 1.5"),
        (lambda x: li.sample(x, number_key(0), -1), "temperature is -1; expected a number from 0 on"),
        (lambda x: li.sample(x, np.zeros(3, "u4")), r"the key is u32\[3\], expected u32\[2\]"),
        (lambda x: li.sample(li.sum(x), number_key(0)), "the logits have no axes"),
        (lambda x: li.random_key(x), r"the seed is f32\[9\], expected an integer, or a key"),
    ],
)  # fmt: skip
def test_what_is_refused(build: Any, problem: str) -> None:
    with pytest.raises(li.IRError, match=problem):
        build(li.input("x", (V,)))
