"""Files: every way to hand over a model, and damaged or hostile ones, which are errors that name what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need
from paths import ROOT

import lstm_ir as li

H = 4


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx")
    need("onnx_ir")


def small(rng: np.random.Generator) -> Any:
    """An RNN layer of 6 rows of W."""
    weights = {"W": rng.normal(size=(1, H, 6)).astype("f4"), "R": rng.normal(size=(1, H, H)).astype("f4")}
    node = om.node("RNN", ["x", "W", "R"], ["Y"], hidden_size=H, name="/encoder/RNN")
    return om.model([node], {"x": (["T", "B", 6], "f4")}, ["Y"], weights)


def test_every_way_in(tmp_path: Path, rng: np.random.Generator) -> None:
    """Path, text, bytes, ModelProto, onnx_ir.Model: one graph, whose nodes know where they come from."""
    import onnx_ir

    made = small(rng)
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    graphs = [li.from_onnx(m) for m in (path, str(path), path.read_bytes(), made, onnx_ir.from_proto(made))]
    assert len({str(g) for g in graphs}) == 1
    (layer,) = (n for n in graphs[0].nodes if n.op.name == "rnn")
    assert layer.loc == li.Loc("model.onnx", 0, node="/encoder/RNN")
    assert str(layer.loc.through("rule")) == "model.onnx:/encoder/RNN <- rule"
    assert set(graphs[0].weights) == {"W", "R"}
    np.testing.assert_array_equal(graphs[0].weights["R"].node.attrs["value"].array, _array(made, "R"))


def test_places_are_kept_in_texts(rng: np.random.Generator) -> None:
    from lstm_ir.ir.printer import print_graph

    g = li.from_onnx(small(rng))
    text = print_graph(g, locs=True)
    assert '@ "<onnx>":"/encoder/RNN"' in text
    data = {n: w.node.attrs["value"].array for n, w in g.weights.items()}
    again = li.parse(text, data)
    assert isinstance(again, li.Graph)
    assert print_graph(again, locs=True) == text


def _array(made: Any, name: str) -> Any:
    from onnx import numpy_helper

    return next(numpy_helper.to_array(t) for t in made.graph.initializer if t.name == name)


def external(made: Any, folder: Path, location: str, data: bytes) -> Path:
    """The model with W in another file."""
    from onnx import TensorProto

    (w,) = (t for t in made.graph.initializer if t.name == "W")
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": "0", "length": str(4 * 6 * H)}.items():
        w.external_data.add(key=key, value=value)
    (folder / "inside").mkdir()
    (folder / "weights.bin").write_bytes(data)
    path = folder / "inside" / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_external_data(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the model's own folder, also where the path names none."""
    made = small(rng)
    want = _array(made, "W")
    path = external(made, tmp_path, "w.bin", b"")
    (path.parent / "w.bin").write_bytes(want.tobytes())
    np.testing.assert_array_equal(li.from_onnx(path).weights["W"].node.attrs["value"].array, want)
    monkeypatch.chdir(path.parent)
    np.testing.assert_array_equal(li.from_onnx("model.onnx").weights["W"].node.attrs["value"].array, want)
    with pytest.raises(li.ModelError, match=r"W \(initializer\): its data is in another file"):
        li.from_onnx(path.read_bytes())


@pytest.mark.parametrize("location", ["../weights.bin", "missing.bin", "/etc/hostname", "link.bin", "short.bin"])
def test_external_data_that_is_not_there_or_outside(location: str, tmp_path: Path, rng: np.random.Generator) -> None:
    path = external(small(rng), tmp_path, location, bytes(4 * 6 * H))
    (path.parent / "short.bin").write_bytes(bytes(7))
    os.symlink(tmp_path / "weights.bin", path.parent / "link.bin")
    with pytest.raises(li.ModelError, match=r"model.onnx: 1 refusal\n  W \(initializer\): its data cannot be read"):
        li.from_onnx(path)


def test_truncated_files(rng: np.random.Generator) -> None:
    """Cut after any byte: a ModelError, or a model that is whole without the rest."""
    data = small(rng).SerializeToString()
    for end in range(0, len(data), 7):
        try:
            li.from_onnx(data[:end])
        except li.ModelError:
            continue
    for junk in (b"", b"not a model", bytes(1000)):
        with pytest.raises(li.ModelError, match="is not an ONNX model"):
            li.from_onnx(junk)


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(li.ModelError, match=r"nothing\.onnx: No such file"):
        li.from_onnx(tmp_path / "nothing.onnx")
    with pytest.raises(li.ModelError, match=r"takes a path, bytes, a ModelProto or an onnx_ir\.Model, got dict"):
        li.from_onnx({})


