"""If, Loop and Scan, functions, and what only looks like them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need

import lstm_ir as li


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir", "onnxruntime")


def same(made: Any, fed: dict[str, Any]) -> li.Graph:
    g = li.from_onnx(made)
    for got, want in zip(li.interpret(g, fed).values(), om.run(made, fed), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, atol=2e-6)
    return g


def branches() -> dict[str, Any]:
    """x + w, of the graph around it, or an op that nobody takes."""
    then = om.graph([om.node("Add", ["x", "w"], ["a"])], {}, ["a"])
    other = om.graph([om.node("Stft", ["x"], ["b"], name="inside")], {}, ["b"])
    return {"then_branch": then, "else_branch": other}


def if_model(*before: Any, inputs: dict[str, Any] | None = None) -> Any:
    nodes = [*before, om.node("If", ["which"], ["y"], **branches())]
    rate = {"rate": np.int64(16000), "axis": np.int64(0), "w": np.array([1, 2], "f4")}
    return om.model(nodes, {"x": (["N", 2], "f4"), **(inputs or {})}, ["y"], rate)


def test_if_is_folded_by_a_constant() -> None:
    made = if_model(om.node("Equal", ["sr", "rate"], ["which"]), inputs={"sr": ([], "i8")})
    x = np.ones((3, 2), np.float32)
    g = li.from_onnx(made, constants={"sr": 16000})
    assert g.input_names == ("x",)
    np.testing.assert_array_equal(li.interpret(g, x=x)["y"], x + np.array([1, 2], "f4"))
    with pytest.raises(
        li.ModelError, match=r"the_If \(If\): its condition depends on the input sr \(constants=, --constant\)"
    ):
        li.from_onnx(made)
    with pytest.raises(li.ModelError, match=r"1 refusal\n  inside \(Stft\): the op is not taken"):
        li.from_onnx(made, constants={"sr": 8000})


def test_if_is_folded_by_a_size() -> None:
    shape = [
        om.node("Shape", ["x"], ["s"]),
        om.node("Gather", ["s", "axis"], ["n"]),
        om.node("Less", ["n", "rate"], ["which"]),
    ]
    made = if_model(*shape)
    assert [n.op.name for n in li.from_onnx(made, sizes={"N": 3}).nodes][-1] == "add"
    with pytest.raises(li.ModelError, match=r"depends on the size N \(sizes=, --size\)"):
        li.from_onnx(made)


def test_loop_over_a_size(rng: np.random.Generator) -> None:
    """A state that is multiplied by a matrix T times, with the step's number and the state before it as results."""
    body = om.typed(
        om.graph(
            [
                om.node("Identity", ["go"], ["on"]), om.node("MatMul", ["h", "w"], ["hw"]),
                om.node("Tanh", ["hw"], ["new"]), om.node("Cast", ["i"], ["f"], to=1),
                om.node("Add", ["h", "f"], ["row"]),
            ],
            {"i": ([], "i8"), "go": ([], "?"), "h": (["B", 4], "f4")}, ["on", "new", "row"],
        ),
        on=([], "?"), new=(["B", 4], "f4"), row=(["B", 4], "f4"),
    )  # fmt: skip
    nodes = [
        om.node("Shape", ["x"], ["s"]), om.node("Gather", ["s", "axis"], ["T"]),
        om.node("Loop", ["T", "", "h0"], ["last", "rows"], body=body),
    ]  # fmt: skip
    literals = {"axis": np.int64(0), "w": rng.normal(size=(4, 4)).astype("f4")}
    made = om.model(nodes, {"x": (["T", 2], "f4"), "h0": (["B", 4], "f4")}, ["last", "rows"], literals)
    g = same(made, {"x": np.zeros((6, 2), "f4"), "h0": rng.normal(size=(3, 4)).astype("f4")})
    assert str(g.output("rows").type) == "f32[T,B,4]"
    (loop,) = (n for n in g.nodes if n.op.name == "scan")
    assert "the_Loop" in str(loop.loc)


def test_a_loop_that_ends_itself_is_refused() -> None:
    body = om.graph(
        [
            om.node("ReduceSum", ["h"], ["s"], keepdims=0), om.node("Less", ["s", "limit"], ["on"]),
            om.node("Add", ["h", "h"], ["new"]),
        ],
        {"i": ([], "i8"), "go": ([], "?"), "h": ([4], "f4")}, ["on", "new"],
    )  # fmt: skip
    nodes = [om.node("Loop", ["T", "", "h0"], ["last"], body=body)]
    made = om.model(nodes, {"h0": ([4], "f4")}, ["last"], {"T": np.int64(5), "limit": np.float32(9)})
    with pytest.raises(li.ModelError, match=r"the_Loop \(Loop\): it ends when a condition says so"):
        li.from_onnx(made)


@pytest.mark.parametrize("flags", [(0, 0, 0, 0), (1, 0, 1, 1), (0, 1, 0, 1)])
def test_scan(flags: tuple[int, ...], rng: np.random.Generator) -> None:
    """Two rows a step, one of them backward, along other axes; two results."""
    body = om.typed(
        om.graph(
            [om.node("Mul", ["h", "a"], ["ha"]), om.node("Add", ["ha", "b"], ["new"]), om.node("Neg", ["new"], ["y"]),
             om.node("Sub", ["a", "b"], ["z"])],
            {"h": (["B"], "f4"), "a": (["B"], "f4"), "b": (["B"], "f4")}, ["new", "y", "z"],
        ),
        new=(["B"], "f4"), y=(["B"], "f4"), z=(["B"], "f4"),
    )  # fmt: skip
    node = om.node(
        "Scan", ["h0", "a", "b"], ["h", "ys", "zs"], body=body, num_scan_inputs=2, scan_input_axes=[0, 1],
        scan_output_axes=[1, 0], scan_input_directions=flags[:2], scan_output_directions=flags[2:],
    )  # fmt: skip
    made = om.model([node], {"h0": (["B"], "f4"), "a": (["T", "B"], "f4"), "b": (["B", "T"], "f4")}, ["h", "ys", "zs"])
    fed = {n: rng.normal(size=s).astype("f4") for n, s in {"h0": (3,), "a": (5, 3), "b": (3, 5)}.items()}
    assert str(same(made, fed).output("ys").type) == "f32[B,T]"


def test_functions_are_inlined(rng: np.random.Generator) -> None:
    from onnx import helper

    inner = helper.make_function(
        "my", "Half", ["x"], ["y"], [om.node("Add", ["x", "x"], ["d"]), om.node("LeakyRelu", ["d"], ["y"])],
        [helper.make_opsetid("", 22)],
    )  # fmt: skip
    outer = helper.make_function(
        "my", "Twice", ["x"], ["y"],
        [om.node("Half", [a], [b], domain="my", name=b) for a, b in (("x", "h"), ("h", "y"))],
        [helper.make_opsetid("", 22), helper.make_opsetid("my", 1)],
    )  # fmt: skip
    made = om.model(
        [om.node("Twice", ["x"], ["y"], domain="my")], {"x": (["N"], "f4")}, ["y"], functions=[inner, outer]
    )
    same(made, {"x": rng.normal(size=5).astype("f4")})
