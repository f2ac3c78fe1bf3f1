"""`fuse-epilogues`: what follows a product of many rows is done in the product's kernel, with the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.loop import Loop
from lstm_ir.passes.tuned import EPILOGUE_OPS

K, N = 160, 144  # of a matrix that is worth a kernel
Make = Callable[[li.Value, dict[str, li.Value]], li.Value]


def bias(y: li.Value, more: dict[str, li.Value]) -> li.Value:
    return y + more["b"]


def mask(y: li.Value, more: dict[str, li.Value]) -> li.Value:
    live = li.expand_dims(more["m"], -1) > 0.0
    return li.where(live, li.tanh(y + more["b"]), 0.0)


def slope(y: li.Value, more: dict[str, li.Value]) -> li.Value:
    return y * (1.0 - more["r"] * more["r"])


def flat(y: li.Value, more: dict[str, li.Value]) -> li.Value:
    rows = li.reshape(y, (-1, N))
    return li.reshape(li.relu(rows + more["b"]), y.shape) * 0.5


FOLLOWED: dict[str, tuple[Make, str]] = {
    "bias": (bias, "add"),
    "activation": (lambda y, more: li.tanh(y + more["b"]), "add, tanh"),
    "scalar": (lambda y, more: y * more["s"], "multiply"),
    "residual": (lambda y, more: li.maximum(y, 0.0) + more["r"], "maximum, add"),
    "mask": (mask, "add, tanh, select"),
    "slope": (slope, "multiply"),
    "swish": (lambda y, more: li.silu(y + more["b"]), "add, logistic, multiply"),
    "twice": (lambda y, more: y * y, "multiply"),
    "reshaped": (flat, "reshape, add, compare, select, reshape, multiply"),
}


def inputs(dtype: str, T: Any, B: Any) -> dict[str, li.Value]:
    shapes = {"x": (T, B, K), "r": (T, B, N), "m": (T, B), "b": (N,), "s": (), "w": (N, K)}
    return {n: li.input(n, s, dtype) for n, s in shapes.items()}


def graph(make: Make, dtype: str = "f32", T: Any = "T", B: Any = "B", *, turned: bool = False) -> li.Graph:
    given = inputs(dtype, T, B)
    w = given["w"]
    y = given["x"] @ li.swapaxes(w, 0, 1) if turned else li.dense(given["x"], w)
    return li.Graph("g", list(given.values()), {"y": make(y, given)})


def arrays(g: li.Graph, seed: int, **sizes: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    found = {}
    for name, p in zip(g.input_names, g.params, strict=True):
        shape = [sizes[str(d)] if str(d) in sizes else int(str(d)) for d in p.shape]
        found[name] = rng.standard_normal(shape).astype(p.dtype.numpy) * (0.1 if name[0] == "w" else 1)
    return found


def fired(g: li.Graph, target: str = "cpu") -> list[str]:
    """What the pass says it did, without the places."""
    steps = prepare(g, resolve(target), {}).report.steps["main"]
    return [f.partition(" at ")[0] for s in steps if s.name == "fuse-epilogues" for f in s.fired]


@pytest.mark.parametrize("turned", [False, True], ids=["NK", "KN"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", FOLLOWED)
def test_values(name: str, dtype: str, turned: bool, seed: int) -> None:
    make, said = FOLLOWED[name]
    g = graph(make, dtype, turned=turned)
    assert fired(g) == [f"{said} with the product"]
    with li.compile(g) as exe:
        for T, B in ((7, 5), (1, 1), (0, 3), (33, 2)):
            given = arrays(g, seed, T=T, B=B)
            wanted = li.interpret(g, given)["y"]
            limit = 1e-4 if dtype == "f32" else 1e-11
            np.testing.assert_allclose(exe(given)["y"], wanted, rtol=limit, atol=limit)


def stops(y: li.Value, more: dict[str, li.Value]) -> li.Value:
    return li.cumsum(y, 0) + more["b"]


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (stops, ("T", "B")),  # another op first
        (lambda y, more: li.sin(y), ("T", "B")),  # no op of every kernel
        (bias, (5, 3)),  # few rows: IREE's own product
    ],
    ids=["behind", "sine", "few"],
)
def test_what_stays(make: Make, sizes: tuple[Any, Any]) -> None:
    assert fired(graph(make, "f32", *sizes)) == []


def test_other_targets_and_small_matrices() -> None:
    g = graph(bias)
    assert fired(g, "vulkan") == []
    x, w, b = li.input("x", ("M", 16)), li.input("w", (16, 16)), li.input("b", (16,))
    assert fired(li.Graph("g", [x, w, b], {"y": li.dense(x, w, b)})) == []


def test_a_result_in_the_middle_ends_the_chain() -> None:
    given = inputs("f32", "T", "B")
    middle = li.dense(given["x"], given["w"]) + given["b"]
    g = li.Graph("g", list(given.values()), {"middle": middle, "y": li.tanh(middle)})
    assert fired(g) == ["add with the product"]


def test_many_ops(seed: int) -> None:
    """A chain of any length: the first ones are with the product."""
    given = inputs("f32", "T", "B")
    y = li.dense(given["x"], given["w"])
    for k in range(200):
        y = li.tanh(y * (1.0 + 0.01 * k))
    g = li.Graph("g", list(given.values()), {"y": y})
    (said,) = fired(g)
    assert said.count(",") == EPILOGUE_OPS - 1
    a = arrays(g, seed, T=3, B=2)
    with li.compile(g) as exe:
        np.testing.assert_allclose(exe(a)["y"], li.interpret(g, a)["y"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("word", ["bf16", "int8", "int8-dynamic"])
def test_weights_in_fewer_bits(word: str, seed: int) -> None:
    """As the product alone rounds them."""
    rng = np.random.default_rng(seed)
    w = li.weight("w", rng.standard_normal((N, K)).astype("f4") * 0.1)
    x, b = li.input("x", ("T", "B", K)), li.input("b", (N,))
    plain = li.dense(x, w)
    given = {"x": rng.standard_normal((5, 4, K)).astype("f4"), "b": rng.standard_normal(N).astype("f4")}
    both = [
        li.compile(li.Graph("g", [x, b], {"y": y}), options={"precision": word}) for y in (plain, li.tanh(plain + b))
    ]
    alone, fused = (exe(given)["y"] for exe in both)
    np.testing.assert_allclose(fused, np.tanh(alone + given["b"]), rtol=1e-5, atol=1e-5)


def test_a_training_step(seed: int) -> None:
    """The slope of an activation follows the product that brings the cotangent back."""
    given = inputs("f32", "T", "B")
    hidden = li.tanh(li.dense(given["x"], given["w"], given["b"]))
    second = li.input("v", (K, N))
    y = li.dense(hidden, second)
    g = li.Graph("g", [*given.values(), second], {"loss": li.sum(y * y)})
    back = li.grad(g, "loss", ["x", "w", "v", "b"], missing="zeros")
    assert any("multiply" in f for f in fired(back)), fired(back)
    a = arrays(back, seed, T=5, B=4)
    wanted = li.interpret(back, a)
    with li.compile(back) as exe:
        for name, got in exe(a).items():
            np.testing.assert_allclose(got, wanted[name], rtol=2e-3, atol=2e-3 * float(np.abs(wanted[name]).max() + 1))


def test_a_loop_of_one_step_is_a_kernel() -> None:
    """And no other op of the graph is left."""
    (main,) = prepare(graph(bias), resolve("cpu"), {}).optimized.entries.values()
    loops = [n for n in main.nodes if Loop.of(n) is not None]
    assert len(loops) == 1
    assert {n.op.name for n in main.nodes} <= {"parameter", "reshape", "scan"}


def test_what_a_convolution_repeats_stays_small() -> None:
    """A mask of rows and places, gates of rows and outputs, a bias: none is read as a tensor of the result's shape."""
    x, w, b = li.input("x", ("N", 8, "L")), li.input("w", (24, 8, 3)), li.input("b", (24,))
    m, g = li.input("m", ("N", 1, "L")), li.input("g", ("N", 24, 1))
    y = li.where(m > 0.0, li.relu(li.conv1d(x, w, 1, 1, bias=b)) * g, 0.0)
    made = prepare(li.Graph("conv", [x, w, b, m, g], {"y": y}), resolve("cpu")).optimized.entries["main"]
    (loop,) = (found for n in made.nodes if (found := Loop.of(n)) is not None)
    assert {str(v.type) for v in loop.consts} == {"f32[1,24,8,3]", "f32[1,24]", "i1[N,1,L]", "f32[N,1,24]"}
    assert [str(v.type) for v in loop.xs] == ["f32[1,N,1,8,1,L]"]


