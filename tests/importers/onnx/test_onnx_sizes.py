"""Sizes: from Shape through arithmetic to shapes, as expressions; names that turn out to be one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need

import lstm_ir as li

H = 4


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir", "onnxruntime")


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def same(made: Any, fed: dict[str, Any], **arguments: Any) -> li.Graph:
    """The imported graph, which gives what onnxruntime gives."""
    g: li.Graph = li.from_onnx(made, **arguments)
    for got, want in zip(li.interpret(g, fed).values(), om.run(made, fed), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, atol=2e-6)
    return g


def ops(g: li.Graph) -> set[str]:
    return {n.op.name for n in g.nodes}


def test_shapes_are_expressions(rng: np.random.Generator) -> None:
    """[B,T,6] to [2*B*T,3] by Shape, Gather, Mul, Div, Concat, Reshape, as exporters write it."""
    nodes = [
        om.node("Shape", ["x"], ["s"]), om.node("Gather", ["s", "zero"], ["B"]),
        om.node("Gather", ["s", "one"], ["T"], name="g2"),
        om.node("Mul", ["B", "T"], ["BT"]), om.node("Mul", ["BT", "six"], ["all"], name="m2"),
        om.node("Div", ["all", "three"], ["rows"]), om.node("Unsqueeze", ["rows", "at"], ["rows1"]),
        om.node("Concat", ["rows1", "last"], ["shape"], axis=0), om.node("Reshape", ["x", "shape"], ["y"]),
        om.node("Cast", ["T"], ["Tf"], to=1), om.node("Sqrt", ["Tf"], ["root"]),
        om.node("Div", ["y", "root"], ["z"], name="d2"),
    ]  # fmt: skip
    literals = {
        "zero": np.int64(0),
        "one": np.int64(1),
        "six": np.int64(6),
        "three": np.int64(3),
        "at": ints(0),
        "last": ints(3),
    }
    made = om.model(nodes, {"x": (["B", "T", 6], "f4")}, ["y", "z"], literals)
    g = same(made, {"x": rng.normal(size=(3, 5, 6)).astype("f4")})
    assert str(g.output("y").type) == "f32[2*B*T,3]"
    assert "gather" not in ops(g)


def test_expand_and_slice_by_sizes(rng: np.random.Generator) -> None:
    """Where(Equal(shape, -1), ones, shape) before Expand; a state cut from ConstantOfShape; the second half of x."""
    nodes = [
        om.node("Shape", ["x"], ["s"]), om.node("Slice", ["s", "one", "two"], ["B"]),
        om.node("Concat", ["wish", "B", "four"], ["shape"], axis=0), om.node("Equal", ["shape", "minus"], ["open"]),
        om.node("ConstantOfShape", ["rank"], ["ones"], value=om.tensor(ints(1))),
        om.node("Where", ["open", "ones", "shape"], ["to"]),
        om.node("Expand", ["h", "to"], ["wide"]), om.node("ConstantOfShape", ["shape4"], ["states"], name="c2"),
        om.node("Slice", ["states", "one", "two"], ["state"], name="s2"), om.node("Add", ["wide", "state"], ["y"]),
        om.node("Gather", ["s", "at"], ["T"]), om.node("Div", ["T", "halves"], ["half"]),
        om.node("Slice", ["x", "half", "far", "at0"], ["z"], name="s3"),
    ]  # fmt: skip
    literals = {
        "one": ints(1), "two": ints(2), "wish": ints(-1), "four": ints(H), "minus": ints(-1), "rank": ints(3),
        "shape4": ints(4, 1, H), "at": ints(0), "halves": ints(2), "far": ints(2**63 - 1), "at0": ints(0),
    }  # fmt: skip
    made = om.model(nodes, {"x": (["T", "B", 5], "f4"), "h": ([1, 1, H], "f4")}, ["y", "z"], literals)
    fed = {"x": rng.normal(size=(7, 3, 5)).astype("f4"), "h": rng.normal(size=(1, 1, H)).astype("f4")}
    g = same(made, fed)
    assert str(g.output("y").type) == f"f32[1,B,{H}]"
    assert str(g.output("z").type) == "f32[-((T)//2)+T,B,5]"


def test_sizes_that_are_results(rng: np.random.Generator) -> None:
    nodes = [
        om.node("Shape", ["x"], ["s"]), om.node("ReduceProd", ["s"], ["n"], keepdims=0), om.node("Size", ["x"], ["m"]),
        om.node("Sub", ["n", "m"], ["zero"]), om.node("Range", ["zero", "m", "three"], ["r"]), 
        om.node("Split", ["s"], ["B", "T"], num_outputs=2), om.node("Tile", ["T", "two"], ["TT"]),
    ]  # fmt: skip
    literals = {"three": np.int64(3), "two": ints(2)}
    made = om.model(nodes, {"x": (["B", "T"], "f4")}, ["n", "m", "zero", "r", "B", "TT"], literals)
    g = same(made, {"x": rng.normal(size=(3, 5)).astype("f4")})
    assert str(g.output("r").type) == "i64[(B*T+2)//3]"


LAYER = ["x", "W", "R", "", "", "h"]


def layer(x: list[Any], h: list[Any], rng: np.random.Generator) -> Any:
    weights = {"W": rng.normal(size=(1, H, 5)).astype("f4"), "R": rng.normal(size=(1, H, H)).astype("f4")}
    node = om.node("RNN", LAYER, ["Y", "Y_h"], hidden_size=H)
    return om.model([node], {"x": (x, "f4"), "h": (h, "f4")}, ["Y", "Y_h"], weights)


@pytest.mark.parametrize(
    ("x", "h", "types"),
    [
        (["T", "B", 5], [1, "N", H], ("f32[T,B,5]", f"f32[1,B,{H}]")),
        ([None, None, None], [None, None, None], ("f32[x_0,x_1,5]", f"f32[1,x_1,{H}]")),
        (["T", "batch size", 5], [1, 3, H], ("f32[T,3,5]", f"f32[1,3,{H}]")),
        (["seq+1", "B", 5], ["1", "B", H], ("f32[seq+1,B,5]", f"f32[1,B,{H}]")),
    ],
)
def test_names_that_have_to_be_one(x: Any, h: Any, types: tuple[str, ...], rng: np.random.Generator) -> None:
    made = layer(x, h, rng)
    g = same(made, {"x": rng.normal(size=(6, 3, 5)).astype("f4"), "h": rng.normal(size=(1, 3, H)).astype("f4")})
    assert tuple(str(p.type) for p in g.params) == types


def test_names_that_may_be_one_or_broadcast_are_not_one() -> None:
    made = om.model([om.node("Add", ["a", "b"], ["y"])], {"a": (["N"], "f4"), "b": (["M"], "f4")}, ["y"])
    with pytest.raises(li.ModelError, match=r"the_Add \(Add\): .*sizes M and N do not broadcast"):
        li.from_onnx(made)
    assert str(li.from_onnx(made, sizes={"M": "N"}).output("y").type) == "f32[N]"
    assert str(li.from_onnx(made, sizes={"M": 1}).output("y").type) == "f32[N]"


def test_sizes_and_constants_of_the_caller(rng: np.random.Generator) -> None:
    made = layer(["T", "B", 5], [1, "B", H], rng)
    g = li.from_onnx(made, sizes={"T": 1, "B": 2}, constants={"h": np.zeros((1, 2, H), "f4")})
    assert [str(p.type) for p in g.params] == ["f32[1,2,5]"]
    assert g.is_static
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"sizes": {"X": 1}}, "sizes has 'X'; the model has B, T"),
        ({"sizes": {"T": -1}}, "a size is -1"),
        ({"constants": {"y": 1}}, "constants has 'y'; the model has x, h"),
        ({"constants": {"h": np.zeros((1, 2, 9), "f4")}}, "h is .*got f32"),
        ({"constants": {"h": "word"}}, "constants: h"),
    ]
    for arguments, why in wrong:
        with pytest.raises(li.ModelError, match=why):
            li.from_onnx(made, **arguments)


def test_a_size_below_zero_is_refused_at_the_call() -> None:
    """ConstantOfShape of T - 5, and of sizes alone; a Loop of T - 5 steps."""
    body = om.graph(
        [om.node("Identity", ["go"], ["on"]), om.node("Add", ["h", "one"], ["new"])],
        {"i": ([], "i8"), "go": ([], "?"), "h": ([], "f4")}, ["on", "new"],
    )  # fmt: skip
    nodes = [om.node("Shape", ["x"], ["s"]), om.node("Sub", ["s", "five"], ["d"])]
    literals = {"five": ints(5), "h0": np.float32(0), "one": np.float32(1)}
    filled = [*nodes, om.node("ConstantOfShape", ["d"], ["y"])]
    g = li.from_onnx(om.model(filled, {"x": (["T"], "f4")}, ["y"], literals))
    assert li.interpret(g, x=np.zeros(7, "f4"))["y"].shape == (2,)
    with pytest.raises(li.CallError, match=r"the size T-5 is below 0 \(T = 3\)"):
        li.interpret(g, x=np.zeros(3, "f4"))
    looped = [*nodes, om.node("Loop", ["d", "", "h0"], ["y"], body=body)]
    g = li.from_onnx(om.model(looped, {"x": (["T"], "f4")}, ["y"], literals))
    with li.compile(g) as exe:
        for call in (lambda x: li.interpret(g, x=x), lambda x: exe(x=x)):
            assert [float(call(np.zeros(n, "f4"))["y"]) for n in (7, 5)] == [2.0, 0.0]
            with pytest.raises(li.CallError, match=r"its number of steps, T-5, is below 0 \(T = 3\)"):
                call(np.zeros(3, "f4"))


def test_a_number_of_steps_inside_of_an_open_file(rng: np.random.Generator) -> None:
    """As PyTorch's newer exporter writes it: refused, and taken with the number as the size."""
    made = om.model(
        [om.node("Reshape", ["x", "shape"], ["y"])],
        {"x": (["T", "B", 5], "f4")},
        ["y"],
        {"shape": np.array([4, -1, 5])},
    )
    with pytest.raises(li.ModelError, match=r"\(Reshape\): reshape: the -1 in \[4,-1,5\] stands for no size"):
        li.from_onnx(made)
    x = rng.normal(size=(4, 3, 5)).astype("f4")
    np.testing.assert_array_equal(li.interpret(li.from_onnx(made, sizes={"T": 4}), x=x)["y"], x)


