"""Random numbers of a key: the same everywhere, of the distributions that they are named after."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need
from likely import of_a_share, of_classes, of_law

import lstm_ir as li
from lstm_ir.ir.graph import topological
from lstm_ir.ops.nn import threefry
from lstm_ir.ops.nn.threefry import number_key

Array = np.ndarray[Any, Any]
N = 20011
P = np.array([0.1, 0.0, 0.4, 0.3, 0.2])


def uniform(x: Array) -> Array:
    return np.clip(x, 0, 1)


def normal(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))


def gumbel(x: Array) -> Array:
    return np.asarray(np.exp(-np.exp(-x)))


def key() -> li.Value:
    return li.input("key", (2,), "u32")


def entries(n: Any = 1009) -> dict[str, li.Value]:
    """Of each kind one, over one key."""
    k = key()
    with np.errstate(divide="ignore"):
        logits = np.log(P).astype("f4")
    return {
        **{f"uniform_{d}": li.random_uniform(k, (n,), dtype=d) for d in ("f16", "bf16", "f32")},
        "uniform_between": li.random_uniform(k, (n,), -2.0, 5.0),
        "normal": li.random_normal(k, (n,), 1.0, 3.0),
        "normal_f16": li.random_normal(k, (n,), dtype="f16"),
        "gumbel": li.random_gumbel(k, (n,)),
        "bernoulli": li.random_bernoulli(k, (n,), 0.3),
        "bernoulli_of_values": li.random_bernoulli(k, (n, 2), np.array([0.2, 0.9], "f4")),
        "categorical": li.random_categorical(k, li.broadcast_to(li.constant(logits), (n, 5))),
        "permutation": li.random_permutation(k, n),
        "permuted": li.random_permutation(k, li.convert(li.iota((3, n), 1), "f32"), axis=1),
    }


EXACT = ("uniform_f16", "uniform_bf16", "uniform_f32", "bernoulli", "bernoulli_of_values", "permutation", "permuted")


def graph(values: dict[str, li.Value]) -> li.Graph:
    return li.Graph("random", _parameters(values), values)


def _parameters(values: dict[str, li.Value]) -> list[li.Value]:
    nodes = topological(v.node for v in values.values())
    return [n.values[0] for n in nodes if n.op.name == "parameter"]


def drawn(values: dict[str, li.Value], *seed: int) -> dict[str, Array]:
    return li.interpret(graph(values), key=number_key(*seed))


def agree(got: dict[str, Array], want: dict[str, Array]) -> None:
    for name, w in want.items():
        if name in EXACT:
            np.testing.assert_array_equal(got[name], w, err_msg=name)
        elif w.dtype.kind == "f":
            limit = 2e-3 if w.dtype.itemsize == 2 else 3e-5
            np.testing.assert_allclose(got[name].astype("f8"), w.astype("f8"), rtol=limit, atol=limit, err_msg=name)
        else:  # where two are equal up to a rounding, one or the other
            assert (got[name] != w).mean() < 2e-3, name


@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=[pytest.mark.vulkan, pytest.mark.slow])])
def test_the_same_numbers_on_every_target(target: str) -> None:
    if target != "cpu":
        need(target)
    for values, n in ((entries(), 1009), (entries("N") | {"length": li.arange("N")}, None)):
        g = graph(values) if n else li.Graph("random", [*_parameters(values), li.input("x", ("N",))], values)
        more = {} if n else {"x": np.zeros(517, "f4")}
        with li.compile(g, target=target) as exe:
            for seed in (0, 2**63):
                given = {"key": number_key(seed), **more}
                agree(exe(given), li.interpret(g, given))


def test_wide_floats() -> None:
    k = key()
    values = {"u": li.random_uniform(k, (N,), dtype="f64"), "n": li.random_normal(k, (N,), dtype="f64"),
              "g": li.random_gumbel(k, (N,), "f64")}  # fmt: skip
    want = drawn(values, 3)
    for name, law in (("u", uniform), ("n", normal), ("g", gumbel)):
        of_law(want[name], law)
    assert len(np.unique(want["u"])) == N  # of 24 bits a dozen would be equal
    with li.compile(graph(values)) as exe:
        got = exe(key=number_key(3))
    np.testing.assert_array_equal(got["u"], want["u"])
    for name in ("n", "g"):
        np.testing.assert_allclose(got[name], want[name], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("seed", range(4))
def test_distributions(seed: int) -> None:
    got = drawn(entries(N), seed)
    for name, law in (
        ("uniform_f32", uniform), ("uniform_between", lambda x: uniform((x + 2) / 7)),
        ("normal", lambda x: normal((x - 1) / 3)), ("gumbel", gumbel),
    ):  # fmt: skip
        of_law(got[name].astype("f8"), law)
    for name, steps in (("uniform_f16", 2**11), ("uniform_bf16", 2**8)):
        counts = np.bincount((got[name].astype("f8") * steps).astype(int) * 256 // steps, minlength=256)
        of_classes(counts, np.full(256, N / 256))
    of_a_share(got["bernoulli"], 0.3)
    for column, p in enumerate((np.float32(0.2), np.float32(0.9))):
        of_a_share(got["bernoulli_of_values"][:, column], float(p))
    counts = np.bincount(got["categorical"], minlength=5)
    assert counts[1] == 0
    of_classes(counts[P > 0], N * P[P > 0])
    np.testing.assert_array_equal(np.sort(got["permutation"]), np.arange(N))
    np.testing.assert_array_equal(got["permuted"], np.broadcast_to(got["permutation"], (3, N)))


def test_every_order_is_alike_likely() -> None:
    g = graph({"p": li.random_permutation(key(), 4)})
    orders = [tuple(li.interpret(g, key=number_key(s))["p"]) for s in range(1200)]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24
    of_classes(counts, np.full(24, 50))


def test_keys() -> None:
    """One key gives one row of numbers; others have nothing to do with it."""
    values = {"u": li.random_uniform(key(), (N,)), "n": li.random_normal(key(), (N,))}
    for name, v in values.items():
        a, again, b, c = (drawn({"y": v}, *s)["y"] for s in ((1,), (1,), (2,), (1, 1)))
        np.testing.assert_array_equal(a, again)
        for other in (b, c):
            assert abs(np.corrcoef(a, other)[0, 1]) < 5 / np.sqrt(N), name
        assert abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < 5 / np.sqrt(N), name


class _Bits:
    """Bits of one value, in place of random ones."""

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def __call__(self, key: li.Value, shape: Any) -> li.Value:
        return li.full(shape, self.bits, "u32")


@pytest.mark.parametrize("bits", [0, 1, 255, 2**31, 2**32 - 256, 2**32 - 1])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_the_ends_are_finite(bits: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threefry, "random_bits", _Bits(bits))
    k = number_key(0)
    values = {
        "u": li.random_uniform(k, (3,), dtype=dtype), "b": li.random_uniform(k, (3,), 0.1, 0.3, dtype),
        "n": li.random_normal(k, (3,), dtype=dtype), "g": li.random_gumbel(k, (3,), dtype),
    }  # fmt: skip
    g = li.Graph("ends", [], values)
    with li.compile(g) as exe, np.errstate(all="raise"):
        for out in (li.interpret(g), exe()):
            wide = {n: a.astype("f8") for n, a in out.items()}
            assert all(np.isfinite(a).all() for a in wide.values()), wide
            assert (wide["u"] >= 0).all()
            assert (wide["u"] < 1).all()
            low, high = (float(np.array(v).astype(out["b"].dtype)) for v in (0.1, 0.3))
            assert (wide["b"] >= low).all()
            assert (wide["b"] < high).all()


def test_shares_of_none_and_all() -> None:
    k = number_key(1)
    got = li.interpret(li.Graph("b", [], {f"y{p}": li.random_bernoulli(k, (99,), p) for p in (0, 1)}))
    assert not got["y0"].any()
    assert got["y1"].all()


def test_no_elements() -> None:
    k = number_key(1)
    x = li.input("x", ("N",))
    values = {"u": li.random_normal(k, ("N",)), "p": li.random_permutation(k, "N"), "x": x}
    g = li.Graph("none", [x], values)
    with li.compile(g) as exe:
        for run in (lambda a: li.interpret(g, a), exe):
            out = run({"x": np.zeros(0, "f4")})
            assert out["u"].shape == out["p"].shape == (0,)


REFUSED: dict[str, Callable[[], object]] = {
    "the key is f32": lambda: li.random_uniform(np.zeros(2, "f4"), (3,)),
    "dtype is 'i32'": lambda: li.random_normal(number_key(0), (3,), dtype="i32"),
    "high is 1": lambda: li.random_uniform(number_key(0), (3,), 1, 1),
    "std is nan": lambda: li.random_normal(number_key(0), (3,), 0.0, float("nan")),
    "p is 1.5": lambda: li.random_bernoulli(number_key(0), (3,), 1.5),
    "takes float elements, got i32": lambda: li.random_categorical(number_key(0), np.zeros(3, "i4")),
    "axis 3": lambda: li.random_permutation(number_key(0), np.zeros((3, 2), "f4"), axis=3),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_refused(problem: str) -> None:
    with pytest.raises(li.IRError, match=problem):
        REFUSED[problem]()
