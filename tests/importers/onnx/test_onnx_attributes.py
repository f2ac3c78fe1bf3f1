"""Attributes that few files have, beside onnxruntime or the reference of `onnx`; those that are not taken, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need

import lstm_ir as li


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir")


def ours(made: Any, fed: Mapping[str, Any]) -> list[Any]:
    return list(li.interpret(li.from_onnx(made), fed).values())


def equal(made: Any, fed: Mapping[str, Any]) -> None:
    """As onnxruntime, types included."""
    need("onnxruntime")
    for got, want in zip(ours(made, fed), om.run(made, fed), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_the_largest_k_as_an_attribute(rng: np.random.Generator) -> None:
    """As until operator set 9."""
    top = om.node("TopK", ["x"], ["v", "i"], axis=1, k=3)
    made = om.model([top], {"x": (["B", 5, "T"], "f4")}, ["v", "i"], opset=9)
    equal(made, {"x": rng.standard_normal((2, 5, 4), "f4")})


@pytest.mark.parametrize("largest", [0, 1])
def test_the_largest_in_any_order(largest: int, rng: np.random.Generator) -> None:
    """With sorted=0 any order is right: the same pairs of values and places as onnxruntime's."""
    need("onnxruntime")
    top = om.node("TopK", ["x", "k"], ["v", "i"], axis=1, sorted=0, largest=largest)
    made = om.model([top], {"x": (["B", 9], "f4")}, ["v", "i"], {"k": np.array([4])})
    x = rng.standard_normal((3, 9), "f4")
    (v, i), (want_v, want_i) = ours(made, {"x": x}), om.run(made, {"x": x})
    for row in range(3):
        assert set(zip(i[row], v[row], strict=True)) == set(zip(want_i[row], want_v[row], strict=True))


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12, 13])
def test_dropout_that_does_not_train(opset: int, rng: np.random.Generator) -> None:
    """Whatever its ratio; the mask keeps all, and has the operand's type until operator set 9."""
    x, two = rng.standard_normal((2, 5), "f4"), ["y", "mask"]
    given = {"ratio": np.float32(0.3)} if opset >= 12 else {}
    attrs: dict[str, Any] = {} if given else {"ratio": 0.3}
    info: Any = {"x": (["B", 5], "f4")}
    equal(om.model([om.node("Dropout", ["x", *given], ["y"], **attrs)], info, ["y"], given, opset), {"x": x})
    y, mask = ours(om.model([om.node("Dropout", ["x", *given], two, **attrs)], info, two, given, opset), {"x": x})
    np.testing.assert_array_equal(y, x)
    assert mask.dtype == (bool if opset >= 10 else np.float32)
    assert mask.all()


CONSTANTS: dict[str, Any] = {
    "value_float": np.float32(0.1), "value_floats": np.array([0.1, -2.5], "f4"), "value_int": np.int64(-3),
    "value_ints": np.array([2**40, -1, 7]),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_that_are_numbers(name: str) -> None:
    want = CONSTANTS[name]
    made = om.model([om.node("Constant", [], ["y"], **{name: want.tolist()})], {}, ["y"], opset=12)
    equal(made, {})
    (got,) = ours(made, {})
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)


# refused ----------------------------------------------------------------------------------------


def norm(op: str, opset: int, kind: int) -> Any:
    weights = {"w": np.ones(6 if op == "GroupNormalization" else 5, "f4")}
    more: dict[str, Any] = {"num_groups": 3} if op == "GroupNormalization" else {}
    operands = ["x", "w"] if op == "RMSNormalization" else ["x", "w", "w"]
    node = om.node(op, operands, ["y"], stash_type=kind, **more)
    return om.model([node], {"x": (["B", 6, 5], "f4")}, ["y"], weights, opset)


