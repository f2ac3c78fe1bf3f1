"""A value that decides has the same bits wherever it is read: extremes, signs, edges, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.backends.emit.decisions import Decisions, decisions
from lstm_ir.backends.run.devices import resolve
from lstm_ir.passes.pipeline import for_target

Array = np.ndarray[Any, Any]
Reduce = Callable[..., li.Value]
SIZES = {"T": 7, "B": 4}
NUMPY = {"f32": np.float32, "f64": np.float64}


def arrays(graph: li.Graph, seed: int, dtype: str) -> dict[str, Array]:
    """Random values of many bits for every input."""
    rng = np.random.default_rng(seed)
    shapes = {p.node.attrs["name"]: [d if isinstance(d, int) else SIZES[str(d)] for d in p.shape] for p in graph.params}
    return {n: rng.standard_normal(s).astype(NUMPY[dtype]) for n, s in shapes.items()}


# -- gradients of extremes


def cells(dtype: str, axis: int, width: int, fixed: bool, reduce: Reduce) -> li.Graph:
    """The gradient of a loop whose cell takes an extreme from a sum with a product in it."""
    T, B = (7, 4) if fixed else ("T", "B")
    x, c0 = li.input("x", (T, B, width), dtype), li.input("c0", (B, width), dtype)

    def cell(c: li.Value, x: li.Value) -> tuple[li.Value, li.Value]:
        v = x + c * 0.3
        h = li.tanh(c * 0.5 + (v - reduce(v, axis=axis, keepdims=True)))
        return h, h

    _, ys = li.scan(cell, c0, x)
    return li.vjp(li.Graph("cells", [x, c0], {"ys": ys}), ["ys"], ["x", "c0"])


def plain(dtype: str, axis: int, width: int, fixed: bool, reduce: Reduce) -> li.Graph:
    """The gradient of one extreme, no loop."""
    T, B = (7, 4) if fixed else ("T", "B")
    x, c0 = li.input("x", (T, B, width), dtype), li.input("c0", (T, B, width), dtype)
    v = x + c0 * 0.3
    y = li.tanh(v - reduce(v, axis=axis, keepdims=True))
    return li.vjp(li.Graph("plain", [x, c0], {"ys": y}), ["ys"], ["x", "c0"])


SHORT = [  # loop or not, axis, columns, fixed sizes, op
    (cells, 0, 8, True, li.max), (cells, 1, 8, False, li.min), (cells, 1, 5, True, li.max),
    (plain, 2, 8, True, li.max),
]  # fmt: skip
LONG = [
    (form, axis, width, fixed, reduce)
    for form, axes in ((cells, (0, 1)), (plain, (0, 1, 2)))
    for axis in axes
    for width in (3, 8, 13)
    for fixed in (True, False)
    for reduce in (li.max, li.min)
]


def gradients_hold(cases: list[Any], dtype: str, kernels: bool, seed: int, target: str) -> None:
    graphs = {f"e{i}": form(dtype, *rest) for i, (form, *rest) in enumerate(cases)}
    options = {"kernels": kernels} if target == "cpu" else {}
    exe = li.compile(li.Program("extremes", graphs), target, options=options)
    bound = 2e-5 if dtype == "f32" else 1e-13
    for name, graph in graphs.items():
        given = arrays(graph, seed, dtype)
        got, want = exe.entries[name](**given), li.interpret(graph, given)
        for k, w in want.items():
            off = np.abs(got[k].astype(np.float64) - w).max()
            assert off < bound, f"seed {seed}: {name} {cases[int(name[1:])]}, {k}: {off}"


@pytest.mark.parametrize("kernels", [True, False])
def test_gradients_of_extremes(kernels: bool, seed: int) -> None:
    gradients_hold(SHORT, "f32", kernels, seed, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("kernels", [True, False])
def test_gradients_of_extremes_at_more_sizes(kernels: bool, dtype: str, part: int, seed: int) -> None:
    gradients_hold(LONG[part::5], dtype, kernels, seed, "cpu")


def test_gradients_of_extremes_on_vulkan(seed: int) -> None:
    need("vulkan")
    gradients_hold([SHORT[0], SHORT[3]], "f32", False, seed, "vulkan")


@pytest.mark.parametrize("reduce", [li.max, li.min])
def test_a_gradient_s_loop_decides_by_the_value_that_another_loop_returns(reduce: Reduce, seed: int) -> None:
    """The returned value, and the one that the gradient compares, are made by loops of their own."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(1, 2, (4, 5, 8)).astype(np.float32)
    k = rng.integers(-3, 4, x.shape)
    given = {"x": x, "c": (k / x.astype(np.float64)).astype(np.float32), "e": np.float32(-k)}
    inputs = {n: li.input(n, x.shape) for n in given}

    def step(h: li.Value, rows: tuple[li.Value, ...]) -> tuple[li.Value, tuple[li.Value, ...]]:
        v = rows[0] * rows[1] + rows[2]  # 0 but for the rounding
        return h, (v, reduce(v, -1))

    _, (v, tops) = li.scan(step, li.zeros((), "f32"), tuple(inputs.values()))
    slopes = li.grad(li.Graph("loops", [*inputs.values()], {"loss": li.sum(tops)}), "loss", ["e"])
    graph = li.Graph("loops", slopes.params, {"v": v, "d_e": slopes.outputs[1]})
    got = li.compile(graph)(**given)
    hit = got["v"] == (got["v"].max(-1, keepdims=True) if reduce is li.max else got["v"].min(-1, keepdims=True))
    np.testing.assert_allclose(got["d_e"], hit / hit.sum(-1, keepdims=True), rtol=1e-6, err_msg=f"seed {seed}")