CLAMPED: dict[str, Callable[[], tuple[list[Any], dict[str, Any]]]] = {
    "a shape": lambda: ([om.node("ConstantOfShape", ["n"], ["y"])], {}),
    "a part of it": lambda: (
        [om.node("Gather", ["n", "zero"], ["m"]), om.node("ConstantOfShape", ["m"], ["y"])], {},
    ),
    "expanded": lambda: (
        [om.node("Concat", ["n", "three"], ["m"], axis=0), om.node("Expand", ["row", "m"], ["y"])],
        {"three": ints(3), "row": np.ones((1, 3), np.float32)},
    ),
    "counted": lambda: (
        [om.node("Squeeze", ["n"], ["end"]), om.node("Range", ["two", "end", "three"], ["y"])],
        {"two": np.int64(2), "three": np.int64(3)},
    ),
    "a number": lambda: ([om.node("Cast", ["n"], ["y"], to=1)], {}),
    "summed": lambda: (
        [om.node("Concat", ["n", "one"], ["m"], axis=0), om.node("ReduceSum", ["m"], ["y"])], {},
    ),
    "looped": lambda: (
        [om.node("Loop", ["n", "", "h"], ["y"], body=om.graph(
            [om.node("Identity", ["go"], ["on"]), om.node("Add", ["before", "before"], ["after"])],
            {"i": ([], "i8"), "go": ([], "?"), "before": ([], "f4")}, ["on", "after"],
        ))], {"h": np.float32(1.5)},
    ),
    "one more": lambda: ([om.node("Add", ["n", "one"], ["m"]), om.node("ConstantOfShape", ["m"], ["y"])], {}),
    "counted down": lambda: (
        [om.node("Squeeze", ["n"], ["top"]), om.node("Range", ["top", "end", "step"], ["y"])],
        {"end": np.int64(-1), "step": np.int64(-1)},
    ),
    "padded": lambda: (
        [om.node("Concat", ["n", "zero", "zero", "zero"], ["m"], axis=0), om.node("Pad", ["x", "m"], ["y"])], {},
    ),
    "cut": lambda: ([om.node("Slice", ["x", "zero", "n"], ["y"])], {}),
}  # fmt: skip
NOT_TAKEN = {
    "one more": "the_ConstantOfShape .*: the shape depends on values that only a call knows",
    "counted down": "the_Range .*: start depends on values .* the larger of two, .* as T=step",
    "padded": "the_Pad .*: pads depends on values .* the larger of two",
    "cut": "the_Slice .*: how many places a range has depends on values",
}