def _opset(made: Any) -> None:
    made.opset_import[0].version = 999


def _cycle(made: Any) -> None:
    made.graph.node.extend([om.node("Add", ["x", "b"], ["a"]), om.node("Neg", ["a"], ["b"])])


def _missing(made: Any) -> None:
    made.graph.node[0].input[1] = "nobody"


def _size(made: Any) -> None:
    made.graph.initializer[0].dims[0] = 2**40


def _fewer(made: Any) -> None:
    made.graph.initializer[0].raw_data = b"1234"


def _text(made: Any) -> None:
    made.graph.initializer[0].ClearField("raw_data")
    made.graph.initializer[0].data_type = 8


def _rank(made: Any) -> None:
    made.graph.input[0].type.tensor_type.ClearField("shape")


def _sequence(made: Any) -> None:
    made.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = 1


def _no_output(made: Any) -> None:
    made.graph.output[0].name = "nobody"


def _twice(made: Any) -> None:
    made.graph.node.add().CopyFrom(made.graph.node[0])


def _two_outputs(made: Any) -> None:
    made.graph.output.append(made.graph.output[0])


def _no_type(made: Any) -> None:
    made.graph.node.append(om.node("Constant", [], ["k"], value=om.tensor(np.ones(2, "f4"))))
    made.graph.node[-1].attribute[0].t.data_type = -1


def _line_break(made: Any) -> None:
    made.graph.node[0].name = "two\nlines\x04"
    made.graph.node[0].op_type = "Stft"


def _nameless(made: Any) -> None:
    made.graph.node[0].ClearField("name")
    made.graph.node[0].op_type = "Stft"
    made.graph.node[0].output[0] = ""


def _sizes_with_one_operand(made: Any) -> None:
    made.graph.node.extend([om.node("Shape", ["x"], ["s"]), om.node("Mul", ["s"], ["t"])])


FAULTS: list[tuple[Callable[[Any], None], str]] = [
    (_opset, "operator set 999 is not one of 1 to 28"),
    (_cycle, r"operand of the_Add\): no earlier node makes it"),
    (_missing, r"nobody \(operand of /encoder/RNN\): no earlier node makes it"),
    (_size, r"W \(initializer\): its data cannot be read"),
    (_fewer, r"W \(initializer\): its data cannot be read"),
    (_text, r"W \(initializer\): elements of type STRING are not taken"),
    (_rank, r"x \(input\): its rank is not stated"),
    (_sequence, r"x \(input\): its rank is not stated"),
    (_two_outputs, "two outputs are called 'Y'"),
    (_no_type, r"the_Constant \(Constant\): its type cannot be read"),
    (_line_break, r"  two\\nlines\\x04 \(Stft\): the op is not taken"),
    (_nameless, r"  node 0 \(Stft\): the op is not taken"),
    (_sizes_with_one_operand, r"the_Mul \(Mul\): operand 1 is missing"),
    (_no_output, r"nobody \(output\): no earlier node makes it"),
]


@pytest.mark.parametrize(("damage", "why"), FAULTS, ids=[f.__name__ for f, _ in FAULTS])
def test_models_that_contradict_themselves(
    damage: Any, why: str, rng: np.random.Generator, caplog: pytest.LogCaptureFixture
) -> None:
    made = small(rng)
    damage(made)
    with pytest.raises(li.ModelError, match=why):
        li.from_onnx(made.SerializeToString())
    assert not caplog.records  # the library that reads it says nothing beside the error


def _constant_of_no_type(made: Any) -> None:
    made.graph.node.append(om.node("Constant", [], ["c"], name="literal", value=om.tensor(np.array(1.0))))
    made.graph.node[-1].attribute[0].t.data_type = 52


def test_a_literal_of_a_type_that_does_not_exist(rng: np.random.Generator) -> None:
    made = small(rng)
    _constant_of_no_type(made)
    with pytest.raises(li.ModelError, match=r"literal \(Constant\): its type cannot be read"):
        li.from_onnx(made.SerializeToString())


def test_a_name_that_is_no_text(rng: np.random.Generator) -> None:
    """Of an operand: protobuf gives bytes where they are not UTF-8."""
    made = small(rng)
    made.graph.node[0].input[1] = "nobody"
    damaged = made.SerializeToString().replace(b"nobody", b"nob\xffdy")
    with pytest.raises(li.ModelError, match=r"is not text|is damaged"):
        li.from_onnx(damaged)


