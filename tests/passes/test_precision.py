"""`precision`: weights of products in fewer bits, as NumPy rounds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zoo

import lstm_ir as li
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.reach import reached
from lstm_ir.passes.pipeline import Pipeline, for_target
from lstm_ir.passes.pipelines import PRECISIONS

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("stored", ["bf16", "f16"])
def test_precision_rounds_the_weights_of_dots_and_nothing_else(stored: str) -> None:
    """Expected: the same products with weights rounded by NumPy, in f32."""
    rng = np.random.default_rng(5)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((11, 5), (5, 7), (7,)))
    v = li.input("x", ("N", 5))
    g = li.Graph("g", [v], {"y": li.tanh(v @ li.weight("w", w) + li.weight("b", b))})
    after = Pipeline.parse(f"precision{{weights={stored}}}").run(g).graph
    narrow = w.astype(li.DType.of(stored).numpy).astype(np.float32)
    assert not np.array_equal(narrow, w)
    want = np.tanh(x @ narrow + b)
    np.testing.assert_allclose(li.interpret(after, x=x)["y"], want, rtol=1e-6, atol=1e-6)


def test_precision_stores_the_weights_of_loops_narrow_outside_of_them() -> None:
    graph = Pipeline.parse("bf16").run(zoo.get("tagger").graph).graph
    loops = [n for n in graph.nodes if n.op.name == "scan"]
    assert len(loops) == 2
    for n in loops:
        consts = n.arg("consts")
        assert isinstance(consts, tuple)
        matrices = [c for c in consts if c.rank == 3]
        assert matrices
        assert all(c.dtype is li.DType.bf16 for c in matrices)


def test_precision_refuses_a_format_it_does_not_know() -> None:
    with pytest.raises(li.PassError, match="weights is 'f8', not one of bf16, f16, int8"):
        Pipeline.parse("precision{weights=f8}")


def quantised(a: Array, axis: int) -> tuple[Array, Array]:
    """Symmetric int8: what is nearest to a multiple of the largest size / 127, and that multiple."""
    largest = np.abs(a).max(axis, keepdims=True)
    scale = np.where(largest == 0, np.float32(1), largest / np.float32(127))
    return np.rint(a / scale).astype(np.int8), scale


@pytest.mark.parametrize("rows", ["f32", "int8"])
@pytest.mark.parametrize("turned", [False, True])
def test_int8_by_output_channel(rows: str, turned: bool) -> None:
    rng = np.random.default_rng(6)
    x, w = rng.standard_normal((11, 5)).astype(np.float32), rng.standard_normal((5, 7)).astype(np.float32)
    w[:, 2], x[4] = 0, 0
    v, weight = li.input("x", ("N", 5)), li.weight("w", w.T.copy() if turned else w)
    y = li.dot_general(v, weight, ((1,), (1 if turned else 0,)))
    after = Pipeline.parse(f"precision{{weights=int8,rows={rows}}}").run(li.Graph("g", [v], {"y": y})).graph
    q, scale = quantised(w, 0)
    want = (x @ q.astype(np.float32)) * scale
    if rows == "int8":
        p, of_row = quantised(x, 1)
        want = (p.astype(np.int32) @ q.astype(np.int32)).astype(np.float32) * of_row * scale
    np.testing.assert_allclose(li.interpret(after, x=x)["y"], want, rtol=1e-6, atol=1e-6)
    assert np.abs(want - x @ w).max() < 0.1


@pytest.mark.parametrize("left", [False, True])
def test_int8_of_a_product_over_directions_and_two_axes(left: bool) -> None:
    """The scale has the batching axes of the weight and its columns, not what is summed."""
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((2, 3, 4, 5)).astype(np.float32), rng.standard_normal((6, 5, 2, 4)).astype(np.float32)
    v, weight = li.input("x", (2, 3, 4, 5)), li.weight("w", w)
    y = li.dot_general(v, weight, ((2, 3), (3, 1)), ((0,), (2,)))
    if left:  # the weight is the first operand
        y = li.swapaxes(li.dot_general(weight, v, ((3, 1), (2, 3)), ((2,), (0,))), 1, 2)
    assert y.shape == (2, 3, 6)
    for rows in ("f32", "int8"):
        after = Pipeline.parse(f"precision{{weights=int8,rows={rows}}}").run(li.Graph("g", [v], {"y": y})).graph
        got = li.interpret(after, x=x)["y"]
        for d in range(2):
            q, scale = quantised(w[:, :, d].transpose(0, 2, 1).reshape(6, 20), 1)
            flat = x[d].reshape(3, 20)
            p, of_row = quantised(flat, 1) if rows == "int8" else (flat, np.ones((3, 1), np.float32))
            want = (p.astype(np.float64) @ q.T) * of_row * scale[:, 0]
            np.testing.assert_allclose(got[d], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("word", ["int8", "bf16", "f16", "int8-dynamic"])
def test_a_cell_of_columns(word: str) -> None:
    """A state [H,B] is multiplied from the left: its weights are rounded as those of the cell of rows are."""
    rng = np.random.default_rng(8)
    w, u = (rng.standard_normal(s).astype(np.float32) * 0.3 for s in ((9, 12), (9, 9)))
    w[1, 1] = u[2, 5] = 3  # a scale for each output: other columns of the matrix are rounded finer
    x = li.input("x", ("T", 12, "B"))
    W, U = li.weight("w", w), li.weight("u", u)

    def columns(h: li.Value, r: li.Value) -> tuple[li.Value, li.Value]:
        h = li.tanh(W @ r + U @ h)
        return h, h

    def rows(h: li.Value, r: li.Value) -> tuple[li.Value, li.Value]:
        h = li.tanh(li.dense(r, W) + li.dense(h, U))
        return h, h

    one = li.scan(columns, li.zeros((9, "B")), x)[1]
    other = li.swapaxes(li.scan(rows, li.zeros(("B", 9)), li.swapaxes(x, 1, 2))[1], 1, 2)
    a = {"x": rng.standard_normal((5, 12, 4)).astype(np.float32)}
    got, want = (li.compile(li.Graph("g", [x], {"y": y}), options={"precision": word})(a)["y"] for y in (one, other))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert np.abs(got - li.interpret(li.Graph("g", [x], {"y": one}), a)["y"]).max() > 1e-5


@pytest.mark.parametrize(("rows", "most"), [("int8", 133_144), ("int24", 132_104)])
def test_long_sums_keep_their_rows(rows: str, most: int) -> None:
    """What i32 holds of products of two int8; one of them is -128 at least in a number of 24 bits."""
    for terms, dtype in ((most, li.DType.i32), (most + 1, li.DType.f32)):
        v = li.input("x", (1, terms))
        graph = li.Graph("g", [v], {"y": v @ li.weight("w", np.ones((terms, 2), np.float32))})
        after = Pipeline.parse(f"precision{{weights=int8,rows={rows}}}").run(graph).graph
        assert {n.types[0].dtype for n in after.nodes if n.op.name == "dot_general"} == {dtype}


def test_rows_in_24_bits_follow_the_target() -> None:
    """They are made where one instruction multiplies four bytes; f32 can be asked for."""
    v = li.input("x", (3, 5))
    graph = li.Graph("g", [v], {"y": v @ li.weight("w", np.ones((5, 4), np.float32))})
    for word, rows, products in (
        ("cpu:znver4", "", 3), ("cpu:alderlake", "", 3), ("cpu:x86-64-v4", "", 1), ("cpu:aarch64-dotprod", "", 1),
        ("cuda:sm_89", "", 1), ("vulkan", "", 1), ("cpu:znver4", ",rows=f32", 1), ("cpu:znver4", ",rows=int8", 1),
        ("cpu:x86-64-v3", ",rows=int24", 3),
    ):  # fmt: skip
        after = Pipeline.parse(f"precision{{weights=int8{rows}}}").run(graph, resolve(word).info).graph
        bodies = [n.attrs["body"] for n in after.nodes if n.op.name == "scan"] or [after]
        assert [sum(n.op.name == "dot_general" for n in b.nodes) for b in bodies] == [products], (word, rows)


@pytest.mark.parametrize(("sizes", "l2", "before"), [
    ((7, 1), 1535, True), ((7, 2), 1535, True), ((7, 3), 1535, False), ((7, 1), 1536, False),
    (("T", 1), 1535, False), ((7, "B"), 1535, False), ((1 << 19, 1), 1535, True), (((1 << 19) + 1, 1), 1535, False),
])  # fmt: skip
def test_rows_in_24_bits_are_multiplied_before_a_loop_whose_weights_outgrow_l2(
    sizes: Any, l2: int, before: bool, rng: np.random.Generator
) -> None:
    """For a row or two and a number of steps, of which the products take 64 MiB at most: 8 units, 40 inputs."""
    x, (H, I) = li.input("x", (*sizes, 40)), (8, 40)
    w, r = (li.weight(n, rng.uniform(-1, 1, (4 * H, k)).astype(np.float32)) for n, k in (("w", I), ("r", H)))
    graph = li.Graph("g", [x], {"y": li.lstm(x, w, r, li.zeros((4 * H,))).y})
    target = resolve("cpu:znver4").info._replace(l2_bytes=l2)
    after = Pipeline.parse("int8").run(graph, target).graph
    (loop,) = [n for n in after.nodes if n.op.name == "scan" and Loop(n).init]
    assert sum(n.op.name == "dot_general" for n in loop.attrs["body"].nodes) == (3 if before else 6)
    if sizes[0] == 7:
        T, B = (k if isinstance(k, int) else 2 for k in sizes)
        given = {"x": rng.uniform(-1, 1, (T, B, 40)).astype(np.float32)}
        np.testing.assert_allclose(li.interpret(after, given)["y"], li.interpret(graph, given)["y"], atol=0.02)


@pytest.mark.parametrize("word", ["int8", "int8-dynamic"])
@pytest.mark.parametrize(("T", "B"), [(7, 1), (1, 2), (3, 4)])
def test_products_of_two_directions_are_loops(word: str, T: int, B: int, rng: np.random.Generator) -> None:
    """Of one step, which are kernels: no product of integers is left outside of loops, the weights' own apart."""
    x, (H, I) = li.input("x", (T, B, 12)), (8, 12)
    w, r = (li.weight(n, rng.uniform(-1, 1, (2, 4 * H, k)).astype(np.float32)) for n, k in (("w", I), ("r", H)))
    y = li.lstm(x, w, r, li.zeros((2, 4 * H)), direction="bidirectional").y
    target = resolve("cpu:znver4").info._replace(l2_bytes=100)
    after = Pipeline.parse(word).run(li.Graph("g", [x], {"y": y}), target).graph
    computed = reached(after.nodes, after.params)
    assert not [n for n in after.nodes if n.op.name == "dot_general" and n.values[0] in computed]
    assert [n for n in after.nodes if n.op.name == "scan" and not Loop(n).init] or B > 2
    given = {"x": rng.uniform(-1, 1, (T, B, 12)).astype(np.float32)}
    want = li.interpret(li.Graph("g", [x], {"y": y}), given)["y"]
    np.testing.assert_allclose(li.interpret(after, given)["y"], want, atol=0.03)