@pytest.mark.parametrize("op", ["GroupNormalization", "LayerNormalization", "RMSNormalization"])
def test_norms_that_compute_in_another_type(op: str, rng: np.random.Generator) -> None:
    """16 is bf16; 1, which is f32, is taken."""
    opset = {"GroupNormalization": 21, "LayerNormalization": 17, "RMSNormalization": 23}[op]
    for kind in (10, 11, 16):
        with pytest.raises(li.ModelError, match=rf"the_{op} \({op}\): stash_type is not 1, f32"):
            li.from_onnx(norm(op, opset, kind))
    need("onnxruntime")
    fed = {"x": rng.standard_normal((2, 6, 5), "f4")}
    made = norm(op, opset, 1)
    for got, want in zip(ours(made, fed), om.run(made, fed), strict=True):
        np.testing.assert_allclose(got, want, atol=4e-6, rtol=4e-6)


def test_a_transposed_convolution_to_a_size_of_its_own_over_an_open_one() -> None:
    node = om.node("ConvTranspose", ["x", "w"], ["y"], strides=[2], output_shape=[12])
    made = om.model([node], {"x": ((2, 4, "T"), "f4")}, ["y"], {"w": np.ones((4, 3, 3), "f4")})
    with pytest.raises(
        li.ModelError, match=r"the_ConvTranspose \(ConvTranspose\): output_shape is 12 over the open size T"
    ):
        li.from_onnx(made)
    assert str(li.from_onnx(made, sizes={"T": 6}).output("y").type) == "f32[2,3,12]"


@pytest.mark.parametrize("dtype", ["i4", "i8", "u1"])
def test_the_mean_of_integers(dtype: str) -> None:
    """onnxruntime rounds it toward zero, which no page says."""
    made = om.model([om.node("ReduceMean", ["x"], ["y"], axes=[1])], {"x": (["B", 3], dtype)}, ["y"], opset=13)
    with pytest.raises(li.ModelError, match=r"the_ReduceMean \(ReduceMean\): the mean of [iu]\d+ is not taken"):
        li.from_onnx(made)


def test_integers_in_gemm() -> None:
    """alpha and beta are floats, of which the specification does not say how they meet integers."""
    arrays = {"w": np.arange(6).reshape(3, 2), "c": np.array([3, 5])}

    def made(**attrs: Any) -> Any:
        return om.model([om.node("Gemm", ["x", "w", "c"], ["y"], **attrs)], {"x": (["B", 3], "i8")}, ["y"], arrays)

    x = np.array([[5, -7, 4], [1, 2, -8]])
    np.testing.assert_array_equal(ours(made(), {"x": x})[0], x @ arrays["w"] + arrays["c"])
    for attrs in ({"alpha": 2.0}, {"beta": 0.5}):
        with pytest.raises(li.ModelError, match=r"the_Gemm \(Gemm\): a product of i64 with (2.0|0.5) is not taken"):
            li.from_onnx(made(**attrs))


@pytest.mark.parametrize("opset", [7, 9])
def test_a_batch_norm_that_trains_before_it_could_be_said(opset: int, rng: np.random.Generator) -> None:
    """Results beside the first meant training: running and saved statistics; onnxruntime does not train either."""
    names = ["y", "mean", "var", "saved_mean", "saved_var"]
    weights = {n: np.array([0.5, 2, 1.5], "f4") for n in ("s", "b", "m", "v")}

    def made(outputs: list[str]) -> Any:
        node = om.node("BatchNormalization", ["x", "s", "b", "m", "v"], outputs, momentum=0.8)
        return om.model([node], {"x": (["B", 3, "T"], "f4")}, [n for n in outputs if n], weights, opset)

    for outputs in (names, names[:3], ["y", "", "", "saved_mean", ""]):
        with pytest.raises(li.ModelError, match="ask for training mode, which is taken from operator set 14 on"):
            li.from_onnx(made(outputs))
    x = rng.standard_normal((2, 3, 4), "f4")
    s, b, m, v = (w[:, None] for w in weights.values())
    np.testing.assert_allclose(
        ours(made(["y"]), {"x": x})[0], (x - m) / np.sqrt(v + 1e-5) * s + b, rtol=2e-5, atol=2e-6
    )
