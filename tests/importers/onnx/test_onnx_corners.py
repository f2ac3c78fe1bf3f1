"""Ops where definitions have corners: scalars, lists of axes that are empty, defaults, signs; beside onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need

import lstm_ir as li


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir")


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def ours(made: Any, fed: Mapping[str, Any]) -> list[Any]:
    graph = li.from_onnx(made)
    return list(li.interpret(graph, {n: fed[n] for n in graph.input_names}).values())


def equal(made: Any, fed: Mapping[str, Any], want: Sequence[Any] | None = None) -> None:
    """As onnxruntime, or as `want` says, types included."""
    if want is None:
        need("onnxruntime")
        want = om.run(made, fed)
    for got, w in zip(ours(made, fed), want, strict=True):
        assert (got.dtype, got.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(got, w, rtol=2e-6)


# reductions -------------------------------------------------------------------------------------

ALONE: dict[str, tuple[float, float]] = {  # a number, and what it is reduced to
    "ReduceSumSquare": (3, 9), "ReduceL1": (-3, 3), "ReduceL2": (-3, 3), "ReduceLogSum": (np.e, 1),
    "ReduceLogSumExp": (2, 2), "ReduceSum": (-3, -3), "ReduceMean": (-3, -3), "ReduceProd": (-3, -3),
    "ReduceMax": (-3, -3), "ReduceMin": (-3, -3),
}  # fmt: skip


@pytest.mark.parametrize("op", ALONE)
def test_a_reduction_of_one_number(op: str) -> None:
    x, want = ALONE[op]
    for opset in (13, 18):
        made = om.model([om.node(op, ["x"], ["y"])], {"x": ([], "f4")}, ["y"], opset=opset)
        equal(made, {"x": np.float32(x)}, [np.array(want, "f4")])


@pytest.mark.parametrize("op", ALONE)
@pytest.mark.parametrize("axes", [None, ints()], ids=["absent", "empty"])
def test_a_reduction_along_no_axis(op: str, axes: Any) -> None:
    """noop_with_empty_axes leaves the axes: what is done to each element is done, since operator set 18 said so."""
    x = np.array([[2, 3], [1, 4]], "f4") * (-1 if op in ("ReduceL1", "ReduceL2") else 1)
    want = {"ReduceSumSquare": x * x, "ReduceL1": -x, "ReduceL2": -x, "ReduceLogSum": np.log(abs(x))}.get(op, x)
    operands, arrays = (["x"], {}) if axes is None else (["x", "axes"], {"axes": axes})
    for keep in (0, 1):
        node = om.node(op, operands, ["y"], noop_with_empty_axes=1, keepdims=keep)
        equal(om.model([node], {"x": (["A", 2], "f4")}, ["y"], arrays, 18), {"x": x}, [want])


@pytest.mark.parametrize(("op", "opset"), [("ReduceSum", 13), ("ReduceProd", 18)])
def test_a_reduction_of_sizes(op: str, opset: int, rng: np.random.Generator) -> None:
    """Of an open size too the attribute says what an empty list of axes means."""
    for operands in (["s"], ["s", "none"], ["s", "first"]):
        for noop in (0, 1):
            nodes = [om.node("Shape", ["x"], ["s"]), om.node(op, operands, ["y"], noop_with_empty_axes=noop)]
            arrays = {"none": ints(), "first": ints(0)}
            made = om.model(nodes, {"x": (["T", 3], "f4")}, ["y"], arrays, opset)
            all_ = np.add.reduce if op == "ReduceSum" else np.multiply.reduce
            want = ints(5, 3) if noop and operands != ["s", "first"] else all_(ints(5, 3), keepdims=True)
            equal(made, {"x": rng.normal(size=(5, 3)).astype("f4")}, [want])


# bounds, signs, defaults ------------------------------------------------------------------------


@pytest.mark.parametrize("start", [-(2**63), -100, -6, -5, -2, 2, 4, 7])
def test_a_slice_backwards_from_before_the_axis(start: int) -> None:
    """The specification moves such a start to the first place; NumPy, and the reference of `onnx`, find nothing."""
    bounds = {"from": ints(start), "to": ints(-(2**63)), "axes": ints(0), "by": ints(-1)}
    made = om.model([om.node("Slice", ["x", *bounds], ["y"])], {"x": ([5], "f4")}, ["y"], bounds)
    x = np.arange(5, dtype="f4")
    first = min(max(start + 5 if start < 0 else start, 0), 4)
    equal(made, {"x": x}, [x[first::-1]])
    equal(made, {"x": x})


def test_a_slice_backwards_from_before_an_open_axis() -> None:
    bounds = {"from": ints(-(2**63)), "to": ints(-(2**63)), "axes": ints(0), "by": ints(-1)}
    made = om.model([om.node("Slice", ["x", *bounds], ["y"])], {"x": (["T"], "f4")}, ["y"], bounds)
    equal(made, {"x": np.arange(5, dtype="f4")}, [np.zeros(1, "f4")])


def test_a_slice_from_a_size_before_the_end() -> None:
    """x[-(T + 1):] of 2 T + 2 elements: the half of them."""
    nodes = [
        om.node("Shape", ["h"], ["n"]), om.node("Neg", ["n"], ["from"]),
        om.node("Slice", ["x", "from", "to"], ["y"]),
    ]  # fmt: skip
    made = om.model(nodes, {"h": (["T+1"], "f4"), "x": (["2*T+2"], "f4")}, ["y"], {"to": ints(2**63 - 1)})
    equal(made, {"h": np.zeros(4, "f4"), "x": np.arange(8, dtype="f4")}, [np.arange(4, 8, dtype="f4")])


@pytest.mark.parametrize("opset", [6, 9, 10])
def test_a_clip_without_bounds_gives_no_infinities(opset: int) -> None:
    """Its defaults were the ends of f32 until operator set 10."""
    x, most = np.array([np.inf, -np.inf, 1, -2], "f4"), np.finfo("f4").max
    cases: list[tuple[dict[str, Any], list[Any]]] = [
        ({}, [most, -most, 1, -2]), ({"min": 0.0}, [most, 0, 1, 0]), ({"max": 0.5}, [0.5, -most, 0.5, -2]),
    ]  # fmt: skip
    for attrs, want in cases:
        made = om.model([om.node("Clip", ["x"], ["y"], **attrs)], {"x": ([4], "f4")}, ["y"], opset=opset)
        equal(made, {"x": x}, [np.array(want, "f4")])


@pytest.mark.parametrize("fmod", [0, 1])
def test_a_division_of_sizes_that_leaves_something_below_0(fmod: int, rng: np.random.Generator) -> None:
    nodes = [
        om.node("Shape", ["x"], ["t"], start=0, end=1), om.node("Concat", ["t", "more"], ["a"], axis=0),
        om.node("Mod", ["a", "by"], ["y"], fmod=fmod),
    ]  # fmt: skip
    a, by = ints(5, -7, 7, -6), ints(3, 3, -3, 3)
    made = om.model(nodes, {"x": (["T"], "f4")}, ["y"], {"more": a[1:], "by": by})
    equal(made, {"x": rng.normal(size=5).astype("f4")}, [np.fmod(a, by) if fmod else np.mod(a, by)])


@pytest.mark.parametrize(("dtype", "to"), [("i2", 6), ("u2", 6), ("u8", 7)])
def test_a_shape_of_integers_that_no_op_takes(dtype: str, to: int) -> None:
    """They are cast, or are a zero point; as numbers of 32 bits other ops do not get them."""
    value = om.tensor(np.array([9], dtype))
    fill = om.node("ConstantOfShape", ["s"], ["n"], value=value)
    made = om.model([fill, om.node("Cast", ["n"], ["y"], to=to)], {}, ["y"], {"s": ints(2, 3)})
    equal(made, {}, [np.full((2, 3), 9, "i4" if to == 6 else "i8")])
    with pytest.raises(li.ModelError, match=r"n \(output\): elements of type U?INT(16|64) are taken inside of a model"):
        li.from_onnx(om.model([fill], {}, ["n"], {"s": ints(2, 3)}))
    with pytest.raises(li.ModelError, match=r"has elements of type U?INT(16|64), which ops that convert alone read"):
        li.from_onnx(om.model([fill, om.node("Add", ["n", "n"], ["y"])], {}, ["y"], {"s": ints(2, 3)}))


def test_a_shape_of_integers_as_a_zero_point() -> None:
    nodes = [
        om.node("ConstantOfShape", ["s"], ["zero"], value=om.tensor(np.array([-300], "i2"))),
        om.node("QuantizeLinear", ["x", "scale", "zero"], ["q"]), om.node("Cast", ["q"], ["y"], to=6),
    ]  # fmt: skip
    made = om.model(nodes, {"x": ([4], "f4")}, ["y"], {"scale": np.float32(0.5), "s": np.zeros(0, "i8")})
    equal(made, {"x": np.array([-1, 0, 3.2, 4000], "f4")}, [np.array([-302, -300, -294, 7700], "i4")])


# numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "precision"), [("f4", "f2"), ("f2", "f4"), ("f4", None), ("f2", None)])
def test_a_division_of_quantized_numbers_in_another_type(given: str, precision: str | None) -> None:
    """In f16 a quotient near 100 is rounded to a sixteenth, so that some of them become a half."""
    from onnx import helper

    x, scale = np.linspace(-30, 30, 2001).astype(given), np.array(0.3, given)
    attrs = {} if precision is None else {"precision": helper.np_dtype_to_tensor_dtype(np.dtype(precision))}
    nodes = [om.node("QuantizeLinear", ["x", "scale", "zero"], ["q"], **attrs), om.node("Cast", ["q"], ["y"], to=6)]
    made = om.model(nodes, {"x": (["N"], given)}, ["y"], {"scale": scale, "zero": np.int8(0)}, 23)
    inside = precision or given
    want = {p: np.rint(x.astype(p) / scale.astype(p)).astype("i4") for p in ("f2", "f4")}
    assert (want["f2"] != want["f4"]).any()
    equal(made, {"x": x}, [want[inside]])


@pytest.mark.parametrize("code", [7, 2])
def test_a_division_in_integers_is_refused(code: int) -> None:
    node = om.node("QuantizeLinear", ["x", "scale"], ["y"], precision=code)
    made = om.model([node], {"x": ([3], "f4")}, ["y"], {"scale": np.float32(0.5)}, 23)
    with pytest.raises(li.ModelError, match=r"QuantizeLinear\): it divides elements of type [iu]\d+, which are no"):
        li.from_onnx(made)


def test_a_precision_before_it_could_be_said() -> None:
    node = om.node("QuantizeLinear", ["x", "scale"], ["y"], precision=1)
    made = om.model([node], {"x": ([3], "f4")}, ["y"], {"scale": np.float32(0.5)}, 21)
    with pytest.raises(li.ModelError, match="the attribute precision is not known to QuantizeLinear in operator set"):
        li.from_onnx(made)


@pytest.mark.parametrize("opset", [9, 10, 11])
@pytest.mark.parametrize("depth", [np.array(4), np.array([4]), np.float32(4), np.array([4.7], "f4")], ids=str)
def test_one_place_of_some(opset: int, depth: Any) -> None:
    """Indices below 0 count from the end, at every operator set; the depth may be a float, which is cut."""
    arrays = {"depth": depth, "values": np.array([-1, 5], "f4")}
    made = om.model([om.node("OneHot", ["i", "depth", "values"], ["y"])], {"i": ([7], "i8")}, ["y"], arrays, opset)
    at = np.array([0, 3, -1, -4, 4, -5, 9])
    want = np.where(np.where(at < 0, at + 4, at)[:, None] == np.arange(4), 5, -1).astype("f4")
    equal(made, {"i": at}, [want])
    equal(made, {"i": at})


@pytest.mark.parametrize("depth", [np.float32(np.nan), np.float32(np.inf)], ids=str)
def test_a_depth_that_is_no_number(depth: Any) -> None:
    arrays = {"depth": depth, "values": np.array([0, 1], "f4")}
    made = om.model([om.node("OneHot", ["i", "depth", "values"], ["y"])], {"i": ([7], "i8")}, ["y"], arrays)
    with pytest.raises(li.ModelError, match=r"the_OneHot \(OneHot\): the depth is (nan|inf)"):
        li.from_onnx(made)