def _joined(parts: Callable[[li.Value, li.Value], list[li.Value]]) -> li.Graph:
    """A dense layer over rows of 160 numbers that two tensors have."""
    a, c, w = li.input("a", ("T", "B", 100)), li.input("c", ("T", "B", 60)), li.input("w", (N, K))
    b = li.input("b", (N,))
    return li.Graph("g", [a, c, w, b], {"y": li.tanh(li.dense(li.concat(parts(a, c), 2), w, b))})


@pytest.mark.parametrize(
    ("parts", "rows"),
    [
        (lambda a, c: [a, c], [100, 60]),
        (lambda a, c: [c, a], [60, 100]),
        (lambda a, c: [c, c, a[:, :, :40]], [60, 60, 40]),
    ],
    ids=["two", "the other order", "one twice"],
)
def test_joined_rows_are_read_where_they_lie(
    parts: Callable[[li.Value, li.Value], list[li.Value]], rows: list[int], seed: int
) -> None:
    g = _joined(parts)
    made = prepare(g, resolve("cpu")).optimized.entries["main"]
    (loop,) = (found for n in made.nodes if (found := Loop.of(n)) is not None)
    assert [v.shape[-1] for v in loop.xs] == list(dict.fromkeys(rows))
    assert not any(n.op.name == "concatenate" for n in made.nodes)
    with li.compile(g) as exe:
        for T, B in ((7, 5), (1, 1), (33, 2)):
            given = arrays(g, seed, T=T, B=B)
            np.testing.assert_allclose(exe(given)["y"], li.interpret(g, given)["y"], rtol=1e-4, atol=1e-4)


def test_joined_rows_that_others_read_stay_joined() -> None:
    a, c, w = li.input("a", ("T", "B", 100)), li.input("c", ("T", "B", 60)), li.input("w", (N, K))
    joined = li.concat([a, c], 2)
    g = li.Graph("g", [a, c, w], {"y": li.tanh(li.dense(joined, w)), "joined": joined})
    made = prepare(g, resolve("cpu")).optimized.entries["main"]
    assert [n.op.name for n in made.nodes].count("concatenate") == 1
