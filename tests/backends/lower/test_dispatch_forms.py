"""Ops, and pairs of ops, of which IREE makes one dispatch that it cannot compile, or that is wrong."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from device import need, need_target
from exact_cases import Case, agree

import lstm_ir as li

Array = np.ndarray[Any, Any]
A = np.arange(63, dtype=np.float32).reshape(7, 9)


def _case(name: str, x: li.Value, y: li.Value, a: Array, want: Array) -> Case:
    return li.Graph(name, [x], {"y": y}), {"x": a}, {"y": want}, name


def test_every_second_element_backwards() -> None:
    x, row, named = li.input("x", (7, 9)), li.input("x", (7,)), li.input("x", ("R", "C"))
    agree(
        [
            _case("row", row, li.reverse(row[::2]), A[:, 0], A[::-2, 0]),
            _case("columns", x, li.reverse(x[1::2, ::3], 1), A, A[1::2, ::3][:, ::-1]),
            _case("both", x, li.reverse(li.abs(x[::2, ::2])), A, A[::2, ::2][::-1, ::-1]),
            _case("names", named, li.reverse(named[::2, ::2]), A, A[::2, ::2][::-1, ::-1]),
        ]
    )


def test_a_row_of_a_slice() -> None:
    x = li.input("x", ("A", "B", "C"))
    a = A.reshape(7, 3, 3)
    agree([_case("row", x, li.take(x[:, :, 1:], 0, 2), a, a[:, :, 1])])


def test_picked_rows_are_added_again() -> None:
    """Eight bytes wide, their updates were an array of 2^58 bytes on the stack."""
    cases: list[Case] = []
    for kind in ("f64", "i64", "f32"):
        t, i = li.input("t", ("A", "B"), kind), li.input("i", ("N",), "i32")
        y = li.scatter_add(t, i, li.take(t, i) * li.constant(2, kind))
        table, rows = A.astype(li.DType(kind).numpy), np.array([0, 2, 2, 4], np.int32)
        want = table * np.array([3, 1, 5, 1, 3, 1, 1], table.dtype)[:, None]
        cases.append((li.Graph(kind, [t, i], {"y": y}), {"t": table, "i": rows}, {"y": want}, kind))
    agree(cases)


@pytest.mark.parametrize("kind", ["f64", "f32"])
def test_softmax_of_picked_elements(kind: str) -> None:
    """Eight bytes wide and read by another too, they were an array of 2^60 bytes on the stack."""
    x = li.input("x", ("A", "B"), kind)
    s = li.sort(x, 1)
    exe = li.compile(li.Graph(kind, [x], {"s": s * 2.0, "p": li.softmax(s, 1)}), options={"cache": False})
    assert not [n for n in exe.report.notes if n.startswith("compiled ")]
    a = np.random.default_rng(0).standard_normal((3, 7)).astype(li.DType(kind).numpy)
    want = np.sort(a, 1)
    got = exe(x=a)
    np.testing.assert_array_equal(got["s"], want * 2)
    powers = np.exp(want - want.max(1, keepdims=True))
    np.testing.assert_allclose(got["p"], powers / powers.sum(1, keepdims=True), rtol=1e-12 if kind == "f64" else 1e-6)


@pytest.mark.parametrize("target", ["cpu", "vulkan"])
def test_one_element_of_a_slice_in_more_axes(target: str) -> None:
    """Of the slice and the reshape IREE made a slice with more axes than its operand has."""
    need_target(target)
    c, i, given = li.input("c", (2,)), li.input("i", (), "i32"), np.array([3.0, 5.0], np.float32)
    parts = {
        "first": (c[:1], 0),
        "strided": (c[::2], 0),
        "last": (c[1:], 1),
        "computed": (li.dynamic_slice(c, [i], (1,)), 1),
    }
    cases: list[Case] = []
    for name, (part, at) in parts.items():
        one = li.reshape(part, (1, 1))
        y = {"y": li.pad(one, (0, 0), (0, 2)), "z": one, "twice": one + one}
        want = {"y": [[given[at], 0, 0]], "z": [[given[at]]], "twice": [[2 * given[at]]]}
        exact = {n: np.array(v, np.float32) for n, v in want.items()}
        cases.append((li.Graph(name, [c, i], y), {"c": given, "i": np.array(1, np.int32)}, exact, name))
    agree(cases, target, verify=True)


@pytest.mark.parametrize("kind", ["f32", "f64", "i32", "f16"])
def test_one_element_that_a_loop_carries_in_more_axes(kind: str) -> None:
    """Of an LSTM of one row and one unit, without kernels: of the carried tensor and the reshape one slice was made."""
    h, xs = li.input("h", (1, 1), kind), li.input("xs", (5, 1, 1), kind)
    (a, b), ys = li.scan(lambda c, x: ((c[0] + x, c[1] - x), c[0]), (h, h), xs)
    a, b = li.reshape(a, (1, 1, 1)), li.reshape(b, (1, 1, 1, 1))
    dtype = li.DType(kind).numpy
    given = {"h": np.ones((1, 1), dtype), "xs": np.arange(5).reshape(5, 1, 1).astype(dtype)}
    want = {
        "a": [[[11]]],
        "twice": [[[22]]],
        "b": [[[[-9]]]],
        "size": [[[[9]]]],
        "ys": [[[1]], [[1]], [[2]], [[4]], [[7]]],
    }
    graph = li.Graph(kind, [h, xs], {"a": a, "twice": a + a, "b": b, "size": li.abs(b), "ys": ys})
    agree([(graph, given, {n: np.array(v, dtype) for n, v in want.items()}, kind)], verify=True, kernels=False)


def test_bytes_pick_rows() -> None:
    """Of open sizes, the widened indices were an array of 2^55 bytes on the stack."""
    cases: list[Case] = []
    for kind in ("u8", "i8", "i32"):
        for name, shape, sizes in (("row", ("K",), (4,)), ("mixed", (2, "K"), (2, 3)), ("rows", ("J", "K"), (3, 2))):
            t, i, u = li.input("t", ("N", "M")), li.input("i", shape, kind), li.input("u", (*shape, "M"))
            at = (np.arange(np.prod(sizes)) * 3 % 7).reshape(sizes)
            rows = np.arange(np.prod(sizes) * 9, dtype=np.float32).reshape(*sizes, 9)
            added, given = A.copy(), {"t": A, "i": at.astype(li.DType(kind).numpy), "u": rows}
            np.add.at(added, at, rows)
            graph = li.Graph(f"{kind}_{name}", [t, i, u], {"y": li.scatter_add(t, i, u), "z": li.take(t, i)})
            cases.append((graph, given, {"y": added, "z": A[at]}, f"{kind} {name}"))
    agree(cases)


def test_a_scatter_of_no_rows() -> None:
    """The compiler divides by their number, and ends."""
    cases: list[Case] = []
    for kind, (rows, columns) in (("f32", (7, 9)), ("f16", (5, 3)), ("i32", (2, 4))):
        t = li.input("t", (rows, columns), kind)
        table = np.arange(rows * columns).reshape(rows, columns).astype(li.DType(kind).numpy)
        none = np.zeros((0,), np.int32)
        y = li.scatter_add(t, none, li.constant(np.zeros((0, columns)), kind))
        cases.append((li.Graph(kind, [t], {"y": y}), {"t": table}, {"y": table}, kind))
        y = li.scatter_add(t, none, li.constant(np.zeros((rows, 0)), kind), axis=1)
        cases.append((li.Graph(f"{kind}_columns", [t], {"y": y}), {"t": table}, {"y": table}, kind))
    agree(cases)


def test_joins_of_widened_rows() -> None:
    """Rows that a join widens were an array on the stack, of any size."""
    cases: list[Case] = []
    for kind in ("f16", "bf16"):
        a, b = li.input("a", ("T", "B", 1), kind), li.input("b", (1, "B", 1), kind)
        rows, row = A[:4, :5, None].astype(a.dtype.numpy), A[6:, :5, None].astype(a.dtype.numpy)
        for to in ("f32", "i32"):
            wide = li.convert(a, to)
            y = li.concat([wide, li.convert(b, to), wide * li.constant(2, to)])
            want = np.concatenate([rows, row, 2 * rows]).astype(li.DType(to).numpy)
            cases.append((li.Graph(f"{kind}_{to}", [a, b], {"y": y}), {"a": rows, "b": row}, {"y": want}, kind))
    agree(cases)


@pytest.mark.vulkan
def test_products_of_widened_rows_on_vulkan() -> None:
    """Whole numbers, whose sums are exact in any order."""
    need("vulkan")
    a = np.arange(4 * 3 * 16).reshape(4, 3, 16).astype(np.int8) % 11 - 5
    w = np.arange(16 * 4).reshape(16, 4).astype(np.float32) % 7 - 3
    x = li.input("x", ("T", "B", 16), "i8")
    y = li.matmul(li.convert(x, "f32"), li.constant(w))
    agree([(li.Graph("g", [x], {"y": y}), {"x": a}, {"y": a.astype(np.float32) @ w}, "i8")], "vulkan")


@pytest.mark.vulkan
def test_a_sum_over_parts_of_open_sizes_on_vulkan() -> None:
    """One dispatch that picks the buffer of a part element by element reads all from the first."""
    need("vulkan")
    a, b, c = A[0, :4], A[1, :7], A[2, :2]
    x, y, z = li.input("x", ("T",)), li.input("y", (7,)), li.input("z", (2,))
    total = li.sum(li.concat([x, li.abs(y), li.convert(li.convert(z, "bf16"), "f32")]))
    want = np.asarray(a.sum() + b.sum() + c.sum(), np.float32)  # whole numbers below 256: exact in bf16
    agree([(li.Graph("g", [x, y, z], {"v": total}), {"x": a, "y": b, "z": c}, {"v": want}, "sum")], "vulkan")


@pytest.mark.vulkan
def test_halves_side_by_side_on_vulkan() -> None:
    need("vulkan")
    p, q = li.input("p", ("B", 2), "f16"), li.input("q", ("B", "T"), "f16")
    m, n = A[:3, :2].astype(np.float16), A[:3, 2:7].astype(np.float16)
    want = {"v": np.concatenate([m, n], 1)}
    agree([(li.Graph("g", [p, q], {"v": li.concat([p, q], 1)}), {"p": m, "q": n}, want, "halves")], "vulkan")


@pytest.mark.parametrize("kind", ["i32", "i64", "i8", "u8", "u32"])
def test_an_integer_less_itself(kind: str, rng: np.random.Generator) -> None:
    """Of open sizes; IREE makes a literal of it, which needs numbers."""
    x, y = li.input("x", ("N", "M"), kind), li.input("y", ("M",), kind)
    g = li.Graph("less", [x, y], {"zero": x - x, "less": x - y})
    a, b = (rng.integers(0, 100, s).astype(li.DType(kind).numpy) for s in ((3, 5), (5,)))
    with li.compile(g, options={"cache": False}) as exe:
        got = exe(x=a, y=b)
    np.testing.assert_array_equal(got["zero"], np.zeros_like(a))
    np.testing.assert_array_equal(got["less"], a - b)


def test_softmax_of_one_row() -> None:
    """Over an open size beside axes of size 1, 2^55 bytes of stack were asked for."""
    x, deep = li.input("x", (1, "T")), li.input("x", (1, 1, "T"))
    a = A[:1]
    want = np.exp(a - a.max()) / np.exp(a - a.max()).sum()
    rows = li.input("x", (1, "T", "Q"))
    greatest = A.reshape(1, 7, 9).max(2)
    of_rows = np.exp(greatest - greatest.max()) / np.exp(greatest - greatest.max()).sum()
    cases = [
        _case("row", x, li.softmax(x, 1), a, want),
        _case("deep", deep, li.softmax(deep, 2), a[None], want[None]),
        _case("greatest", rows, li.softmax(li.max(rows, 2), 1), A.reshape(1, 7, 9), of_rows),
    ]
    for graph, given, wanted, name in cases:
        with li.compile(graph) as exe:
            np.testing.assert_allclose(exe(**given)["y"], wanted["y"], atol=1e-6, err_msg=name)


@pytest.mark.parametrize("kernels", ["usual", "none"])
def test_two_products_of_halves_by_one_number(kernels: str) -> None:
    """Of a batch of one, [1] and [1,2]; what widens the number was left over."""
    cases: list[Case] = []
    for kind in ("f16", "bf16", "f32"):
        number, u, v, w = (li.input(n, shape, kind) for n, shape in zip("nuvw", ((1,), *((1, 2),) * 3), strict=True))
        arrays = {"n": [1.5], "u": [[0.5, -2.0]], "v": [[3.0, 0.25]], "w": [[-1.0, 4.0]]}
        given = {k: np.array(a, li.DType(kind).numpy) for k, a in arrays.items()}
        batch = ((), ()), ((0,), (0,))
        y = li.dot_general(number, u, *batch) + li.dot_general(number, v, *batch) * w
        want = np.array([[0.75 - 4.5, -3.0 + 1.5]], li.DType(kind).numpy)
        cases.append((li.Graph(kind, [number, u, v, w], {"y": y}), given, {"y": want}, kind))
    options: dict[str, Any] = {} if kernels == "usual" else {"kernels": False}
    agree(cases, **options)


@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
def test_weights_backwards(target: str) -> None:
    """What is made of weights alone is computed once, at the start, where a reverse read outside of them."""
    need_target(target)
    x = li.input("x", (3,))
    cases: list[Case] = []
    for kind, shape, axes in (
        ("f32", (16,), (0,)),
        ("f32", (3, 5), (1,)),
        ("i32", (4, 7, 2), (0, 2)),
        ("u8", (9,), (0,)),
    ):
        a = np.arange(np.prod(shape)).reshape(shape).astype(li.DType(kind).numpy)
        w = li.weight(f"w{len(cases)}", a)
        y = {"y": li.reverse(w, axes), "doubled": li.reverse(w * 2, axes)}
        want = {"y": np.flip(a, axes), "doubled": np.flip(a * 2, axes)}
        cases.append(
            (li.Graph(f"g{len(cases)}", [x], {**y, "z": x + 1}), {"x": np.ones(3, "f4")}, want, f"{kind}{shape}")
        )
    agree(cases, target)


@pytest.mark.vulkan
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_literals_of_bfloat16_are_joined_on_vulkan(axis: int, rng: np.random.Generator) -> None:
    need("vulkan")
    literal, given = (rng.normal(size=(4, 2, 3)).astype(ml_dtypes.bfloat16) for _ in range(2))
    x = li.input("x", literal.shape, "bf16")
    joined = li.concat([x, li.constant(literal), x], axis)
    exe = li.compile(li.Graph("g", [x], {"y": joined}), "vulkan")
    np.testing.assert_array_equal(exe(x=given)["y"], np.concatenate([given, literal, given], axis))
