"""Products of converted elements: what is unsigned, or a boolean, is never taken for signed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tolerances
from device import need

import lstm_ir as li
from lstm_ir.api import build
from lstm_ir.backends.run.devices import resolve

Array = np.ndarray[Any, Any]
Case = tuple[str, li.Graph, dict[str, tuple[int, ...]], Callable[..., Any]]

PAIRS = (
    ("i1", "f32"), ("u8", "f32"), ("u8", "i32"), ("u32", "f64"), ("u32", "i64"), ("i1", "f64"),
    ("u8", "f16"), ("i1", "bf16"), ("u8", "u32"), ("i1", "i32"), ("u8", "i64"), ("u8", "f64"),
    ("i1", "u8"), ("u32", "f32"), ("i8", "f32"), ("i8", "i32"), ("i32", "f64"), ("i64", "f32"),
)  # fmt: skip
MOVES: tuple[Callable[[li.Value], li.Value], ...] = (
    lambda v: v,
    lambda v: li.reverse(v, 0),
    lambda v: li.concat([v[:1], v], 0)[1:],
    lambda v: v * li.constant(1, v.dtype),
    lambda v: li.select(v != li.constant(1, v.dtype), v, li.constant(1, v.dtype)),
    lambda v: li.transpose(li.transpose(v, (1, 0)), (1, 0)),
    lambda v: li.pad(v, (1, 0), (0, 0))[1:],
)


def exact(a: Array, to: Array) -> Array:
    """As numbers whose sums are exact: integers wrap, as products of integers do."""
    return a.astype("i8" if to.dtype.kind in "iu" else "f8")


def numbers(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Array:
    """The upper half of unsigned types too; small whole floats."""
    if kind == "i1":
        return rng.random(shape) < 0.7
    dtype = li.DType(kind).numpy
    if li.DType(kind).is_float:
        return rng.integers(-3, 4, shape).astype(dtype)
    low, high = (-100, 100) if kind[0] == "i" else (0, 250)
    a = rng.integers(low, high, shape).astype(dtype)
    if kind == "u32":
        a[rng.random(shape) < 0.5] += np.uint32(2**31)
    return a


def case(form: str, src: str, to: str, move: int, named: bool, sizes: tuple[int, int, int]) -> Case:
    """One product by its form; the oracle takes exact arrays."""
    (n, k, m), N, K = sizes, "N" if named else sizes[0], sizes[1]

    def wide(v: li.Value) -> li.Value:
        return MOVES[move](li.convert(v, to))

    def back(a: Array) -> Array:
        return a[::-1] if move == 1 else a

    x, w = {
        "rows": ((N, K), (K, m)), "columns": ((K, N), (K, m)), "right": ((K, N), (m, K)),
        "both": ((N, K), (m, K)), "batched": ((3, N, K), (3, K, m)), "deep": ((2, N, K), (K, m)),
        "outer": ((N, 2, K), (N, 2, m)), "steps": ((N, K), (K, m)), "vector": ((K,), (K, m)),
        "conv": ((2, 3, N), (m, 3, 1)),
    }[form]  # fmt: skip
    a = li.input("x", x, src)
    b = li.input("w", w, src if form == "both" else to)
    oracle: Callable[..., Any]
    match form:
        case "rows":
            y, oracle = wide(a) @ b, lambda p, q: back(p) @ q
        case "columns":
            y, oracle = wide(a).T @ b, lambda p, q: back(p).T @ q
        case "right":
            y, oracle = b @ wide(a), lambda p, q: q @ back(p)
        case "both":
            y, oracle = wide(a) @ wide(b).T, lambda p, q: back(p) @ back(q).T
        case "outer":
            y = li.dot_general(li.convert(a, to), b, ((0, 1), (0, 1)))
            oracle = lambda p, q: np.tensordot(p, q, ((0, 1), (0, 1)))  # noqa: E731
        case "steps":
            y, oracle = li.convert(li.convert(a, "i64"), to) @ b, lambda p, q: p @ q
        case "vector":
            y = li.dot_general(li.convert(a, to), b, ((0,), (0,)))
            oracle = lambda p, q: p @ q  # noqa: E731
        case "conv":
            y = li.conv1d(li.convert(a, to), b)
            oracle = lambda p, q: np.einsum("bin,oi->bon", p, q[:, :, 0])  # noqa: E731
        case _:
            y, oracle = li.convert(a, to) @ b, lambda p, q: p @ q
    given = {p.node.attrs["name"]: tuple(n if d == "N" else int(d) for d in shape) for p, shape in ((a, x), (b, w))}
    name = f"{form}_{src}_{to}_{move}_{n}_{k}_{m}"
    return name, li.Graph(name, [a, b], {"y": y}), given, oracle


FORMS = ("rows", "columns", "right", "both", "batched", "deep", "outer", "steps", "vector", "conv")


SIMPLE = ("rows", "columns", "right", "both", "outer", "vector")  # no batch axes, a convert each


def cases(rng: np.random.Generator, pairs: Any, named: bool, forms: Any = FORMS) -> list[Case]:
    """Every pair, each in another form, with other sizes and ops between convert and product."""
    out = []
    turn, first = (int(rng.integers(n)) for n in (len(forms), len(MOVES)))
    for i, (src, to) in enumerate(pairs):
        n, k, m = (int(v) for v in rng.choice([2, 3, 5, 7, 8, 17, 33], 3, replace=False))
        form = forms[(turn + i) % len(forms)]
        out.append(case(form, src, to, (first + i) % len(MOVES), named, (n, k, m)))
    return out


def check(rng: np.random.Generator, made: list[Case], target: str = "cpu", **options: Any) -> None:
    """Each entry beside its NumPy meaning and exact sums."""
    program = li.Program("converts", {name: g for name, g, _, _ in made})
    exe = li.compile(program, target, options=options)
    for name, g, shapes, oracle in made:
        kinds = {p.node.attrs["name"]: p.dtype.value for p in g.params}
        given = {n: numbers(rng, kinds[n], s) for n, s in shapes.items()}
        got = exe.entries[name](given)["y"]
        try:
            agrees(got, li.interpret(g, given)["y"], target)
            with np.errstate(over="ignore"):
                want = oracle(*(exact(given[n], got) for n in ("x", "w")))
                agrees(got, np.asarray(want).astype(got.dtype), target)
        except AssertionError as e:
            raise AssertionError(f"{name} {shapes}: {e}") from e


def agrees(got: Array, want: Array, target: str) -> None:
    """Within the tolerance, relative to the largest entry."""
    if want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    a, b = got.astype("f8"), want.astype("f8")
    scale = np.abs(b[np.isfinite(b)]).max(initial=1)
    limit = tolerances.ONE_OP[tolerances.name_of(want), target]
    np.testing.assert_allclose(a, b, rtol=0, atol=limit * scale)


@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
def test_products(rng: np.random.Generator, named: bool) -> None:
    check(rng, cases(rng, PAIRS[: 6 if named else 12], named, SIMPLE))


@pytest.mark.slow
@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_every_form(rng: np.random.Generator, form: str, kernels: bool) -> None:
    for named in (False, True):
        check(rng, cases(rng, PAIRS, named, forms=[form]), kernels=kernels)


@pytest.mark.vulkan
def test_products_on_vulkan(rng: np.random.Generator) -> None:
    need("vulkan")
    pairs = [p for p in PAIRS if "f64" not in p]
    for form in ("rows", "columns", "conv"):
        check(rng, cases(rng, pairs[:5], False, [form]), "vulkan")
    check(rng, cases(rng, pairs[5:], True), "vulkan")


def test_without_optimisation(rng: np.random.Generator) -> None:
    made = [case(form, "i1", "f32", 0, False, (2, 5, 3)) for form in ("rows", "columns")]
    check(rng, made, opt_level="O0")


def layer(rng: np.random.Generator, named: bool, src: str) -> li.Graph:
    """Rows of booleans or bytes through an LSTM, a loop of its own, and both with gradients."""
    t, b = ("T", "B") if named else (4, 3)
    x = li.input("x", (t, b, 7), src)
    r = {
        n: li.weight(f"{src}_{n}", rng.standard_normal(s).astype("f4") / 90)
        for n, s in {"w_ih": (20, 7), "w_hh": (20, 5), "w": (7, 5), "r": (5, 5)}.items()
    }
    rows = li.convert(x, "f32")
    y = li.lstm(rows, r["w_ih"], r["w_hh"])[0]

    def step(h: li.Value, row: li.Value, w: li.Value, u: li.Value) -> tuple[li.Value, li.Value]:
        h = li.tanh(li.convert(row, "f32") @ w + h @ u)
        return h, li.convert(h < 0, "f32") @ u

    scanned = x if src == "i1" else rows  # loops over unsigned rows are refused
    _, own = li.scan(step, li.zeros((x.shape[1], 5), "f32"), scanned, consts=(r["w"], r["r"]))
    outs = {"y": y, "own": own, "loss": li.sum(y * y) + li.sum(own)}
    return li.Graph("layer", [x], outs)


def recurrence(rng: np.random.Generator, src: str, named: bool, kernels: bool, grad: bool) -> None:
    g = layer(rng, named, src)
    graphs = {"forward": g} | ({"backward": li.grad(g, "loss", list(g.weights))} if grad else {})
    exe = li.compile(li.Program("layers", graphs), options={"kernels": kernels})
    given = {"x": numbers(rng, src, (4, 3, 7))}
    for name, h in graphs.items():
        same(name, exe.entries[name], h, given)


@pytest.mark.parametrize("src", ["i1", "u8"])
def test_recurrences(rng: np.random.Generator, src: str) -> None:
    recurrence(rng, src, named=False, kernels=False, grad=False)


@pytest.mark.slow
@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
@pytest.mark.parametrize("src", ["i1", "u8"])
def test_gradients_of_recurrences(rng: np.random.Generator, src: str, named: bool, kernels: bool) -> None:
    recurrence(rng, src, named, kernels, grad=True)


def same(name: str, entry: Any, g: li.Graph, given: Mapping[str, Array]) -> None:
    """Beside the NumPy meaning, relative to the largest entry."""
    got, want = entry(given), li.interpret(g, given)
    for out, w in want.items():
        scale = max(1.0, float(np.abs(w).max(initial=0)))
        np.testing.assert_allclose(got[out] / scale, w / scale, atol=1e-4, err_msg=f"{name} {out}")


def test_every_pair_for_a_processor_without_bf16() -> None:
    """Booleans and bytes as bf16 were calls of a function that modules do not have."""
    narrow = [li.input("x", ("N", 5), kind) for kind in ("i1", "i8", "u8")]
    graphs = {str(x.dtype): li.Graph("g", [x], {"y": li.convert(x, "bf16")}) for x in narrow}
    _, blob = build(li.Program("narrow", graphs), resolve("cpu:x86-64-v3"), {})
    assert len(blob) > 1000
