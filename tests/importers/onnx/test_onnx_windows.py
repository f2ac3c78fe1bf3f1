"""Windows, reductions of scatters, integers of other widths, training mode: beside onnxruntime and onnx' reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need, need_target
from onnx_cases import GROUP, Case, compare, compare_compiled, ints
from onnx_gradients import compare_gradient

import lstm_ir as li

PLACES = np.array([[[0, -1, 2], [0, 5, 2], [0, 5, -4]], [[1, 1, 0], [1, 1, 1], [1, -5, 0]]])
MORE = np.linspace(-2, 2, 18, dtype=np.float32).reshape(2, 3, 3)
ROWS = np.array([[1, 2], [-1, 0], [1, 2], [1, -4], [3, 0]])
STRIDES = [(k, s) for k in (1, 2, 3, 5) for s in (2, 3)]
SAME = [Case(op, (("B", 3, "K"),), (), {"kernel_shape": [k], "strides": [s], "auto_pad": f"SAME_{side}"})
        for op in ("MaxPool", "AveragePool") for k, s in STRIDES for side in ("UPPER", "LOWER")
        if op == "AveragePool" or k >= s]  # fmt: skip
WINDOWS = [
    *SAME,
    Case("AveragePool", (("B", 3, "K"),), (), {"kernel_shape": [3], "strides": [2], "auto_pad": "SAME_UPPER",
                                               "count_include_pad": 1}),
    Case("Conv", (("B", 3, "K"), (4, 3, 3)), (), {"strides": [2], "auto_pad": "SAME_LOWER"}),
    Case("Conv", (("B", 2, "K", "T"), (4, 2, 3, 2)), (), {"strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    Case("AveragePool", (("B", 3, "K"),), (), {"kernel_shape": [3], "dilations": [2], "pads": [2, 1]}),
    Case("AveragePool", (("B", 3, 8, 7),), (), {"kernel_shape": [3, 2], "dilations": [2, 3], "strides": [2, 1],
                                                "pads": [1, 0, 2, 1], "count_include_pad": 1}),
    Case("AveragePool", (("B", 3, 8, 7),), (), {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 0, 2, 1]}),
    *(Case("MaxPool", (("B", 3, "K", 7),), (), {"kernel_shape": [3, 2], **more}, (12, 22), 2) for more in (
        {}, {"strides": [2, 3], "pads": [1, 0, 1, 1]}, {"dilations": [2, 1], "strides": [1, 2]}, {"storage_order": 1})),
    Case("MaxPool", (("B", 3, "K"),), (), {"kernel_shape": [3], "strides": [2], "pads": [1, 0]}, (22,), 2),
    Case("MaxPool", ((2, 3, 8, 7),), (), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, (22,), 2),
]  # fmt: skip
SCATTERS = [
    *(Case("ScatterElements", ((2, 6, 3),), (PLACES, MORE), {"axis": 1, "reduction": r}, (18,)) for r in
      ("mul", "max", "min")),
    Case("ScatterElements", ((4, 6, 5),), (PLACES, MORE), {"axis": 1, "reduction": "mul"}, (18,)),
    Case("ScatterElements", ((4, 3, 9),), (PLACES, MORE), {"axis": -1, "reduction": "max"}, (18,)),
    *(Case("ScatterND", ((4, 5, 8),), (ROWS, np.linspace(-1, 1, 40, dtype="f4").reshape(5, 8)), {"reduction": r},
           (18,)) for r in ("mul", "max", "min")),
]  # fmt: skip
SINGLE = [*WINDOWS, *SCATTERS]


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx")
    need("onnx_ir")


@pytest.mark.parametrize("case", SINGLE, ids=str)
def test_beside_onnxruntime(case: Case) -> None:
    need("onnxruntime")
    for opset in case.opsets:
        compare(case, opset, np.random.default_rng(0))


@pytest.mark.parametrize("case", SINGLE, ids=str)
def test_gradients(case: Case, rng: np.random.Generator) -> None:
    compare_gradient(case, rng)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(SINGLE), GROUP))
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
def test_compiled(target: str, first: int, rng: np.random.Generator) -> None:
    need("onnxruntime")
    need_target(target)
    compare_compiled(SINGLE[first : first + GROUP], target, rng)


def test_places_of_the_largest_where_it_is_not_plain() -> None:
    """Of equal elements the first; of NaN the place of one; a window of the lowest numbers is no padding."""
    x = np.full((1, 2, 4, 4), -np.inf, np.float32)
    x[0, 1] = 3.0
    x[0, 0, 2, 1] = np.nan
    node = om.node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1])
    y, at = li.interpret(li.from_onnx(om.model([node], {"x": (x.shape, np.float32)}, ["y", "i"])), x=x).values()
    assert at.ravel().tolist() == [0, 1, 3, 4, 9, 7, 12, 13, 15, 16, 17, 19, 20, 21, 23, 28, 29, 31]
    assert np.isnan(y).sum() == 1


@pytest.mark.parametrize("to", [np.int32, np.int64])
def test_integers_to_the_power_of_a_tensor(to: Any) -> None:
    rng = np.random.default_rng(2)
    base, power = rng.integers(-5, 6, (7, 1)), rng.integers(0, 9, (1, 11))
    made = om.model([om.node("Pow", ["x", "p"], ["y"])], {"x": (base.shape, to), "p": (power.shape, np.int64)}, ["y"])
    got = li.interpret(li.from_onnx(made), x=base.astype(to), p=power)["y"]
    assert got.dtype == to
    assert (got == np.array([[int(a) ** int(b) for b in power[0]] for a in base[:, 0]])).all()
    far, high = np.array([[1], [-1], [0], [2]], to), np.array([[64, 65, 2**40, -1, -2, 0]])
    made = om.model([om.node("Pow", ["x", "p"], ["y"])], {"x": (far.shape, to), "p": (high.shape, np.int64)}, ["y"])
    got = li.interpret(li.from_onnx(made), x=far, p=high)["y"]
    assert got[:3].tolist() == [[1] * 6, [1, -1, 1, -1, 1, 1], [0, 0, 0, 0, 0, 1]]
    assert got[3, 3:].tolist() == [0, 0, 1]
    roots = om.model([om.node("Pow", ["x", "p"], ["y"])], {"x": ((3,), to), "p": ((3,), np.float32)}, ["y"])
    got = li.interpret(li.from_onnx(roots), x=np.array([9, 10, 2], to), p=np.array([0.5, 2, 0.5], np.float32))["y"]
    assert got.tolist() == [3, 100, 1]


@pytest.mark.parametrize("kind", ["int16", "uint16", "int8", "uint8", "int4", "uint4"])
@pytest.mark.parametrize("form", ["one", "axis", "blocks"])
def test_quantized_and_back(kind: str, form: str) -> None:
    """What QuantizeLinear makes is read by DequantizeLinear, and by Cast, alone."""
    import ml_dtypes
    from onnx.reference import ReferenceEvaluator

    dtype = getattr(ml_dtypes, kind) if kind.endswith("4") else np.dtype(kind)
    rng = np.random.default_rng(4)
    shape = {"one": (), "axis": (10,), "blocks": (3, 3)}[form]
    x = rng.normal(size=(3, 10)).astype(np.float32) * 3
    scale = rng.uniform(0.05, 0.5, shape).astype(np.float32)
    zero = (np.full(shape, 3) if kind.startswith("u") else np.full(shape, -2)).astype(dtype)
    attrs: dict[str, Any] = {"one": {}, "axis": {"axis": 1}, "blocks": {"axis": 1, "block_size": 4}}[form]
    nodes = [
        om.node("QuantizeLinear", ["x", "s", "z"], ["q"], **attrs),
        om.node("DequantizeLinear", ["q", "s", "z"], ["y"], **attrs),
    ]
    if not kind.endswith("4"):
        nodes += [om.node("Reshape", ["q", "all"], ["flat"]), om.node("Cast", ["flat"], ["w"], to=7)]
    outputs = ["y"] if kind.endswith("4") else ["y", "w"]
    made = om.model(nodes, {"x": (x.shape, np.float32)}, outputs, {"s": scale, "z": zero, "all": ints(-1)}, 21)
    want = ReferenceEvaluator(made).run(None, {"x": x})
    for got, w in zip(li.interpret(li.from_onnx(made), x=x).values(), want, strict=True):
        assert got.dtype == w.dtype
        np.testing.assert_allclose(got, w, rtol=1e-6)


@pytest.mark.parametrize("kind", ["int16", "uint16", "uint64"])
def test_wide_literals_are_cast(kind: str) -> None:
    low = np.iinfo(kind).min
    given = np.array([low, 7, min(np.iinfo(kind).max, 2**63 - 1)], kind)
    made = om.model(
        [om.node("Cast", ["c"], ["y"], to=11), om.node("Add", ["x", "y"], ["z"])],
        {"x": ((3,), np.float64)},
        ["z"],
        {"c": given},
    )
    assert (li.interpret(li.from_onnx(made), x=np.zeros(3))["z"] == given.astype(np.float64)).all()


def test_casts_to_sixteen_bits_keep_the_low_ones() -> None:
    x = np.array([70000, -70000, 32768, -32769, 5], np.int32)
    for code, kind in ((5, np.int16), (4, np.uint16)):
        nodes = [om.node("Cast", ["x"], ["a"], to=code), om.node("Cast", ["a"], ["y"], to=6)]
        made = om.model(nodes, {"x": (x.shape, np.int32)}, ["y"])
        assert (li.interpret(li.from_onnx(made), x=x)["y"] == x.astype(kind)).all()


@pytest.mark.parametrize(("op", "kind", "text"), [
    ("Add", "uint16", "operand 0 has elements of type UINT16, which ops that convert alone read"),
    ("Identity", "int16", "elements of type INT16 are taken inside of a model alone: put a Cast to INT32 before it"),
    ("Identity", "uint64", "elements of type UINT64 are taken inside of a model alone: put a Cast to INT64 before it"),
])  # fmt: skip
def test_other_ops_refuse_them(op: str, kind: str, text: str) -> None:
    given = ["c", "c"] if op == "Add" else ["c"]
    made = om.model([om.node(op, given, ["y"])], {}, ["y"], {"c": np.ones(3, kind)})
    with pytest.raises(li.ModelError, match=text):
        li.from_onnx(made)
    made = om.model([om.node("Cast", ["c"], ["y"], to=1)], {}, ["y"], {"c": np.array([2**63], np.uint64)})
    with pytest.raises(li.ModelError, match=r"2\^63"):
        li.from_onnx(made)


@pytest.mark.parametrize("kind", ["int16", "uint16"])
def test_an_input_of_them_is_stated_wider_as_its_refusal_says(kind: str, rng: np.random.Generator) -> None:
    """A file of samples in sixteen bits, and the file that the refusal asks for, beside onnxruntime."""
    limits = np.iinfo(kind)
    x = rng.integers(limits.min, limits.max, 50, endpoint=True).astype(kind)
    code = {"int16": 5, "uint16": 4}[kind]
    scale = om.node("DequantizeLinear", ["a", "s"], ["y"])
    literals = {"s": np.float32(2**-15)}
    made = om.model([om.node("Identity", ["x"], ["a"]), scale], {"x": (["T"], kind)}, ["y"], literals)
    wide = rf"INT32 in the file, with a Cast to {kind.upper()} behind it, or fix it by constants \(--constant\)"
    with pytest.raises(li.ModelError, match=rf"x \(input\): elements of type {kind.upper()} .* state it as {wide}"):
        li.from_onnx(made)
    (want,) = om.run(made, {"x": x})
    np.testing.assert_array_equal(li.interpret(li.from_onnx(made, constants={"x": x}))["y"], want)
    made = om.model([om.node("Cast", ["x"], ["a"], to=code), scale], {"x": (["T"], "int32")}, ["y"], literals)
    np.testing.assert_array_equal(li.interpret(li.from_onnx(made), x=x.astype("i4"))["y"], want)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_inputs_and_outputs_of_eight_bits(kind: str, rng: np.random.Generator) -> None:
    """They have ops: sums wrap, as onnxruntime's."""
    x = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, 60, endpoint=True).astype(kind)
    nodes = [om.node("Add", ["x", "x"], ["y"]), om.node("Mul", ["x", "y"], ["z"])]
    made = om.model(nodes, {"x": (["T"], kind)}, ["y", "z"])
    with li.compile(li.from_onnx(made)) as exe:
        for got, want in zip(exe(x=x).values(), om.run(made, {"x": x}), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 4, 5)])