@pytest.mark.parametrize("case", CLAMPED)
def test_the_larger_of_a_size_and_zero(case: str, rng: np.random.Generator) -> None:
    """max(T - 4, 0): as the size of an axis it is T - 4, and calls below 4 are refused; as a number it is a tensor."""
    more, literals = CLAMPED[case]()
    nodes = [
        om.node("Shape", ["x"], ["s"]), om.node("Slice", ["s", "zero", "one"], ["T"], name="first"),
        om.node("Sub", ["T", "four"], ["less"]), om.node("Max", ["less", "zero"], ["n"]), *more,
    ]  # fmt: skip
    literals = literals | {"zero": ints(0), "one": ints(1), "four": ints(4)}
    used = {n: a for n, a in literals.items() if any(n in node.input for node in nodes)}
    made = om.model(nodes, {"x": (["T", 3], "f4")}, ["y"], used)
    if case in NOT_TAKEN:
        with pytest.raises(li.ModelError, match=NOT_TAKEN[case]):
            li.from_onnx(made)
        return
    g = li.from_onnx(made)
    with li.compile(g) as exe:
        for T in range(9):
            x = rng.normal(size=(T, 3)).astype("f4")
            if T < 4 and case not in ("a number", "summed"):
                with pytest.raises(li.CallError):
                    exe(x=x)
                continue
            (want,) = om.run(made, {"x": x})
            for got in (exe(x=x)["y"], li.interpret(g, x=x)["y"]):
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(got, want)


