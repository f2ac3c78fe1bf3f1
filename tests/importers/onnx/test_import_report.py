"""The report of a model: what is taken, refused and wanted, its states and its recurrences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import model_file, need

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.importers.examined import planned
from lstm_ir.importers.onnx.examine import examine
from lstm_ir.importers.refusals import Wanted
from lstm_ir.importers.report import ImportReport, OpCount

H = 4


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx")
    need("onnx_ir")


def layer(op: str, name: str, x: str, y: str, start: Sequence[str] = (), **more: Any) -> Any:
    """A recurrent node with weights W, R; its result h is `y`."""
    states = [f"{y}_h", *([f"{y}_c"] if op == "LSTM" else [])]
    inputs = [x, f"W{op}", f"R{op}", *(["", "", *start] if start else [])]
    return om.node(op, inputs, [y, *states], hidden_size=H, name=name, **more)


def weights(rng: np.random.Generator, op: str, width: int, D: int = 1) -> dict[str, Any]:
    G = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    shapes = {f"W{op}": (D, G * H, width), f"R{op}": (D, G * H, H)}
    return {n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()}


def plan(model: Any, target: str = "cpu", **options: Any) -> ImportReport:
    found = examine(model)
    assert found.graph is not None, found.report.refusals
    lowered = prepare(found.graph, resolve(target), options)
    (step,) = [s for s in lowered.report.steps["main"] if s.name == "fuse-cell"]
    return planned(found.report, target, step.after, lowered.report.notes, options.get("kernels", True))


# ops and refusals -------------------------------------------------------------------------------


def test_all_refusals_at_once_with_counts() -> None:
    """An unknown op, a refused form, and what reads them; the rest is taken."""
    nodes = [
        om.node("Neg", ["x"], ["a"]),
        om.node("NoSuchOp", ["a"], ["b"], name="odd"),
        om.node("Tanh", ["b"], ["c"]),
        om.node("Neg", ["c"], ["d"]),
        om.node("MaxPool", ["v"], ["e"], name="pool", kernel_shape=[2, 2, 2]),
        om.node("MyOp", ["a"], ["f"], domain="my.domain", name="mine"),
    ]
    made = om.model(nodes, {"x": (["B", 3], "f4"), "v": ([1, 1, 4, 4, 4], "f4")}, ["d", "e", "f"])
    found = examine(made)
    assert found.graph is None
    assert not found.report.ok
    assert [(r.op, r.node) for r in found.report.refusals] == [
        ("NoSuchOp", "odd"), ("MaxPool", "pool"), ("MyOp", "mine"),
    ]  # fmt: skip
    assert all(r.reason for r in found.report.refusals)
    assert found.report.ops == (
        OpCount("MaxPool", 1, 0, 1, 0, 0),
        OpCount("Neg", 2, 1, 0, 1, 0),
        OpCount("NoSuchOp", 1, 0, 1, 0, 0),
        OpCount("Tanh", 1, 0, 0, 1, 0),
        OpCount("my.domain.MyOp", 1, 0, 1, 0, 0),
    )
    assert found.report.nodes == 6
    with pytest.raises(li.ModelError) as e:
        li.from_onnx(made)
    assert e.value.refusals == tuple(map(str, found.report.refusals))


def test_branches_that_are_not_taken_count_as_such() -> None:
    then = om.graph([om.node("Neg", ["x"], ["p"])], {}, ["p"])
    other = om.graph([om.node("NoSuchOp", ["x"], ["q"]), om.node("Neg", ["q"], ["r"])], {}, ["r"])
    nodes = [om.node("If", ["flag"], ["y"], then_branch=then, else_branch=other)]
    made = om.model(nodes, {"x": ([3], "f4"), "flag": ([], "?")}, ["y"])
    report = examine(made, constants={"flag": True}).report
    assert report.ok
    assert [(o.op, o.nodes, o.taken, o.unread) for o in report.ops] == [
        ("If", 1, 1, 0), ("Neg", 2, 1, 1), ("NoSuchOp", 1, 0, 1),
    ]  # fmt: skip


def test_a_loop_counts_its_nodes_once(rng: np.random.Generator) -> None:
    body = om.graph(
        [om.node("Add", ["s", "s"], ["t"]), om.node("Identity", ["going"], ["on"])],
        {"i": ([], "i8"), "going": ([], "?"), "s": ([3], "f4")},
        ["on", "t"],
    )
    nodes = [om.node("Loop", ["n", "", "x"], ["y"], body=body)]
    report = examine(om.model(nodes, {"x": ([3], "f4")}, ["y"], {"n": np.array(5)})).report
    assert {o.op: (o.nodes, o.taken) for o in report.ops} == {"Add": (1, 1), "Identity": (1, 1), "Loop": (1, 1)}
    assert [(r.kind, r.T) for r in report.recurrences] == [("scan", "5")]


# what is wanted ---------------------------------------------------------------------------------


def branches(*conditions: Any) -> Any:
    then = om.graph([om.node("Neg", ["x"], ["p"])], {}, ["p"])
    other = om.graph([om.node("Abs", ["x"], ["q"])], {}, ["q"])
    ifs = [om.node("If", [f"c{k}"], [f"y{k}"], name=f"if{k}", then_branch=then, else_branch=other)
           for k in range(len(conditions))]  # fmt: skip
    return om.model(
        [*conditions, *ifs],
        {"x": ([3], "f4"), "rate": ([], "i8"), "flag": ([], "?")},
        [f"y{k}" for k in range(len(conditions))],
        {"low": np.array(8000), "high": np.array(16000)},
    )


def test_constants_that_conditions_want_with_the_numbers_they_are_compared_with() -> None:
    made = branches(
        om.node("Equal", ["rate", "high"], ["c0"]),
        om.node("Less", ["low", "rate"], ["c1"]),
        om.node("Identity", ["flag"], ["c2"]),
    )
    report = examine(made).report
    assert report.constants == (Wanted("rate", (8000, 16000)), Wanted("flag", ()))
    assert [r.node for r in report.refusals] == ["if0", "if1", "if2"]
    assert examine(made, constants={"rate": 16000}).report.constants == (Wanted("flag", ()),)
    assert examine(made, constants={"rate": 16000, "flag": False}).report.ok


def test_sizes_that_conditions_want_as_numbers() -> None:
    made = om.asks_for_a_size()
    report = examine(made).report
    assert (report.ok, report.numbers, report.constants) == (False, ("T",), ())
    assert examine(made, sizes={"T": 5}).report.ok


def test_sizes_that_would_have_to_be_one() -> None:
    made = om.model(
        [om.node("Add", ["a", "b"], ["y"])], {"a": (["batch_a", 3], "f4"), "b": (["batch_b", 3], "f4")}, ["y"]
    )
    report = examine(made).report
    assert report.alike == (("batch_a", "batch_b"),)
    again = examine(made, sizes={"batch_b": "batch_a"}).report
    assert (again.ok, again.alike) == (True, ())


def test_open_sizes_and_where_they_stand() -> None:
    made = om.model([om.node("Add", ["a", "b"], ["y"])], {"a": (["T", None, 3], "f4"), "b": ([None, 3], "f4")}, ["y"])
    report = examine(made, sizes={"b_0": "a_1"}).report
    assert [(s.name, s.axes) for s in report.sizes] == [("T", ("a axis 0",)), ("a_1", ("a axis 1", "b axis 0"))]
    assert examine(made, sizes={"T": 5, "b_0": 2, "a_1": 2}).report.sizes == ()


# weights ----------------------------------------------------------------------------------------


def test_weights_and_literals_by_dtype() -> None:
    nodes = [
        om.node("Constant", [], ["k"], value=om.tensor(np.arange(6, dtype=np.float64).reshape(2, 3))),
        om.node("Cast", ["x"], ["wide"], to=11),
        om.node("Add", ["wide", "k"], ["p"]),
        om.node("Mul", ["x", "w"], ["q"]),
    ]
    made = om.model(
        nodes, {"x": ([2, 3], "f4")}, ["p", "q"], {"w": np.ones((2, 3), np.float32), "unused": np.ones(50, np.float32)}
    )
    report = examine(made).report
    assert (report.weights.count, report.weights.bytes, report.weights.dtypes) == (1, 24, {"f32": 24})
    assert (report.literals.count, report.literals.bytes, report.literals.dtypes) == (1, 48, {"f64": 48})


def test_bytes_of_the_model(tmp_path: Any) -> None:
    made = om.model([om.node("Mul", ["x", "w"], ["y"])], {"x": ([2], "f4")}, ["y"], {"w": np.ones(2, np.float32)})
    data = made.SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    assert {examine(m).report.bytes for m in (path, data, made)} == {len(data)}
    (w,) = made.graph.initializer
    w.ClearField("raw_data")
    w.data_location = 1
    w.external_data.add(key="location", value="w.bin")
    (tmp_path / "w.bin").write_bytes(np.ones(2, np.float32).tobytes())
    path.write_bytes(made.SerializeToString())
    assert examine(path).report.bytes == len(made.SerializeToString()) + 8


def test_data_of_a_branch_in_a_file_of_its_own_counts(tmp_path: Any) -> None:
    then, other = (
        om.graph([om.node(op, ["x", "w"], [op])], {}, [op], {"w": np.ones(2, "f4")}) for op in ("Mul", "Add")
    )
    w = then.initializer[0]
    w.ClearField("raw_data")
    w.data_location = 1
    w.external_data.add(key="location", value="w.bin")
    (tmp_path / "w.bin").write_bytes(bytes(8))
    choice = om.node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    data = om.model([choice], {"x": ([2], "f4")}, ["y"], {"c": np.array(True)}).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)
    assert examine(tmp_path / "m.onnx").report.bytes == len(data) + 8


def test_files_outside_of_the_folder_do_not_count(tmp_path: Any) -> None:
    """They are not read; one file under two names counts once."""
    folder = tmp_path / "inside"
    folder.mkdir()
    for path, size in ((tmp_path / "outside.bin", 1000), (folder / "w.bin", 8)):
        path.write_bytes(bytes(size))
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    places = ["w.bin", "./w.bin", "../outside.bin", str(tmp_path / "outside.bin"), "link.bin", "no\0file", "missing"]
    arrays = {f"w{k}": np.ones(2, np.float32) for k in range(len(places))}
    made = om.model([om.node("Sum", ["x", *arrays], ["y"])], {"x": ([2], "f4")}, ["y"], arrays)
    for w, place in zip(made.graph.initializer, places, strict=True):
        w.ClearField("raw_data")
        w.data_location = 1
        w.external_data.add(key="location", value=place)
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    report = examine(folder / "m.onnx").report
    assert report.bytes == len(made.SerializeToString()) + 8
    assert [r.node for r in report.refusals] == ["w2", "w3", "w4", "w5", "w6"]


# recurrences and states -------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrences_with_their_sizes(op: str, direction: str, rng: np.random.Generator) -> None:
    D = 2 if direction == "bidirectional" else 1
    made = om.model(
        [layer(op, "rnn", "x", "y", direction=direction)], {"x": (["T", "B", 6], "f4")}, ["y"], weights(rng, op, 6, D)
    )
    (found,) = plan(made).recurrences
    assert (found.kind, found.direction, found.count, found.places) == (op.lower(), direction, 1, ("<onnx>:rnn",))
    assert (found.T, found.B, found.I, found.H, found.fused) == ("T", "B", "6", "4", False)
    assert found.runs is not None
    assert found.runs.startswith("kernel")
    (found,) = plan(made, kernels=False).recurrences
    assert found.runs == "loop: without kernels"


def test_equal_layers_stand_in_one_line_and_one_step_needs_no_loop(rng: np.random.Generator) -> None:
    nodes = [
        om.node("Neg", ["x"], ["minus"]), layer("GRU", "one", "x", "y1"), layer("GRU", "two", "minus", "y2"),
        om.node("Gather", ["x", "first"], ["row"], axis=0), layer("GRU", "step", "row", "y3"),
    ]  # fmt: skip
    given = {**weights(rng, "GRU", 6), "first": np.array([0])}
    report = plan(om.model(nodes, {"x": (["T", "B", 6], "f4")}, ["y1", "y2", "y3"], given))
    sizes = {(r.T, r.count, r.runs == "plain ops: it has one step") for r in report.recurrences}
    assert sizes == {("T", 2, False), ("1", 1, True)}


def test_inputs_and_outputs_that_are_states(rng: np.random.Generator) -> None:
    """h and c of two layers, the outputs named in another order; a third input of that type feeds no layer."""
    nodes = [
        layer("LSTM", "one", "x", "y1", ["h1", "c1"]),
        layer("LSTM", "two", "x", "y2", ["h2", "c2"]),
        om.node("Neg", ["other"], ["z"]),
    ]
    states: dict[str, Any] = {n: ([1, "B", H], "f4") for n in ("h1", "c1", "h2", "c2", "other")}
    outs = ["z", "y2_c", "y2_h", "y1_c", "y1_h", "y1", "y2"]
    report = examine(om.model(nodes, {"x": (["T", "B", 6], "f4"), **states}, outs, weights(rng, "LSTM", 6))).report
    assert {(s.input, s.output) for s in report.states} == {
        ("h1", "y1_h"), ("c1", "y1_c"), ("h2", "y2_h"), ("c2", "y2_c"),
    }  # fmt: skip
    assert {s.layers for s in report.states} == {("<onnx>:one",), ("<onnx>:two",)}
    assert report.liftable == ()


def test_layers_that_start_from_zeros_could_keep_their_states(rng: np.random.Generator) -> None:
    nodes = [layer("LSTM", "one", "x", "y1"), layer("GRU", "two", "x", "y2", direction="reverse")]
    given = {**weights(rng, "LSTM", 6), **weights(rng, "GRU", 6)}
    report = examine(om.model(nodes, {"x": (["T", "B", 6], "f4")}, ["y1", "y2"], given)).report
    assert [(s.layer, s.states, s.type) for s in report.liftable] == [("<onnx>:one", ("h", "c"), "f32[1,B,4]")]
    assert report.states == ()


# real files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "states", "fused"),
    [
        ("dtln1.onnx", [("input_3", "tf_op_layer_stack_2")], 0),
        ("dtln2.onnx", [("input_5", "tf_op_layer_stack_5")], 2),
        ("zoo_rnnoise.onnx", [("h1", "92"), ("h2", "157"), ("h3", "222")], 0),
        ("zoo_rsl_rl_lstm_policy.onnx", [("h", "82"), ("c", "83")], 0),
        ("zoo_tagger_packed.onnx", [], 0),
    ],
)
def test_reports_of_real_files(name: str, states: list[tuple[str, str]], fused: int) -> None:
    report = plan(model_file(name))
    assert [(s.input, s.output) for s in report.states] == states
    assert report.fused == fused
    assert sum(r.count for r in report.recurrences) in (1, 2, 3)
    assert report.bytes == (model_file(name)).stat().st_size


def test_the_report_of_a_file_that_wants_a_constant() -> None:
    report = examine(model_file("silero.onnx")).report
    assert report.constants == (Wanted("sr", (16000,)),)
    again = examine(model_file("silero.onnx"), constants={"sr": 16000}, sizes={"input_1": 576}).report
    assert [(s.input, s.output) for s in again.states] == [("state", "stateN")]
    assert again.literals.bytes > 2**20