@pytest.mark.parametrize("word", PRECISIONS)
def test_words_of_the_option(word: str) -> None:
    """The option ends the target's pipeline, as the pipeline of that name does; loops read what is narrow."""
    graph = zoo.get("tagger").graph
    made = for_target(None).with_precision(word).run(graph).graph
    assert str(made) == str(Pipeline.parse(word).run(graph).graph)
    stored = li.DType("i8" if "int8" in word else word)
    loops = [n for n in made.nodes if n.op.name == "scan"]
    assert loops
    for n in loops:
        consts = n.arg("consts")
        assert isinstance(consts, tuple)
        assert {c.dtype for c in consts if c.rank == 3} == {stored}


def test_words_that_are_none() -> None:
    with pytest.raises(li.OptionError, match=r"precision is 'int4'\. Did you mean int8\?"):
        for_target(None).with_precision("int4")
    for pipeline in ("int8-dynamic", "default,precision{weights=int8,rows=f32}", "bf16"):
        with pytest.raises(li.OptionError, match=r"precision is 'int8', and the pipeline has the pass precision"):
            Pipeline.parse(pipeline).with_precision("int8")
    assert Pipeline.parse("int8").with_precision("int8")
    with pytest.raises(li.PassError, match="rows=int8 goes with weights=int8, not bf16"):
        Pipeline.parse("precision{weights=bf16,rows=int8}")
    with pytest.raises(li.PassError, match="rows=int24 goes with weights=int8, not f16"):
        Pipeline.parse("precision{weights=f16,rows=int24}")
    with pytest.raises(li.PassError, match="rows is 'u8', not one of auto, f32, int24, int8"):
        Pipeline.parse("precision{weights=int8,rows=u8}")
