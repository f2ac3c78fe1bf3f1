"""Ops that choose, pick, reduce and normalise, against onnxruntime, at the versions where their definition changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need, need_target
from onnx_cases import GROUP, Case, Shape, compare, compare_compiled, ints, model_of
from onnx_gradients import compare_gradient

import lstm_ir as li

X: Shape = ("B", "T", 5)
FOUR: Shape = ("B", 12, "T", 5)
REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")
HEADS: Shape = ("B", 2, "T", 4)
MASK = np.linspace(-1, 1, 30, dtype="f4").reshape(6, 5)
TUPLES = np.array([[[1, 0], [0, -1]], [[2, 4], [0, 1]], [[-3, 2], [1, 1]]])
CASES = [
    # by place
    *(Case("Trilu", (X,), (np.int64(k),), {"upper": upper}, (14,)) for k in (-2, 0, 3) for upper in (0, 1)),
    Case("Trilu", (X,), (), {}, (14,)),
    Case("Hardmax", (X,), (), {"axis": 1}, (11, 13)),
    Case("OneHot", (), (np.array([[0, 4, -1], [2, 7, -6]]), np.int64(5), np.array([-0.5, 2], "f4"))),
    Case("OneHot", (), (np.array([[1, 0, 2]]), ints(3), np.array([0, 1])), {"axis": 0}, (9, 11)),
    Case("GatherND", ((4, 6, 5),), (np.array([[[1, 2], [-1, 0]]]),), {}, (11, 13)),
    Case("GatherND", (("B", 6, 5),), (np.array([[1], [-2]]),)),
    Case("GatherND", ((3, 6, 5),), (TUPLES,), {"batch_dims": 1}, (12, 13)),
    Case("ReverseSequence", ((6, 3, 5),), (ints(2, 6, 1),), {}, (10,)),
    Case("ReverseSequence", ((3, 6, 5),), (ints(4, 1, 6),), {"time_axis": 1, "batch_axis": 0}, (10,)),
    Case("ReverseSequence", (("T", 3),), (ints(6, 3, 5),), {}, (10,)),
    Case("DepthToSpace", (FOUR,), (), {"blocksize": 2}, (9, 11, 13)),
    Case("DepthToSpace", (FOUR,), (), {"blocksize": 2, "mode": "CRD"}, (11, 13)),
    Case("SpaceToDepth", (("B", 3, 6, 8),), (), {"blocksize": 2}, (9, 13)),
    Case("ArgMin", (X,), (), {"axis": 1, "keepdims": 0}, (9, 11)),
    Case("ArgMin", ((3, "T", 1),), (), {"axis": -1, "select_last_index": 1}, (12, 13)),
    # reductions
    *(Case(op, (X,), (), {"axes": [1, -1], "keepdims": 0}, (9, 11, 13), positive=True) for op in REDUCTIONS),
    *(Case(op, (X,), (ints(-1),), {}, (18,), positive=True) for op in REDUCTIONS),
    Case("ReduceLogSumExp", (X,), (np.array([], np.int64),), {}, (18,)),
    Case("GlobalMaxPool", (FOUR,), (), {}, (9, 22)),
    # norms
    Case("GroupNormalization", (FOUR, (12,), (12,)), (), {"num_groups": 3, "epsilon": 1e-2}, (21,)),
    Case("RMSNormalization", (X, (5,)), (), {"epsilon": 1e-2}, (23,)),
    Case("RMSNormalization", (X, ("T", 5)), (), {"axis": 1}, (23,)),
    Case("LpNormalization", (X,), (), {"axis": 1, "p": 1}, (9, 22)),
    Case("LpNormalization", (X,)),
    # attention
    *(Case("Attention", (HEADS, ("B", 2, "K", 4), ("B", 2, "K", 7)), (), {"is_causal": k}, (23, 24)) for k in (0, 1)),
    Case("Attention", ((3, 2, 6, 4), (3, 1, 5, 4), (3, 1, 5, 3)), (MASK,), {"scale": 0.3}, (23,)),
    Case("Attention", ((3, 2, 6, 4), (3, 2, 5, 4), (3, 2, 5, 3)), (MASK > 0,), {}, (23,)),
    Case("Attention", (HEADS, HEADS, HEADS), (), {"softcap": 0.7}, (23,)),
    Case("Attention", (("B", "T", 8), ("B", "K", 4), ("B", "K", 6)), (), {"q_num_heads": 4, "kv_num_heads": 2}, (23,)),
    # functions
    Case("Celu", (X,), (), {"alpha": 0.3}, (12,)),
    Case("Swish", (X,), (), {"alpha": 1.7}, (24,)),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir", "onnxruntime")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_onnxruntime(case: Case, rng: np.random.Generator) -> None:
    for opset in case.opsets:
        compare(case, opset, rng)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients(case: Case, rng: np.random.Generator) -> None:
    compare_gradient(case, rng)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(CASES), GROUP))
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
def test_compiled(target: str, first: int, rng: np.random.Generator) -> None:
    need("onnxruntime")
    need_target(target)
    compare_compiled(CASES[first : first + GROUP], target, rng)


def same(made: Any, fed: dict[str, Any], **options: Any) -> None:
    """By the meaning, and compiled."""
    g = li.from_onnx(made, **options)
    want = om.run(made, fed)
    given = {n: fed[n] for n in g.input_names}
    with li.compile(g) as exe:
        for found in (li.interpret(g, given), exe(**given)):
            for got, w in zip(found.values(), want, strict=True):
                assert got.dtype == w.dtype
                np.testing.assert_array_equal(got, w)


def test_numbers_that_are_none() -> None:
    """NaN and both infinities, by the meaning and compiled, where a comparison of a value with itself decides."""
    x = np.array([[1, np.nan, -np.inf], [np.inf, 0, np.nan]], "f4")
    above, below = {"detect_negative": 0}, {"detect_positive": 0}
    asked: dict[str, Any] = {"both": {}, "above": above, "below": below, "never": above | below}
    nodes = [om.node("IsInf", ["x"], [name], name=name, **attrs) for name, attrs in asked.items()]
    nodes.append(om.node("IsNaN", ["x"], ["none"]))
    same(om.model(nodes, {"x": (["N", 3], "f4")}, [*asked, "none"], opset=20), {"x": x})


def test_what_a_division_leaves() -> None:
    """Of every pair of signs, of integers and floats."""
    a, b = (v.reshape(-1) for v in np.meshgrid(np.array([-7, -3, 0, 2, 6]), np.array([-3, -2, 2, 5])))
    nodes = [om.node("Mod", ["a", "b"], ["left"]), om.node("Mod", ["a", "b"], ["fmod"], name="1", fmod=1)]
    for dtype in ("i8", "i4", "f4"):
        some = nodes[1:] if dtype == "f4" else nodes
        outputs = [n.output[0] for n in some]
        made = om.model(some, {"a": (["N"], dtype), "b": (["N"], dtype)}, outputs)
        same(made, {"a": a.astype(dtype), "b": b.astype(dtype)})
    with pytest.raises(li.ModelError, match="fmod is 0 for f32; it is 1 for floats"):
        li.from_onnx(om.model(nodes, {"a": (["N"], "f4"), "b": (["N"], "f4")}, ["left", "fmod"]))


def test_the_least_of_integers() -> None:
    """At the ends of a type, where the negative of the least is no number of the type."""
    x = np.array([[5, -(2**31), 2**31 - 1, -(2**31)]], "i4")
    same(om.model([om.node("ArgMin", ["x"], ["y"], axis=1)], {"x": (["N", 4], "i4")}, ["y"]), {"x": x})


def test_sizes_through_mod(rng: np.random.Generator) -> None:
    """T % 4 more steps of zeros, with T open."""
    nodes = [
        om.node("Shape", ["x"], ["t"], start=0, end=1), om.node("Mod", ["t", "four"], ["n"]),
        om.node("Concat", ["none", "n"], ["pads"], axis=0), om.node("Pad", ["x", "pads"], ["y"]),
    ]  # fmt: skip
    made = om.model(nodes, {"x": (["T"], "f4")}, ["y"], {"four": ints(4), "none": ints(0)})
    for steps in (5, 8):
        same(made, {"x": rng.normal(size=steps).astype("f4")})


def test_a_mask_of_true(rng: np.random.Generator) -> None:
    """Trilu of booleans over one open size twice, with a diagonal that is a size."""
    nodes = [
        om.node("Shape", ["x"], ["t"], start=0, end=1), om.node("Concat", ["t", "t"], ["square"], axis=0),
        om.node("Expand", ["true", "square"], ["all"]), om.node("Squeeze", ["t"], ["whole"]),
        om.node("Sub", ["whole", "three"], ["k"]), om.node("Trilu", ["all", "k"], ["y"], upper=0),
    ]  # fmt: skip
    literals = {"true": np.array(True), "three": np.int64(3)}
    made = om.model(nodes, {"x": (["T"], "f4")}, ["y"], literals)
    for steps in (5, 2):
        same(made, {"x": rng.normal(size=steps).astype("f4")})


def test_rows_backwards_with_lengths_of_a_call(rng: np.random.Generator) -> None:
    """Lengths are an input; one beyond the steps is refused at the call."""
    made = om.model(
        [om.node("ReverseSequence", ["x", "n"], ["y"])], {"x": (["T", "B", 2], "f4"), "n": (["rows"], "i8")}, ["y"]
    )
    x = rng.normal(size=(5, 3, 2)).astype("f4")
    same(made, {"x": x, "n": np.array([5, 2, 1])})
    with pytest.raises(li.ValueRangeError):
        li.interpret(li.from_onnx(made), x=x, n=np.array([6, 2, 1]))


def test_a_norm_of_zero(rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 4)).astype("f4")
    x[1] = 0
    for p in (1, 2):
        got = li.interpret(
            li.from_onnx(om.model([om.node("LpNormalization", ["x"], ["y"], p=p)], {"x": (["B", 4], "f4")}, ["y"])), x=x
        )["y"]
        norm = (np.abs(x).astype("f8") ** p).sum(1, keepdims=True) ** (1 / p)
        np.testing.assert_allclose(got, np.divide(x, norm, where=norm > 0, out=np.zeros(x.shape)), rtol=2e-6)


def test_the_sum_of_exponents_that_overflow() -> None:
    x = np.array([[900, 900, 1], [-900, -900, -900], [-np.inf, -np.inf, -np.inf]], "f4")
    made = om.model([om.node("ReduceLogSumExp", ["x", "a"], ["y"])], {"x": (["B", 3], "f4")}, ["y"], {"a": ints(1)})
    wide = x.astype("f8")
    with np.errstate(all="ignore"):
        top = np.where(np.isfinite(wide.max(1)), wide.max(1), 0)
        want = np.log(np.exp(wide - top[:, None]).sum(1)) + top
        got = li.interpret(li.from_onnx(made), x=x)["y"]
    np.testing.assert_allclose(got[:, 0], want, rtol=1e-6)


REFUSED = [
    (Case("OneHot", (X, ("T",), (2,))), "the depth depends on values that only a call knows"),
    (Case("SpaceToDepth", (FOUR,), (), {"blocksize": 2}), "T and 5 are not known to divide into blocks of 2"),
    (Case("DepthToSpace", (FOUR,), (), {"blocksize": 5}), "blocksize 5"),
    (Case("GroupNormalization", (FOUR, (12,), (12,)), (), {"num_groups": 5}), "num_groups 5"),
    (Case("LpNormalization", (X,), (), {"p": 3}), "p is 3, not 1 or 2"),
    (Case("Trilu", (("T",),)), r"the operand is f32\[T\], without two axes"),
    (Case("ReverseSequence", (FOUR,), (ints(1, 1, 1),), {"time_axis": 2}), "time_axis 2, batch_axis 1"),
]


@pytest.mark.parametrize(("case", "why"), REFUSED, ids=[w for _, w in REFUSED])
def test_refused(case: Case, why: str, rng: np.random.Generator) -> None:
    made, _ = model_of(case, case.opsets[0], True, rng)
    with pytest.raises(li.ModelError, match=why):
        li.from_onnx(made)