def test_batch_normalization_in_training(shape: tuple[int, ...]) -> None:
    from onnx.reference import ReferenceEvaluator

    rng = np.random.default_rng(5)
    names = ["s", "b", "m", "v"]
    node = om.node(
        "BatchNormalization", ["x", *names], ["y", "mean", "var"], training_mode=1, momentum=0.7, epsilon=1e-3
    )
    literals = {n: rng.uniform(0.5, 2, 3).astype(np.float32) for n in names}
    made = om.model([node], {"x": (shape, np.float32)}, ["y", "mean", "var"], literals, 15)
    x = rng.normal(size=shape).astype(np.float32)
    want = ReferenceEvaluator(made).run(None, {"x": x})
    for got, w in zip(li.interpret(li.from_onnx(made), x=x).values(), want, strict=True):
        np.testing.assert_allclose(got, w, rtol=2e-5, atol=2e-5)


def test_dropout_in_training_draws_by_seed_and_step() -> None:
    def graph(**attrs: Any) -> li.Graph:
        node = om.node("Dropout", ["x", "r", "t"], ["y", "mask"], **attrs)
        literals = {"r": np.float32(0.25), "t": np.array(True)}
        return li.from_onnx(om.model([node], {"x": ((40, 50), np.float32)}, ["y", "mask"], literals, 22))

    def run(g: li.Graph, step: int) -> Any:
        return li.interpret(g, x=x, step=np.int64(step))

    x = np.random.default_rng(6).normal(size=(40, 50)).astype(np.float32)
    g = graph(seed=3)
    got = run(g, 1)
    np.testing.assert_allclose(got["y"], np.where(got["mask"], x / 0.75, 0), rtol=1e-6)
    assert abs(got["mask"].mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / x.size)
    assert (run(g, 1)["mask"] == got["mask"]).all()
    assert (run(g, 2)["mask"] != got["mask"]).any()
    assert (run(graph(seed=4), 1)["mask"] != got["mask"]).any()
