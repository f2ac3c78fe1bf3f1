"""Batched products by a kernel that reads both operands where they lie."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from kernel_checks import AVX2, BASELINE

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ops.primitive.linear import dot_general

# Rows, terms, columns: of one tile and a rest, of whole panels, of more terms than a panel has.
SIZES = [(1, 5, 4), (2, 1, 33), (7, 16, 16), (13, 31, 17), (25, 64, 25), (50, 50, 32), (65, 17, 70), (64, 300, 64)]
# Of the operands: p, q, r batches, m rows, k summed, n columns; l and j stand beside them.
ORDERS = [
    ("pmk", "pkn"), ("pmk", "pnk"), ("pkm", "pkn"), ("pkm", "pnk"), ("mpk", "npk"), ("mpqk", "kpqn"),
    ("pqrmk", "rqpnk"), ("qmpk", "pqkn"), ("pmlk", "pnk"), ("pmkj", "pnkj"), ("pmkj", "kjpn"),
]  # fmt: skip


def _product(left: str, right: str, sizes: dict[str, int], named: str, dtype: str) -> tuple[li.Graph, str]:
    """The product as a graph, and as NumPy says it."""
    both = [c for c in left if c in right]
    batch, summed = [c for c in both if c in "pqr"], [c for c in both if c in "kj"]
    a, b = (
        li.input(n, tuple(c.upper() if c in named else sizes[c] for c in s), dtype)
        for n, s in (("a", left), ("b", right))
    )
    places = [(tuple(map(left.index, of)), tuple(map(right.index, of))) for of in (summed, batch)]
    out = [*batch, *(c for c in left if c not in both), *(c for c in right if c not in both)]
    return li.Graph("product", [a, b], {"y": dot_general(a, b, *places)}), f"{left},{right}->{''.join(out)}"


def _kernels(graph: li.Graph | li.Program, target: str = "cpu") -> int:
    return len(set(re.findall(r"flow.dispatch @(recurrence_\w+)::", prepare(graph, resolve(target)).text)))


@pytest.mark.slow_cases(target=[BASELINE])
@pytest.mark.slow_cases(named=["pk", "kn"])
@pytest.mark.parametrize("target", ["cpu", AVX2, BASELINE])
@pytest.mark.parametrize("named", ["", "pm", "kn", "pk"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_axes_in_any_order(dtype: str, named: str, target: str, rng: np.random.Generator) -> None:
    """One module has all of them."""
    entries: dict[str, li.Graph] = {}
    calls: dict[str, tuple[dict[str, Any], Any]] = {}
    for i, (left, right) in enumerate(ORDERS):
        m, k, n = SIZES[(i + len(named)) % len(SIZES)]
        sizes = {"m": m, "k": k, "n": n, "p": 3, "q": 2, "r": 2, "l": 2, "j": 3}
        graph, equation = _product(left, right, sizes, named, dtype)
        a, b = (rng.standard_normal([sizes[c] for c in s]) for s in (left, right))
        name = f"{left}_{right}"
        entries[name] = li.Graph(name, graph.params, {"y": graph.outputs[0]})
        given = [v.astype(np.float32) if dtype == "f32" else v for v in (a, b)]
        calls[name] = dict(zip("ab", given, strict=True)), np.einsum(equation, *(v.astype(np.float64) for v in given))
    program = li.Program("products", entries)
    assert _kernels(program, target) > 0
    with li.compile(program, target) as exe:
        for name, (arrays, want) in calls.items():
            limit = (2e-6 if dtype == "f32" else 1e-14) * max(1.0, float(np.abs(want).max(initial=0)))
            np.testing.assert_allclose(exe.entries[name](arrays)["y"], want, rtol=0, atol=10 * limit, err_msg=name)


@pytest.mark.parametrize("shape", SIZES)
def test_every_height_and_width_of_a_tile(shape: tuple[int, int, int], rng: np.random.Generator) -> None:
    """Integers in f32 give the same sums in any order."""
    sizes = dict(zip("mkn", shape, strict=True)) | {"p": 5}
    for right in ("pkn", "pnk"):
        graph, equation = _product("pmk", right, sizes, "", "f32")
        assert _kernels(graph) == (shape[0] > 1)  # a single row is left to IREE
        a, b = (rng.integers(-4, 5, [sizes[c] for c in s]).astype(np.float32) for s in ("pmk", right))
        np.testing.assert_array_equal(li.compile(graph)(a=a, b=b)["y"], np.einsum(equation, a, b))


@pytest.mark.parametrize("device", ["local-task", "local-sync"])
def test_named_sizes_of_every_call(device: str, rng: np.random.Generator) -> None:
    """None at all, too: of no terms the sums are zeros."""
    graph, equation = _product("mpk", "npk", {}, "mkpn", "f32")
    exe = li.compile(graph, device=device)
    calls = [(3, 4, 5, 2), (0, 4, 5, 2), (3, 0, 5, 2), (3, 4, 0, 2), (3, 4, 5, 0), (40, 130, 90, 7), (1, 1, 1, 1)]
    for m, k, n, p in calls:
        a, b = (rng.integers(-4, 5, (rows, p, k)).astype(np.float32) for rows in (m, n))
        got = exe(a=a, b=b)["y"]
        assert got.shape == (p, m, n)
        np.testing.assert_array_equal(got, np.einsum(equation, a, b))


def test_what_is_not_finite_stays_in_its_row_and_column(rng: np.random.Generator) -> None:
    """Lanes past the last column, and rows of a taller tile, reach nothing."""
    graph, equation = _product("pmk", "pnk", {"p": 2, "m": 6, "k": 9, "n": 19}, "", "f32")
    a, b = rng.standard_normal((2, 6, 9)).astype(np.float32), rng.standard_normal((2, 19, 9)).astype(np.float32)
    a[0, 5], b[1, 18, 3] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        want = np.einsum(equation, a, b)
    np.testing.assert_allclose(li.compile(graph)(a=a, b=b)["y"], want, rtol=1e-5, atol=1e-5)


def test_one_kernel_for_all_shapes() -> None:
    """Sizes and strides are numbers: two kernels, of columns side by side and of terms."""
    entries = {}
    for i, (m, k, n) in enumerate(SIZES[2:]):
        for right in ("pkn", "pnk"):
            name = f"{right}{i}"
            graph, _ = _product("pmk", right, {"m": m, "k": k, "n": n, "p": 3 + i}, "", "f32")
            entries[name] = li.Graph(name, graph.params, {"y": graph.outputs[0]})
    assert _kernels(li.Program("all", entries)) == 2


@pytest.mark.parametrize(
    ("left", "right", "dtype", "columns"),
    [("pmk", "pkn", "f16", 20), ("pmk", "pkn", "bf16", 20), ("pmk", "pkn", "f32", 3), ("mplk", "pnk", "f32", 20),
     ("pmk", "pnjk", "i32", 20)],
)  # fmt: skip
def test_others_are_left_to_the_compiler(left: str, right: str, dtype: str, columns: int) -> None:
    """Narrow elements, integers, few columns, rows of two axes with a batch between them."""
    sizes = {"m": 6, "k": 9, "n": columns, "p": 2, "l": 2, "j": 2}
    right = right.replace("j", "")
    graph, _ = _product(left, right, sizes, "", dtype)
    assert _kernels(graph) == 0


# Operands, what one transposition makes of the product, and whether the kernel writes that.
TURNED = [
    ("pmk", "pkn", (1, 0, 2), True), ("pmk", "pnk", (1, 0, 2), True), ("pmk", "pkn", (0, 2, 1), False),
    ("pmk", "pkn", (2, 0, 1), False), ("pqmk", "pqkn", (2, 0, 1, 3), True), ("pqmk", "pqkn", (1, 0, 2, 3), True),
    ("pqmk", "pqkn", (1, 2, 0, 3), True), ("pmlk", "pkn", (1, 2, 0, 3), True), ("pmlk", "pkn", (1, 0, 2, 3), False),
    ("pmk", "pknj", (1, 0, 2, 3), True), ("pmk", "pknj", (1, 0, 3, 2), False),
]  # fmt: skip


@pytest.mark.parametrize("named", ["", "pm", "mn"])
@pytest.mark.parametrize(("left", "right", "order", "written"), TURNED)
def test_a_result_that_is_transposed(
    left: str, right: str, order: tuple[int, ...], written: bool, named: str, rng: np.random.Generator
) -> None:
    """Rows and batches are written in the order that is read."""
    right = right.replace("nj", "nr")  # two axes of columns: r stands in one operand alone
    sizes = {"m": 6, "k": 9, "n": 21, "p": 4, "q": 2, "r": 5, "l": 3}
    graph, equation = _product(left, right, sizes, named, "f32")
    turned = li.Graph("turned", graph.params, {"y": li.transpose(graph.outputs[0], order)})
    a, b = (rng.integers(-4, 5, [sizes[c] for c in s]).astype(np.float32) for s in (left, right))
    exe = li.compile(turned)
    np.testing.assert_array_equal(exe(a=a, b=b)["y"], np.einsum(equation, a, b).transpose(order))
    text = prepare(turned, resolve("cpu")).text
    assert _kernels(turned) == 1
    assert _live_transposes(text) == (not written)


def _live_transposes(text: str) -> int:
    """Transpositions whose result another line reads."""
    made = re.findall(r"(%\w+) = (?:stablehlo.transpose|linalg.transpose)", text)
    return sum(len(re.findall(rf"{name}\b", text)) > 1 for name in made)


def test_results_that_are_read_as_they_are_too(rng: np.random.Generator) -> None:
    graph, equation = _product("pmk", "pkn", {"p": 3, "m": 6, "k": 9, "n": 21}, "", "f32")
    (y,) = graph.outputs
    a, b = (rng.integers(-4, 5, s).astype(np.float32) for s in ((3, 6, 9), (3, 9, 21)))
    want = np.einsum(equation, a, b)
    turned = li.transpose(y, (1, 0, 2))
    for outputs in ({"y": y, "t": turned}, {"s": li.sum(y, 0), "t": turned}, {"t": turned, "u": turned + 1.0}):
        got = li.compile(li.Graph("both", graph.params, outputs))(a=a, b=b)
        np.testing.assert_array_equal(got["t"], want.transpose(1, 0, 2))
        if "y" in got:
            np.testing.assert_array_equal(got["y"], want)
        if "u" in got:
            np.testing.assert_array_equal(got["u"], want.transpose(1, 0, 2) + 1)
