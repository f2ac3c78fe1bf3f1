"""Ops around recurrent layers against onnxruntime, at the versions where their definition changed."""

from __future__ import annotations

import numpy as np
import onnx_models as om
import pytest
from device import need, need_target
from onnx_cases import GROUP, Case, Shape, compare, compare_compiled, ints, model_of
from onnx_gradients import compare_gradient

import lstm_ir as li

X: Shape = ("B", "T", 5)
PLACES, ONES = np.array([[[0, -1, 2]], [[1, 4, 0]]]), np.ones((2, 1, 3), np.float32)
BYTES = np.arange(6, dtype="u1").reshape(2, 3), np.arange(-6, 6, dtype="i1").reshape(3, 4)
BINARY = ["Add", "Sub", "Mul", "Div", "Min", "Max", "Sum", "Mean"]
UNARY = [
    "Abs", "Neg", "Exp", "Sin", "Cos", "Asin", "Acos", "Atan", "Tanh", "Sigmoid", "Erf", "Floor", "Ceil", "Round",
    "Sign", "Reciprocal", "Relu",
    "Softplus", "Softsign", "HardSwish", "Identity", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "ThresholdedRelu",
    "Gelu", "Mish", "Dropout",
]  # fmt: skip
CASES = [
    *(Case(op, (X, (1, "T", 1))) for op in BINARY),
    *(Case(op, (X,)) for op in UNARY),
    *(Case(op, (X,), positive=True) for op in ("Log", "Sqrt")),
    Case("LeakyRelu", (X,), (), {"alpha": 0.3}, (9, 16)),
    Case("Elu", (X,), (), {"alpha": 0.3}),
    Case("Selu", (X,), (), {"alpha": 1.3, "gamma": 0.7}),
    Case("HardSigmoid", (X,), (), {"alpha": 0.4, "beta": 0.3}),
    Case("Gelu", (X,), (), {"approximate": "tanh"}),
    Case("PRelu", (X, (5,)), (), {}, (9, 16)),
    Case("Pow", (X,), (np.float32(2),), {}, (9, 12, 15)),
    Case("Pow", (X,), (np.float32(0.5),), positive=True),
    Case("Clip", (X,), (), {"min": -0.2, "max": 0.4}, (9,)),
    Case("Clip", (X,), (np.float32(-0.2), np.float32(0.4)), {}, (11, 13)),
    Case("Cast", (X,), (), {"to": 7}, (9, 13, 19)),
    Case("Cast", (X,), (), {"to": 9}),
    # shapes
    Case("Reshape", (X,), (ints(0, -1),), {}, (9, 14)),
    Case("Reshape", (X,), (ints(-1, 5),)),
    Case("Flatten", (X,), (), {"axis": 2}, (9, 13)),
    Case("Flatten", (X,), (), {"axis": -1}, (11,)),
    Case("Transpose", (X,), (), {"perm": [1, 0, 2]}),
    Case("Transpose", (X,)),
    Case("Squeeze", (("B", 1, 5),), (), {"axes": [1]}, (9, 11)),
    Case("Squeeze", (("B", 1, 5),), (ints(-2),), {}, (13,)),
    Case("Unsqueeze", (X,), (), {"axes": [0, 2]}, (9, 11)),
    Case("Unsqueeze", (X,), (ints(0, -1),), {}, (13,)),
    Case("Concat", (X, X), (), {"axis": 1}),
    Case("Concat", (X, ("B", 2, 5)), (), {"axis": -2}),
    Case("Split", (("B", 6, 5),), (), {"axis": 1, "split": [1, 3, 2]}, (9, 11), 3),
    Case("Split", (("B", 6, 5),), (ints(1, 5),), {"axis": 1}, (13, 18), 2),
    Case("Split", (("B", 7, 5),), (), {"axis": 1, "num_outputs": 3}, (18,), 3),
    Case("Slice", (X,), (), {"axes": [1, 2], "starts": [1, -3], "ends": [-1, 99]}, (9,)),
    Case("Slice", (X,), (ints(1, -3), ints(-1, 2**63 - 1), ints(1, 2)), {}, (10, 13)),
    Case("Slice", (X,), (ints(-1, 3), ints(-(2**63) + 1, 0), ints(1, 2), ints(-1, -2))),
    Case("Slice", (X,), (ints(0, -3), ints(2, 4))),
    Case("Slice", (("B", 6, 5),), (ints(-99, 3), ints(99, 2), ints(1, 2))),
    Case("Expand", (("B", 1, 5),), (ints(2, 1, 4, 1),), {}, (9, 13)),
    Case("Tile", (X,), (ints(1, 2, 3),), {}, (9, 13)),
    Case("Pad", (X,), (), {"pads": [0, 1, 2, 0, 3, 0], "value": 0.5}, (9,)),
    Case("Pad", (X,), (ints(0, 1, 2, 0, 3, 0), np.float32(0.5)), {}, (11, 13, 18)),
    Case("Pad", (X,), (ints(0, 2, 1, 0, 3, -1),), {"mode": "reflect"}),
    Case("Pad", (X,), (ints(0, 2, 1, 0, 3, 2),), {"mode": "edge"}),
    Case("Pad", (X,), (ints(2, 3), np.float32(0.5), ints(-2)), {}, (18,)),
    Case("Pad", (X,), (ints(0, 2, 1, 0, 3, 2),), {"mode": "wrap"}, (19,)),
    Case("Shape", (X,)),
    Case("Shape", (X,), (), {"start": 1, "end": -1}, (15,)),
    Case("Size", (X,)),
    Case("ConstantOfShape", (), (ints(2, 3),)),
    Case("Range", (), (np.int64(9), np.int64(-2), np.int64(-3)), {}, (11,)),
    Case("Range", (), (np.float32(0.5), np.float32(2.1), np.float32(0.25)), {}, (11,)),
    # indices
    Case("Gather", (X,), (np.int64(-1),), {"axis": 1}),
    Case("Gather", (X,), (np.array([[0, -1], [2, 1]]),), {"axis": 2}),
    Case("GatherElements", (("B", 6, 5),), (np.array([[[0, -1, 2]], [[1, 1, 0]]]),), {"axis": 1}, (11, 13)),
    Case("ScatterElements", (("B", 6, 5),), (PLACES, ONES), {"axis": 1}),
    Case("ScatterElements", (("B", 6, 5),), (PLACES, ONES), {"axis": 2, "reduction": "add"}, (16, 18)),
    Case("ScatterND", ((4, 6, 5),), (np.array([[1, 2], [-1, 0]]), np.full((2, 5), 7, "f4")), {}, (11, 13)),
    Case("ScatterND", (("B", 6, 5),), (np.array([[1], [1]]), np.full((2, 6, 5), 7, "f4")), {"reduction": "add"}, (16,)),
    Case("CumSum", (X,), (np.int64(1),), {"exclusive": 1, "reverse": 1}, (11, 14)),
    Case("TopK", (X,), (ints(3),), {"axis": 1}, (10,), 2),
    Case("TopK", (X,), (ints(5),), {"largest": 0}, (11,), 2),
    Case("ArgMax", (X,), (), {"axis": 1, "keepdims": 0}, (9, 11)),
    Case("ArgMax", (("B", "T", 1),), (), {"axis": -1, "select_last_index": 1}, (12, 13)),
    # reductions and products
    *(
        Case(op, (X,), (), {"axes": [1, -1], "keepdims": 0}, (9, 11))
        for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
    ),
    Case("ReduceSum", (X,), (ints(1),), {}, (13,)),
    Case("ReduceSum", (X,), (np.array([], np.int64),), {"noop_with_empty_axes": 1}, (13,)),
    Case("ReduceMean", (X,), (ints(0, 1),), {}, (18,)),
    Case("ReduceMax", (X,), (ints(-1),), {"keepdims": 0}, (18, 20)),
    Case("ReduceMean", (X,)),
    Case("MatMul", (X, (5, 4)), (), {}, (9, 13)),
    Case("MatMul", (X, ("B", 5, 4))),
    Case("Gemm", (("B", 5), (4, 5), (1, 4)), (), {"transB": 1, "alpha": 0.5, "beta": 2.0}, (9, 11, 13)),
    Case("Gemm", ((5, "B"), (5, 4)), (), {"transA": 1}, (11,)),
    Case("Einsum", (X, (2, 5, 4)), (), {"equation": "bti,gio->btgo"}, (12,)),
    Case("Einsum", (X, ("B", "T", 4)), (), {"equation": "b t i, b t o -> i o"}),
    Case("Einsum", (X,), (), {"equation": "...i"}),
    Case("Einsum", (X, (5, 4)), (), {"equation": "...i,io"}),
    Case("Einsum", (X,), (), {"equation": "bti->tb"}),
    Case("Einsum", ((5, 5),), (), {"equation": "ii->i"}),
    Case("Conv", ((2, 4, "T"), (6, 2, 3), (6,)), (), {"group": 2, "pads": [2, 1], "strides": [2]}, (9, 11, 22)),
    Case("Conv", ((2, 4, "T"), (6, 4, 3)), (), {"auto_pad": "SAME_LOWER"}),
    Case("Conv", ((2, 4, "T"), (6, 4, 3)), (), {"dilations": [2]}),
    Case("Conv", ((2, 4, 7), (6, 4, 3)), (), {"strides": [2], "auto_pad": "SAME_UPPER", "kernel_shape": [3]}),
    Case("Conv", ((2, 4, "T", 7), (6, 2, 3, 2)), (), {"group": 2, "pads": [2, 0, 1, 1], "strides": [2, 1]}, (11, 22)),
    Case("Conv", ((2, 3, 9, "T"), (5, 3, 3, 2)), (), {"dilations": [2, 3], "auto_pad": "VALID"}),
    Case("Conv", ((2, 3, 9, 8), (5, 3, 4, 3)), (), {"strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    Case("ConvTranspose", ((2, 4, "T"), (4, 3, 5), (6,)), (), {"group": 2, "pads": [2, 1], "strides": [3]}, (9, 22)),
    Case("ConvTranspose", ((2, 4, "T", 5), (4, 3, 3, 2)), (), {"strides": [2, 3], "output_padding": [1, 2]}),
    Case("ConvTranspose", ((2, 4, 6, 5), (4, 3, 3, 4)), (), {"strides": [2, 3], "output_shape": [12, 14]}),
    Case("ConvTranspose", ((2, 4, 6), (4, 3, 3)), (), {"strides": [2], "auto_pad": "SAME_LOWER"}),
    Case("ConvTranspose", ((2, 4, "T"), (4, 3, 4)), (), {"strides": [2], "dilations": [2], "auto_pad": "SAME_UPPER"}),
    Case("MaxPool", ((2, 3, "T"),), (), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}, (9, 10, 11, 12, 22)),
    Case("MaxPool", ((2, 3, 9, "T"),), (), {"kernel_shape": [3, 2], "dilations": [2, 1]}),
    Case("MaxPool", ((2, 3, 10, 11),), (), {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1}),
    Case("MaxPool", ((2, 3, 10, 11),), (), {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    Case("AveragePool", ((2, 3, "T"),), (), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}, (9, 10, 11, 19, 22)),
    Case("AveragePool", ((2, 3, 9, "T"),), (), {"kernel_shape": [3, 2], "pads": [1, 0, 2, 1], "count_include_pad": 1}),
    Case("AveragePool", ((2, 3, 10, 11),), (), {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1}, (19,)),
    # layers
    Case("Softmax", (X,), (), {"axis": 1}, (9, 11, 13)),
    Case("Softmax", (X,), (), {}, (9, 13)),
    Case("LogSoftmax", (X,), (), {"axis": 1}, (11, 13)),
    Case("BatchNormalization", (X, ("T",), ("T",), ("T",), ("T",)), (), {"epsilon": 1e-3}, (9, 14, 15), 1, True),
    Case("LayerNormalization", (X, ("T", 5), ("T", 5)), (), {"axis": 1}, (17,), 1),
    Case("LayerNormalization", (X, (5,)), (), {"epsilon": 1e-2}, (17,), 1),
    Case("InstanceNormalization", (X, ("T",), ("T",)), (), {"epsilon": 1e-2}, (9, 22)),
    Case("GlobalAveragePool", (X,)),
    # integers that stand for numbers
    Case("QuantizeLinear", (X,), (np.float32(0.02), np.uint8(120)), {}, (10, 13, 19)),
    Case("QuantizeLinear", (X,), (np.full(5, 0.02, "f4"), np.arange(5, dtype="i1")), {"axis": 2}, (13, 21)),
    Case("DequantizeLinear", (), (np.arange(6, dtype="u1").reshape(2, 3), np.float32(0.02), np.uint8(3)), {}, (10, 21)),
    Case("DequantizeLinear", (), (np.arange(6, dtype="i4").reshape(2, 3), np.full(2, 0.3, "f4")), {"axis": 0}, (13,)),
    Case("DynamicQuantizeLinear", (X,), outputs=3),
    Case("MatMulInteger", (), (*BYTES, np.uint8(2), np.int8(-1))),
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


COMPARISONS = ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]


def test_comparison_choice_and_logic(rng: np.random.Generator) -> None:
    """One model: every comparison of f32 and i64, then logic, then Where."""
    x, n = rng.integers(-2, 3, (3, 5)).astype(np.float32), rng.integers(-2, 3, (3, 5))
    nodes, outputs = [], []
    for op in COMPARISONS:
        for a in ("x", "n"):
            nodes.append(om.node(op, [a, a + "_row"], [f"{op}_{a}"], name=f"{op}_{a}"))
            outputs.append(f"{op}_{a}")
    for op in ("And", "Or", "Xor"):
        nodes.append(om.node(op, ["Less_x", "Greater_n"], [op]))
    nodes += [om.node("Not", ["And"], ["Not"]), om.node("Where", ["Not", "x", "x_row"], ["Where"])]
    outputs += ["And", "Or", "Xor", "Not", "Where"]
    rows = {"x_row": x[:1], "n_row": n[1]}
    made = om.model(nodes, {"x": (["B", 5], "f4"), "n": (["B", 5], "i8")}, outputs, rows)
    fed = {"x": x, "n": n}
    for got, want in zip(li.interpret(li.from_onnx(made), fed).values(), om.run(made, fed), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["f2", "f8", "i4", "i8"])
def test_other_elements(dtype: str, rng: np.random.Generator) -> None:
    """A chain of what all numbers have; integers divide toward zero."""
    a, b = ((rng.normal(size=(3, 5)) * 9).astype(dtype) for _ in range(2))
    b = np.where(b == 0, np.array(1, dtype), b)
    nodes = [
        om.node("Add", ["a", "b"], ["s"]), om.node("Mul", ["s", "a"], ["m"]), om.node("Div", ["m", "b"], ["d"]),
        om.node("Neg", ["d"], ["n"]), om.node("Abs", ["n"], ["p"]), om.node("Max", ["p", "b"], ["y"]),
        om.node("ReduceMax", ["y"], ["z"]), om.node("Cast", ["y"], ["c"], to=1),
    ]  # fmt: skip
    made = om.model(nodes, {"a": (["B", 5], dtype), "b": (["B", 5], dtype)}, ["y", "z", "c"])
    fed = {"a": a, "b": b}
    for got, want in zip(li.interpret(li.from_onnx(made), fed).values(), om.run(made, fed), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3 if dtype == "f2" else 1e-12)


REFUSED = [
    (Case("LpPool", ((2, 4, "T"),), (), {"kernel_shape": [2]}), r"the_LpPool \(LpPool\): the op is not taken"),
    (Case("Mish", (X,), opsets=(17,)), "taken from operator set 18 on, the model has 17"),
    (Case("Conv", ((2, 4, 7, 7, 7), (6, 4, 3, 3, 3))), "windows over 3 spatial axes are not taken"),
    (Case("Conv", ((2, 4, 7), (6, 4, 3)), (), {"strides": [1, 1]}), "strides has 2 numbers, not 1"),
    (Case("Reshape", (X, ("C",))), "the shape depends on values that only a call knows"),
    (Case("Squeeze", (X,)), "has a size that may be 1 or not"),
    (Case("Concat", (X, ("B", "T", 4)), (), {"axis": 1}), "5 and 4 differ"),
    (Case("Softmax", (X,), (), {"axis": 3}), "axis 3 is outside -3..2"),
    (Case("Softmax", (X,), (), {"axis": 1.5}), "the attribute axis is FLOAT, not INT"),
    (Case("Softmax", (X, X)), "operand 1 is not known to Softmax"),
    (Case("Relu", (X,), outputs=2), "its result 1 is not taken"),
    (Case("Einsum", ((5, 4),), (), {"equation": "ij->ik"}), "has 'k', which no operand has"),
]


@pytest.mark.parametrize(("case", "why"), REFUSED, ids=[w for _, w in REFUSED])
def test_refused(case: Case, why: str, rng: np.random.Generator) -> None:
    made, _ = model_of(case, case.opsets[0], True, rng)
    with pytest.raises(li.ModelError, match=why):
        li.from_onnx(made)


def test_a_cast_of_nothing() -> None:
    """Met by the campaign of altered files."""
    with pytest.raises(li.ModelError, match=r"the_Cast \(Cast\): operand 0"):
        li.from_onnx(om.model([om.node("Cast", [], ["y"], to=1)], {}, ["y"]))


def test_an_attribute_that_stands_twice() -> None:
    """onnxruntime takes the first of them, the library that reads files here the last."""
    row = om.node("Softmax", ["x"], ["y"], axis=0)
    row.attribute.add().CopyFrom(om.node("Softmax", ["x"], ["y"], axis=1).attribute[0])
    made = om.model([row], {"x": ((2, 3), np.float32)}, ["y"])
    with pytest.raises(li.ModelError, match=r"the node 'the_Softmax' \(Softmax\) has the attribute 'axis' twice"):
        li.from_onnx(made)


def test_the_largest_of_more_than_i32_counts() -> None:
    top = om.node("TopK", ["x", "k"], ["y", "at"])
    made = om.model([top], {"x": ((2**32,), np.float32)}, ["y", "at"], {"k": np.array([2**31])})
    with pytest.raises(li.ModelError, match=r"the_TopK \(TopK\): .*i32 counts fewer than 2147483648"):
        li.from_onnx(made)


def test_all_refusals_at_once(rng: np.random.Generator) -> None:
    """Nodes behind a refused one are passed over, others are not."""
    nodes = [
        om.node("LpPool", ["x"], ["a"], kernel_shape=[2], name="first"),
        om.node("Relu", ["a"], ["b"], name="behind"),
        om.node("Stft", ["b"], ["c"], name="second"),
        om.node("Softmax", ["x"], ["d"], axis=7, name="third"),
        om.node("Tanh", ["x"], ["e"], domain="my.domain", name="fourth"),
    ]
    with pytest.raises(li.ModelError) as caught:
        li.from_onnx(om.model(nodes, {"x": ([2, 3, 9], "f4")}, ["c", "d", "e"]))
    assert caught.value.refusals == (
        "first (LpPool): the op is not taken",
        "second (Stft): the op is not taken",
        "third (Softmax): axis 7 is outside -3..2",
        "fourth (Tanh): the op of the domain my.domain is not taken",
    )
    assert str(caught.value).startswith("<onnx>: 4 refusals\n  first (LpPool)")
