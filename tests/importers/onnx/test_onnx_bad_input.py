"""Graphs whose types do not fit, data of another size, deep files, defaults, sequences where tensors have to be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need

import lstm_ir as li


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir")


F32, I64, F64 = ([2, 5], "f4"), ([2, 5], "i8"), ([5, 2], "f8")
Inputs = dict[str, Any]
ILL_TYPED: list[tuple[Callable[[], Any], Inputs, str]] = [
    (lambda: om.node("Add", ["x", "n"], ["y"]), {"x": F32, "n": I64}, r"Add\): add: lhs is f32, rhs i64"),
    (lambda: om.node("MatMul", ["x", "w"], ["y"]), {"x": F32, "w": F64}, r"MatMul\): .*lhs is f32, rhs f64"),
    (lambda: om.node("Concat", ["x", "n"], ["y"], axis=0), {"x": F32, "n": I64}, r"Concat\): .*i64.* f32"),
    (lambda: om.node("Where", ["x", "x", "x"], ["y"]), {"x": F32}, r"Where\): .*the condition is f32, not i1"),
    (lambda: om.node("Gather", ["x", "i"], ["y"]), {"x": F32, "i": ([3], "f4")}, r"Gather\): indices are f32"),
    (lambda: om.node("Sin", ["n"], ["y"]), {"n": I64}, r"Sin\): .*takes float elements, got i64"),
    (lambda: om.node("Not", ["n"], ["y"]), {"n": I64}, r"Not\): operand 0 is i64\[2,5\], not of booleans"),
    *((lambda op=op: om.node(op, ["b", "n"], ["y"]), {"b": ([2, 5], "?"), "n": I64},
       rf"{op}\): operand 1 is i64\[2,5\], not of booleans") for op in ("And", "Or", "Xor")),
]  # fmt: skip


@pytest.mark.parametrize(("node", "inputs", "why"), ILL_TYPED, ids=[w.partition("\\")[0] for _, _, w in ILL_TYPED])
def test_types_that_do_not_fit(node: Callable[[], Any], inputs: Inputs, why: str) -> None:
    """onnxruntime refuses each of them too."""
    made = om.model([node()], inputs, ["y"])
    with pytest.raises(li.ModelError, match="the_" + why.partition("\\")[0] + r" \(" + why):
        li.from_onnx(made)
    need("onnxruntime")
    with pytest.raises(Exception, match="Type"):
        om.run(made, {})


def choice(condition: Any) -> Any:
    then, other = (om.graph([om.node(op, ["x"], [op])], {}, [op]) for op in ("Neg", "Abs"))
    node = om.node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    return om.model([node], {"x": ([2], "f4")}, ["y"], {"c": condition})


@pytest.mark.parametrize("condition", [np.float32(0.5), np.array(3), np.array([1], "i4")], ids=["f32", "i64", "i32"])
def test_a_condition_that_is_no_boolean(condition: Any) -> None:
    with pytest.raises(li.ModelError, match=r"the_If \(If\): its condition is of [fi]\d\d, not a boolean"):
        li.from_onnx(choice(condition))
    assert li.interpret(li.from_onnx(choice(np.array([True]))), x=np.array([1, -2], "f4"))["y"].tolist() == [-1, 2]


def repeated(going: Any, inputs: list[str], initializers: dict[str, Any]) -> Any:
    """A loop that doubles; `going` is the node that makes its condition."""
    steps = [going, om.node("Add", ["h", "h"], ["new"])]
    body = om.graph(steps, {"i": ([], "i8"), "go": ([], "?"), "h": ([2], "f4")}, ["on", "new"])
    node = om.node("Loop", inputs, ["y"], body=body)
    return om.model([node], {"x": ([2], "f4")}, ["y"], {"n": np.array(3), **initializers})


def test_a_loop_whose_condition_is_no_boolean() -> None:
    same, cast = om.node("Identity", ["go"], ["on"]), om.node("Cast", ["go"], ["on"], to=1)
    with pytest.raises(li.ModelError, match=r"the_Loop \(Loop\): its condition is of f32, not a boolean"):
        li.from_onnx(repeated(cast, ["n", "", "x"], {}))
    with pytest.raises(li.ModelError, match=r"the_Loop \(Loop\): its condition is of i64, not a boolean"):
        li.from_onnx(repeated(same, ["n", "first", "x"], {"first": np.array(1)}))
    sound = li.from_onnx(repeated(same, ["n", "first", "x"], {"first": np.array(True)}))
    assert li.interpret(sound, x=np.array([1, -2], "f4"))["y"].tolist() == [8, -16]


def test_sequences_where_a_loop_wants_tensors() -> None:
    """A body that gives a sequence as a state, as its condition, and as a state of a Scan."""
    pair = om.node("SequenceConstruct", ["go", "go"], ["on"])
    with pytest.raises(li.ModelError, match=r"the_Loop \(Loop\): its condition is a sequence"):
        li.from_onnx(repeated(pair, ["n", "", "x"], {}))
    made = repeated(om.node("Identity", ["go"], ["on"]), ["n", "", "x"], {})
    step = made.graph.node[0].attribute[0].g.node[1]
    step.op_type, step.name = "SequenceConstruct", "pair"
    with pytest.raises(li.ModelError, match=r"the_Loop \(Loop\): a result of its body is a sequence"):
        li.from_onnx(made)
    body = om.graph([om.node("SequenceConstruct", ["h", "r"], ["new"])], {n: ([5], "f4") for n in "hr"}, ["new"])
    node = om.node("Scan", ["h0", "x"], ["y"], body=body, num_scan_inputs=1)
    with pytest.raises(li.ModelError, match=r"the_Scan \(Scan\): a result of its body is a sequence"):
        li.from_onnx(om.model([node], {"h0": ([5], "f4"), "x": (["T", 5], "f4")}, ["y"]))


@pytest.mark.parametrize("count", [0, 1, 3, 4])
@pytest.mark.parametrize("field", ["raw_data", "float_data"])
def test_data_of_another_size_than_the_shape(field: str, count: int) -> None:
    made = om.model([om.node("Mul", ["x", "w"], ["y"])], {"x": ([2], "f4")}, ["y"], {"w": np.ones(2, "f4")})
    (w,) = made.graph.initializer
    w.ClearField("raw_data")
    data = np.arange(count, dtype="f4")
    if field == "raw_data":
        w.raw_data = data.tobytes()
    else:
        w.float_data.extend(data)
    with pytest.raises(li.ModelError, match=r"w \(initializer\): its data (cannot be read|is missing)"):
        li.from_onnx(made.SerializeToString())
    need("onnxruntime")
    with pytest.raises(Exception, match=r"[Ee]xception"):
        om.run(made, {"x": np.ones(2, "f4")})


PLACES = [
    ("0", "8"),
    ("4", "8"),
    ("8", "8"),
    ("4", None),
    ("0", "16"),
    ("0", "4"),
    ("8", "16"),
    ("0", "7"),
    ("12", "8"),
]


@pytest.mark.parametrize(("offset", "length"), PLACES)
def test_data_beside_the_model_of_another_size_than_the_shape(offset: str, length: str | None, tmp_path: Path) -> None:
    """What onnxruntime takes of a file of four numbers is taken here, with the same numbers; what it refuses is not."""
    need("onnxruntime")
    import onnxruntime

    made = om.model([om.node("Mul", ["x", "w"], ["y"])], {"x": ([2], "f4")}, ["y"], {"w": np.ones(2, "f4")})
    (w,) = made.graph.initializer
    w.ClearField("raw_data")
    w.data_location = 1
    for key, value in {"location": "w.bin", "offset": offset, "length": length}.items():
        if value is not None:
            w.external_data.add(key=key, value=value)
    (tmp_path / "w.bin").write_bytes(np.arange(1, 5, dtype="f4").tobytes())
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    x, options = np.ones(2, "f4"), onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        (want,) = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    except Exception:  # a class of its own for each kind of fault
        with pytest.raises(li.ModelError, match=r"w \(initializer\): its data (cannot be read|has \d+ bytes)"):
            li.from_onnx(path)
        assert (offset, length) in PLACES[4:]
        return
    np.testing.assert_array_equal(li.interpret(li.from_onnx(path), x=x)["y"], want)
    assert (offset, length) in PLACES[:4]


def test_weights_of_zeros_are_data() -> None:
    """Also of no elements, and of a tensor that a caller made; what is missing is refused as a literal too."""
    import onnx_ir

    for shape in ((2,), (0,), ()):
        made = om.model([om.node("Mul", ["x", "w"], ["y"])], {"x": (shape, "f4")}, ["y"], {"w": np.zeros(shape, "f4")})
        for given in (made, made.SerializeToString(), onnx_ir.from_proto(made)):
            got = li.interpret(li.from_onnx(given), x=np.ones(shape, "f4"))["y"]
            np.testing.assert_array_equal(got, np.zeros(shape, "f4"))
    literal = om.model([om.node("Constant", [], ["y"], value=om.tensor(np.zeros((3, 4), "f4")))], {}, ["y"])
    assert li.from_onnx(literal).output("y").shape == (3, 4)
    literal.graph.node[0].attribute[0].t.ClearField("raw_data")
    with pytest.raises(li.ModelError, match=r"the_Constant \(.*\): its data is missing, and its shape is \[3, 4\]"):
        li.from_onnx(literal)


def _field(number: int, content: bytes) -> bytes:
    """A field of a protobuf message: its number and kind, its size, its bytes."""
    size, head = len(content), bytes([number << 3 | 2])
    while size > 127:
        head, size = head + bytes([size & 127 | 128]), size >> 7
    return head + bytes([size]) + content


def test_a_file_with_subgraphs_a_thousand_deep(tmp_path: Path) -> None:
    """If inside of If, written as bytes: no library builds it. The reader refuses it, and the process goes on."""
    made = choice(np.array(True))
    (node,) = made.graph.node
    results = _field(12, _field(1, b"y"))
    deep = om.node("Neg", ["x"], ["y"]).SerializeToString()
    for _ in range(1000):
        branch = _field(1, deep) + _field(2, b"g") + results
        attribute = _field(1, b"then_branch") + _field(6, branch) + bytes([20 << 3 & 127 | 128, 1, 5])
        deep = _field(1, b"c") + _field(2, b"y") + _field(4, b"If") + _field(5, attribute)
    made.graph.node.remove(node)
    path = tmp_path / "deep.onnx"
    path.write_bytes(made.SerializeToString() + _field(7, _field(1, deep)))  # a graph in two parts is one
    for refuses in (li.from_onnx, li.examine):
        with pytest.raises(
            li.ModelError, match=r"deep\.onnx: (is not an ONNX model, or is damaged|subgraphs are nested)"
        ):
            refuses(path)


def test_an_input_that_has_a_default() -> None:
    """It is no input: the graph has the initializer, and `constants` does not know it."""
    inputs: Inputs = {"x": (["T", 2], "f4"), "w": (["K"], "f4")}
    made = om.model([om.node("Mul", ["x", "w"], ["y"])], inputs, ["y"], {"w": np.array([2, 3], "f4")})
    graph = li.from_onnx(made)
    assert graph.input_names == ("x",)
    assert set(graph.weights) == {"w"}
    x = np.array([[1, -1], [5, 7]], "f4")
    np.testing.assert_array_equal(li.interpret(graph, x=x)["y"], x * np.array([2, 3], "f4"))
    with pytest.raises(li.ModelError, match="constants"):
        li.from_onnx(made, constants={"w": np.zeros(2, "f4")})
    with pytest.raises(li.ModelError, match="sizes"):
        li.from_onnx(made, sizes={"K": 2})