# -- decisions forward


def number(p: li.Value, v: li.Value) -> li.Value:
    return li.convert(p, v.dtype)


def top(v: li.Value) -> li.Value:
    return li.max(v, axis=-1, keepdims=True)


def of_row(v: li.Value) -> li.Value:
    """One number of each row, at all its columns."""
    return li.broadcast_to(v, (*v.shape[:-1], 8))


DECISIONS: dict[str, tuple[Callable[[li.Value], li.Value], Callable[[Array], bool]]] = {
    "winners": (lambda v: of_row(li.sum(number(li.equal(v, top(v)), v), -1, keepdims=True)),
                lambda o: bool((o >= 1).all())),
    "above": (lambda v: number(v > top(v), v), lambda o: not o.any()),
    "sign": (lambda v: li.sign(top(v) - v), lambda o: bool((o >= 0).all())),
    "floor": (lambda v: li.floor(v - top(v)), lambda o: bool((o.max(-1) == 0).all())),
    "ceil": (lambda v: li.ceil(v - top(v)), lambda o: bool((o.max(-1) == 0).all())),
    "root": (lambda v: li.sqrt(top(v) - v), lambda o: bool((o.min(-1) == 0).all())),
    "log": (lambda v: li.log(1.0 / (top(v) - v)), lambda o: bool((o.max(-1) == np.inf).all())),
    "select": (lambda v: li.select(v < top(v), 0.0 * v, 1.0), lambda o: bool((o.sum(-1) >= 1).all())),
}  # fmt: skip
VALUES: dict[str, Callable[..., li.Value]] = {
    "product": lambda x, c, d: x + c * 0.3,
    "layer_norm": lambda x, c, d: li.layer_norm(x, c, d),
    "tanh": lambda x, c, d: li.tanh(x * 0.7 + c) * d + x,
    "log1p": lambda x, c, d: li.log1p(li.exp(x * 0.7)) + d * c,
    "running": lambda x, c, d: li.cumsum(x * c, -1) + d * x,
    "row": lambda x, c, d: li.sum(x * c, -1, keepdims=True) + x * c,
    "erf": lambda x, c, d: li.erf(x * c) * d + x,
    "quotient": lambda x, c, d: x / (c * c + 1.0) + d * c,
}