@pytest.mark.parametrize("old", [b"b_name", b"inside"])
def test_names_that_are_not_text(old: bytes, rng: np.random.Generator) -> None:
    """Bytes that are no UTF-8, as the operand of a node and as the result of a subgraph."""
    then = om.graph([om.node("Neg", ["x"], ["inside"])], {}, ["inside"])
    other = om.graph([om.node("Abs", ["x"], ["b"])], {}, ["b"])
    nodes = [om.node("Relu", ["b_name"], ["y"]), om.node("If", ["c"], ["z"], then_branch=then, else_branch=other)]
    data = om.model(nodes, {"x": ([2], "f4")}, ["y", "z"], {"c": np.array(True)}).SerializeToString()
    with pytest.raises(li.ModelError, match=r"the name b'\\xff.*' is not text"):
        li.from_onnx(data.replace(old, b"\xff" * len(old)))


def test_a_value_that_is_made_twice(rng: np.random.Generator) -> None:
    made = small(rng)
    _twice(made)
    with pytest.raises(li.ModelError):
        li.from_onnx(made)


@pytest.mark.parametrize("depth", [30, 40, 1000])
def test_deep_subgraphs(depth: int) -> None:
    """If inside If, which the reader of files refuses near 33 already."""
    import onnx_ir as ir

    x = ir.val("x", ir.DataType.FLOAT, [2])
    true = ir.val("true", const_value=ir.tensor(np.array(True), name="true"))

    def graph(node: Any) -> Any:
        return ir.Graph([], node.outputs, nodes=[node])

    def relu() -> Any:
        return ir.node("Relu", [x])

    node = relu()
    for _ in range(depth):
        branches = {"then_branch": graph(node), "else_branch": graph(relu())}
        node = ir.node("If", [true], branches)
    whole = ir.Graph([x], node.outputs, nodes=[node], initializers=[true], opset_imports={"": 22})
    node.outputs[0].name = "y"
    model = ir.Model(whole, ir_version=10)
    if depth == 30:
        assert li.from_onnx(model).output("y").op == "select"
        return
    with pytest.raises(li.ModelError, match="subgraphs are nested deeper than 32"):
        li.from_onnx(model)


def test_functions_that_grow_without_end() -> None:
    """Each calls the one before twice: 2^40 nodes; and one that calls itself."""
    from onnx import helper

    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("my", 1)]
    functions = [helper.make_function("my", "F0", ["x"], ["y"], [om.node("Neg", ["x"], ["y"])], opsets)]
    for i in range(1, 41):
        calls = [om.node(f"F{i - 1}", [a], [b], domain="my") for a, b in (("x", "h"), ("h", "y"))]
        functions.append(helper.make_function("my", f"F{i}", ["x"], ["y"], calls, opsets))
    made = om.model([om.node("F40", ["x"], ["y"], domain="my")], {"x": ([2], "f4")}, ["y"], functions=functions)
    with pytest.raises(li.ModelError, match="its functions stand for more than 1000000 nodes"):
        li.from_onnx(made)
    itself = helper.make_function("my", "F", ["x"], ["y"], [om.node("F", ["x"], ["y"], domain="my")], opsets)
    made = om.model([om.node("F", ["x"], ["y"], domain="my")], {"x": ([2], "f4")}, ["y"], functions=[itself])
    with pytest.raises(li.ModelError, match="the function F calls itself"):
        li.from_onnx(made)


def test_literals_that_would_fill_the_memory() -> None:
    """2^50 zeros as a literal stay one number; as a shape they are refused."""
    nodes = [
        om.node("ConstantOfShape", ["n"], ["zeros"], value=om.tensor(np.array([0]))),
        om.node("Reshape", ["x", "zeros"], ["y"]),
    ]
    made = om.model(nodes, {"x": ([2], "f4")}, ["y"], {"n": np.array([2**50])})
    with pytest.raises(li.ModelError, match=r"the_Reshape \(Reshape\): the shape depends on values"):
        li.from_onnx(made)


def test_without_the_libraries_the_extra_is_named() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.modules['onnx_ir'] = None\n"
        "import lstm_ir as li\n"
        "try: li.from_onnx(b'')\n"
        "except li.ModelError as e: print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "from_onnx needs onnx_ir: pip install 'lstm-ir[onnx]'"