def strided(shape: list[str]) -> Any:
    """A convolution of stride 2, and its steps as torch.onnx.export counts them: (T - 3) / 2 + 1, toward zero."""
    nodes = [
        om.node("Conv", ["x", "w"], ["y"], strides=[2]), om.node("Transpose", ["y"], ["t"], perm=[0, 2, 1]),
        om.node("Shape", ["x"], ["B"], start=0, end=1, name="first"), om.node("Shape", ["x"], ["T"], start=2, end=3),
        om.node("Squeeze", ["T"], ["T0"]), om.node("Sub", ["T0", "three"], ["m"]),
        om.node("Div", ["m", "two"], ["half"]), om.node("Add", ["half", "one"], ["n0"]),
        om.node("Reshape", ["n0", "flat"], ["n"]), om.node("Concat", shape, ["to"], axis=0, name="joined"),
        om.node("Reshape", ["t", "to"], ["out"], name="rows"),
    ]  # fmt: skip
    w = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 2, 3)
    known = {"w": w, "three": np.int64(3), "two": np.int64(2), "one": np.int64(1), "flat": ints(-1), "four": ints(4)}
    return om.model(nodes, {"x": (["B", 2, "T"], "f4")}, ["out"], known)


def test_one_size_of_a_shape_that_only_a_call_knows(rng: np.random.Generator) -> None:
    """Whether T - 3 is negative is not known, so what it gives toward zero is no size; the others leave one."""
    made = strided(["B", "n", "four"])
    for T in (3, 4, 5, 10):
        g = same(made, {"x": rng.normal(size=(3, 2, T)).astype("f4")})
        assert str(g.outputs[0].type) == "f32[B,(T+1)//2-1,4]"


@pytest.mark.parametrize("shape", [["n", "n"], ["B", "flat", "n"], ["n", "n", "four"]])
def test_two_sizes_of_a_shape_that_only_a_call_knows(shape: list[str]) -> None:
    with pytest.raises(li.ModelError, match=r"rows .Reshape.: the shape depends on values that only a call knows$"):
        li.from_onnx(strided(shape))