def forward(value: str, decision: str, dtype: str, fixed: bool, loop: bool) -> li.Graph:
    T, B = (7, 4) if fixed else ("T", "B")
    x = li.input("x", (T, B, 8), dtype)
    c, d = (li.input(n, (8,) if value == "layer_norm" else (B, 8), dtype) for n in "cd")
    decide = DECISIONS[decision][0]
    if not loop:
        wide = [v if value == "layer_norm" else li.broadcast_to(v, (T, B, 8)) for v in (c, d)]
        return li.Graph("decides", [x, c, d], {"o": decide(VALUES[value](x, *wide))})

    def cell(h: li.Value, x: li.Value) -> tuple[li.Value, li.Value]:
        v = VALUES[value](x + h * 0.3, c, d)
        return li.tanh(v), decide(v)

    _, o = li.scan(cell, li.zeros((B, 8), dtype), x)
    return li.Graph("decides", [x, c, d], {"o": o})


def decisions_hold(keys: list[tuple[str, str]], dtype: str, fixed: bool, loop: bool, kernels: bool, seed: int) -> None:
    graphs = {f"{v}_{d}": forward(v, d, dtype, fixed, loop) for v, d in keys}
    exe = li.compile(li.Program("decisions", graphs), options={"kernels": kernels})
    wrong = []
    for (v, d), graph in zip(keys, graphs.values(), strict=True):
        with np.errstate(all="ignore"):
            got = exe.entries[f"{v}_{d}"](**arrays(graph, seed, dtype))["o"]
        if not DECISIONS[d][1](got):
            wrong.append((v, d))
    assert not wrong, f"seed {seed}: {wrong}"


def test_decisions_in_kernels(seed: int) -> None:
    """Each decision once, each value once."""
    keys = list(zip(VALUES, DECISIONS, strict=True))
    decisions_hold(keys, "f32", True, True, True, seed)


@pytest.mark.slow
@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("loop", ["kernel", "loop", "none"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_every_decision_of_every_value(dtype: str, loop: str, decision: str, seed: int) -> None:
    keys = [(v, decision) for v in VALUES]
    fixed = seed % 2 == 0
    decisions_hold(keys, dtype, fixed, loop != "none", loop == "kernel", seed)


# -- what decides


def ops(found: Decisions) -> list[str]:
    return sorted(n.op.name for n in found.products)


def test_products_that_reach_a_decision_are_found_through_loops() -> None:
    graph = cells("f32", 1, 8, True, li.max)
    scans = [n for n in graph.nodes if n.op.name == "scan"]
    found = decisions(graph)
    assert len(scans) == 2
    assert [any(m in found.nodes for m in n.attrs["body"].nodes) for n in scans] == [True, True]
    assert "multiply" in ops(found)


def test_nothing_is_found_where_nothing_decides() -> None:
    x, w, r = li.input("x", ("T", "B", 8)), li.input("w", (64, 8)), li.input("r", (64, 16))
    y, _, _ = li.lstm(x, w, r)
    out = li.softmax(li.layer_norm(y, li.full((16,), 1.0), li.full((16,), 0.0)))
    graph = li.Graph("plain", [x, w, r], {"out": out})
    graph = li.vjp(graph, ["out"], ["x", "w", "r"])
    info = resolve("cpu").info
    assert not decisions(for_target(info).run(graph, info).graph).nodes


def test_a_product_that_is_added_after_a_sum_decides_nothing() -> None:
    """What a product or a sum of many terms is made of is computed once."""
    x, w, b = li.input("x", (5, 8)), li.input("w", (8, 3)), li.input("b", (3,))
    v = li.dot(x * 0.5 + x * x, w) + b
    graph = li.Graph("relu", [x, w, b], {"o": li.select(v > 0.0, v, 0.0)})
    assert not decisions(graph).products
    v = li.dot(x, w) * b + b
    graph = li.Graph("scaled", [x, w, b], {"o": li.select(v > 0.0, v, 0.0)})
    assert ops(decisions(graph)) == ["multiply"]


def _roots(inner: str) -> list[str]:
    x, c = li.input("x", (5, 8)), li.input("c", (5, 8))
    v = x * c + c
    under = {"extreme": lambda: li.max(v, axis=1, keepdims=True) - v, "plain": lambda: v}[inner]()
    return ops(decisions(li.Graph("root", [x, c], {"o": li.sqrt(under)})))


def test_the_edge_of_a_domain_decides_where_an_extreme_is_below_it() -> None:
    assert _roots("extreme") == ["multiply"]
    assert _roots("plain") == []
