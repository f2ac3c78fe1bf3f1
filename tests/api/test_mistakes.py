"""What common mistakes are told, word for word: matrices the other way round, two biases, labels of -100, arrays
without names. Each message names what to write instead, and what it names works."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Golden
from paths import GOLDEN

import lstm_ir as li

AT = re.compile(r"(?<=test_mistakes\.py:)\d+")
any_: Any = li
any_none: Any = None
I, H, O = 5, 7, 3
X = li.input("x", ("T", "B", I))
L, LABELS = li.input("l", ("N", O)), li.input("labels", ("N",), "i32")
LOSS = li.Graph("loss", [L, LABELS], {"loss": li.cross_entropy(L, LABELS)})
G = li.Graph("g", [L], {"y": li.tanh(L)})
TWO = li.Graph("two", [li.input("a.1", (2,)), li.input("b", (2,))], {})
TWO_OUT = li.Graph("two_out", [L], {"y": li.tanh(L), "z": li.exp(L)})
Z = li.input("z", ("B", 4))
T: Any = X.shape[0]
any_x: Any = X
NONE = li.Graph("none", [], {"y": li.constant(1.0)})
Case = Callable[[], object]


def ones(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, "f4")


def layer(gates: int) -> tuple[Any, Any, Any]:
    return ones(gates * H, I), ones(gates * H, H), ones(gates * H)


W, R, BIAS = layer(4)
GRU_W, GRU_R, GRU_BIAS = layer(3)
MISTAKES: dict[str, tuple[Case, type[Exception]]] = {
    "lstm_w_ih_transposed": (lambda: li.lstm(X, W.T, R), li.IRError),
    "lstm_w_hh_transposed": (lambda: li.lstm(X, W, R.T), li.IRError),
    "lstm_w_hh_of_eight_transposed": (lambda: li.lstm(X, ones(32, I), ones(8, 32)), li.IRError),
    "lstm_w_hr_transposed": (lambda: li.lstm(X, W, ones(28, 2), w_hr=ones(7, 2)), li.IRError),
    "gru_w_ih_transposed": (lambda: li.gru(X, GRU_W.T, GRU_R), li.IRError),
    "rnn_w_ih_transposed": (lambda: li.rnn(X, ones(I, H), ones(H, H)), li.IRError),
    "gru_of_lstm_weights": (lambda: li.gru(X, W, R), li.IRError),
    "lstm_of_gru_weights": (lambda: li.lstm(X, GRU_W, GRU_R), li.IRError),
    "lstm_of_rnn_weights": (lambda: li.lstm(X, ones(8, I), ones(8, 8)), li.IRError),
    "lstm_both_directions_of_one_matrix": (lambda: li.lstm(X, W, R, direction="bidirectional"), li.IRError),
    "lstm_activations_of_a_text": (lambda: any_.lstm(X, W, R, activations="tanh"), li.IRError),
    "lstm_of_a_layer": (lambda: li.lstm(li.lstm(X, W, R), ones(28, H), R), li.IRError),
    "one_hot_labels": (lambda: li.cross_entropy(L, li.input("h", ("N", O))), li.IRError),
    "labels_of_floats": (lambda: li.cross_entropy(L, ones(2)), li.IRError),
    "float_shifted": (lambda: L << 1, li.IRError),
    "export_as_onnx": (lambda: li.export(G, "model.onnx"), li.CompileError),
    "dense_transposed": (lambda: li.dense(X, ones(I, O)), li.IRError),
    "lstm_two_biases": (lambda: li.lstm(X, W, R, BIAS, BIAS), li.IRError),
    "lstm_list_of_biases": (lambda: li.lstm(X, W, R, [BIAS, BIAS]), li.IRError),
    "lstm_biases_side_by_side": (lambda: li.lstm(X, W, R, ones(2 * 4 * H)), li.IRError),
    "gru_two_biases": (lambda: li.gru(X, GRU_W, GRU_R, GRU_BIAS, GRU_BIAS), li.IRError),
    "stack_of_two_biases": (
        lambda: li.lstm_stack(X, [{"w_ih": W, "w_hh": R, "b_ih": BIAS, "b_hh": BIAS}]), li.IRError
    ),
    "stack_of_tuples": (lambda: any_.lstm_stack(X, [(W, R)]), li.IRError),
    "weight_of_a_ragged_list": (lambda: li.weight("w", [[1, 2], [3]]), li.IRError),
    "operand_of_a_ragged_list": (lambda: li.dense(X, [[1, 2], [3]]), li.IRError),
    "label_of_minus_100": (
        lambda: li.interpret(LOSS, l=ones(2, O), labels=np.array([1, -100], "i4")), li.ValueRangeError
    ),
    "constant_label_of_minus_100": (
        lambda: li.Program.of(li.Graph("g", [L], {"y": li.cross_entropy(L[:2], np.array([1, -100]))})).verify(),
        li.ValueRangeError,
    ),
    "input_shape_of_text": (lambda: any_.input("x", "TB"), li.IRError),
    "input_shape_of_a_number": (lambda: any_.input("x", 3), li.IRError),
    "input_size": (lambda: li.input("x", (3, -1)), li.IRError),
    "input_dtype": (lambda: li.input("x", (3,), "f33"), li.IRError),
    "input_name": (lambda: any_.input(3, (3,)), li.IRError),
    "graph_of_a_value": (lambda: any_.Graph("g", [L], li.tanh(L)), li.IRError),
    "graph_of_no_outputs": (lambda: any_.Graph("g", [L], None), li.IRError),
    "graph_of_one_input": (lambda: any_.Graph("g", L, {"y": L}), li.IRError),
    "graph_of_inputs_by_name": (lambda: any_.Graph("g", {"l": L}, {"y": L}), li.IRError),
    "graph_of_a_layer": (lambda: any_.Graph("g", [X], {"y": li.lstm(X, W, R)}), li.IRError),
    "relu_of_a_layer": (lambda: any_.relu(li.lstm(X, W, R)), li.IRError),
    "dense_of_a_layer": (lambda: any_.dense(li.gru(X, GRU_W, GRU_R), ones(2, H)), li.IRError),
    "relu_of_a_batch_norm": (lambda: any_.relu(li.batch_norm(Z, *[ones(4)] * 4)), li.IRError),
    "a_value_and_a_layer": (lambda: Z + any_.lstm(X, W, R), li.IRError),
    "a_layer_and_a_number": (lambda: any_.lstm(X, W, R) + 1, li.IRError),
    "minus_a_layer": (lambda: -any_.lstm(X, W, R), TypeError),
    "an_array_and_a_layer": (lambda: ones(3) * any_.lstm(X, W, R), TypeError),
    "sum_of_a_list": (lambda: li.sum([Z, Z]), li.IRError),
    "broadcast_to_less_axes": (lambda: li.broadcast_to(X, (2, 2)), li.IRError),
    "squeeze_of_an_open_axis": (lambda: li.squeeze(X, 0), li.IRError),
    "one_new_axis_twice": (lambda: li.expand_dims(X, (1, 1)), li.IRError),
    "full_of_a_size": (lambda: li.full((T,), T), li.IRError),
    "full_of_a_value": (lambda: li.full((T,), Z), li.IRError),
    "constant_of_a_size": (lambda: li.constant(T), li.IRError),
    "relu_of_nothing": (lambda: li.relu(any_none), li.IRError),
    "weight_name_last": (lambda: any_.weight(ones(3), "w"), li.IRError),
    "weight_of_a_shape": (lambda: li.weight("w", (3, 4)), li.IRError),
    "constant_of_sizes": (lambda: li.constant([T, 3]), li.IRError),
    "target_gpu": (lambda: li.compile(G, target="gpu"), li.TargetError),
    "stateful_of_a_list": (lambda: any_.stateful(G, ["l"]), li.IRError),
    "stateful_the_other_way_round": (lambda: li.stateful(TWO_OUT, {"y": "l"}), li.IRError),
    "stateful_nearly": (lambda: li.stateful(LOSS, {"l": "los"}), li.IRError),
    "scan_cell_of_the_carry_alone": (lambda: any_.scan(lambda c: (c, c), Z, X), li.IRError),
    "scan_cell_without_the_step": (
        lambda: any_.scan(lambda c, x, w: (c, c), Z[0], Z, [Z], with_step=True), li.IRError
    ),
    "learning_rate_of_text": (lambda: li.adam("0.01"), li.IRError),
    "load_arrays": (lambda: li.load("te.npz"), li.PackageError),
    "load_a_text": (lambda: li.load("te.lir"), li.PackageError),
    "program_only_of_a_list": (lambda: any_.Program.of(G).only(["main"]), li.IRError),
    "int_of_a_size": (lambda: int(T), li.DimError),
    "range_of_a_size": (lambda: range(T), li.DimError),
    "zeros_of_numpy": (lambda: np.zeros((T, 3)), li.DimError),
    "size_divided": (lambda: li.input("x", ("T/2",)), li.IRError),
    "size_remainder": (lambda: li.input("x", ("T%2",)), li.IRError),
    "graph_name_last": (lambda: any_.Graph([L], {"y": L}, "g"), li.IRError),
    "graph_name_empty": (lambda: li.Graph("", [L], {"y": L}), li.IRError),
    "graph_output_misspelt": (lambda: G.output("z"), li.IRError),
    "graph_output_nearly": (lambda: LOSS.output("los"), li.IRError),
    "graph_replace_too_few": (lambda: TWO_OUT.replace([L]), li.IRError),
    "graph_replace_by_name": (lambda: any_.Graph("g", [L], {"y": L}).replace({"y": L}), li.IRError),
    "graph_replace_params": (lambda: any_.Graph("two_out", [L], {"y": L, "z": L}).replace([L, L], L), li.IRError),
    "program_name": (lambda: li.Program("a\nb", {"main": G}), li.IRError),
    "call_by_position": (lambda: any_.interpret(G, ones(2, O)), li.CallError),
    "call_by_positions": (lambda: any_.interpret(G, ones(2, O), ones(2, O)), li.CallError),
    "call_by_position_of_odd_names": (lambda: any_.interpret(TWO, ones(2)), li.CallError),
    "call_by_position_of_nothing": (lambda: any_.interpret(NONE, ones(2)), li.CallError),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name: str, golden: Golden) -> None:
    case, error = MISTAKES[name]
    with pytest.raises(error) as caught:
        case()
    assert isinstance(caught.value, li.LstmIrError)
    golden(f"mistakes/{name}.txt", AT.sub("N", str(caught.value)))


def test_every_golden_has_a_case() -> None:
    assert {p.stem for p in (GOLDEN / "mistakes").glob("*.txt")} == set(MISTAKES)


def test_a_shape_that_fits_is_no_mistake() -> None:
    """A first state may have the size of the bias, and a square matrix is not called transposed."""
    h0 = li.input("h0", (1, 4 * H))
    y = li.rnn(li.input("x", ("T", 1, I)), ones(4 * H, I), ones(4 * H, 4 * H), ones(4 * H), h0).y
    assert y.shape[1:] == (1, 4 * H)
    square = li.dense(X, ones(I, I))
    assert square.shape[-1] == I


def test_results_of_a_layer_are_a_tuple_still() -> None:
    y, *last = out = li.lstm(X, W, R)
    assert (*out, X) == out + (X,)  # noqa: RUF005  the operator is what is tested
    assert out == (y, *last)
    assert li.broadcast_to(li.size("T"), (T,)).shape == (T,)


def test_a_value_has_no_length() -> None:
    with pytest.raises(TypeError, match=re.escape("x.shape[0] is its first size")):
        len(any_x)


def test_operators_of_integers_are_those_of_numpy() -> None:
    i, ints = li.input("i", (4,), "i32"), np.array([-7, -3, 5, 8], np.int32)
    q, r = divmod(i, 3)
    q2, r2 = divmod(100, i)
    left: Any = 1
    graph = li.Graph("g", [i], {"q": q, "r": r, "q2": q2, "r2": r2, "s": i << 2, "l": left << abs(i), "p": +i})
    got = li.interpret(graph, i=ints)
    want = (*divmod(ints, 3), *divmod(100, ints), ints << 2, np.left_shift(1, abs(ints)), ints)
    for name, expected in zip(graph.output_names, want, strict=True):
        np.testing.assert_array_equal(got[name], expected, err_msg=name)


def test_executables_and_entries_refuse_positions_too() -> None:
    with li.compile(G) as exe:
        call: Any = exe
        for f in (call, call.entries["main"]):
            positions: list[tuple[Any, ...]] = [(ones(2, O),), (ones(2, O), 1), (None, 1), ([],)]
            for given in positions:
                with pytest.raises(li.CallError, match=re.escape("write (l=...)")):
                    f(*given)
        want = np.tanh(ones(2, O))
        np.testing.assert_allclose(call({"l": ones(2, O)})["y"], want, rtol=1e-6)
        np.testing.assert_allclose(call(None, l=ones(2, O))["y"], want, rtol=1e-6)
        with pytest.raises(li.CallError, match="given twice"):
            call({"l": ones(2, O)}, l=ones(2, O))


def test_the_mask_that_the_message_names_leaves_labels_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits, labels = rng.standard_normal((4, O)).astype("f4"), np.array([1, -100, 2, -100], "i4")
    with pytest.raises(li.ValueRangeError) as caught:
        li.interpret(LOSS, l=logits, labels=labels)
    named = re.search(r"left out by (mask=labels != -100)\)", str(caught.value))
    assert named is not None
    graph = eval(f'li.Graph("l", [L, labels], {{"loss": li.cross_entropy(L, labels, {named[1]})}})',
                 {"li": li, "L": L, "labels": LABELS})  # fmt: skip
    logp = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    want = -(logp[0, 1] + logp[2, 2]) / 2
    np.testing.assert_allclose(li.interpret(graph, l=logits, labels=labels)["loss"], want, rtol=1e-5)


@pytest.mark.parametrize("name", ["my-graph", "a b", "1a", "é", 'a"b', "a\\b", "x/y.z", "graph", "_"])
def test_a_graph_of_any_printable_name(name: str) -> None:
    graph = li.Graph(name, [L], {"y": li.tanh(L)})
    again = li.parse(str(graph))
    assert isinstance(again, li.Graph)
    assert (again.name, str(again)) == (name, str(graph))
    program = li.Program(name, {"a": graph, "b-c": graph})
    read = li.parse(str(program))
    assert isinstance(read, li.Program)
    assert (read.name, str(read)) == (name, str(program))


def test_a_graph_with_a_hyphen_compiles_and_travels(tmp_path: Any) -> None:
    graph = li.Graph("my-graph", [L], {"y": li.tanh(L)})
    with li.compile(graph) as exe:
        np.testing.assert_allclose(exe(l=ones(2, O))["y"], np.tanh(ones(2, O)), rtol=1e-6)
    with li.load(li.export(graph, tmp_path / "m.lirpkg", ["cpu:host"])) as exe:
        np.testing.assert_allclose(exe(l=ones(2, O))["y"], np.tanh(ones(2, O)), rtol=1e-6)
    loss = li.Graph("my-graph", [L], {"loss": li.sum(L * li.weight("w", 0.5))})
    assert "my-graph" in str(li.train_step(loss, "loss", li.sgd(0.1)))


@pytest.mark.parametrize(
    ("given", "kind"),
    [([[1.5, 2], [3, 4]], "f32"), ([[1, 2], [3, 4]], "i32"), ([True, False], "i1"), (2.5, "f32"), ([2**40], "i64")],
)
def test_weights_of_lists_have_the_dtype_of_constants(given: Any, kind: str) -> None:
    weight, constant = li.weight("w", given), li.constant(given)
    assert str(weight.dtype) == kind
    assert weight.type == constant.type
    np.testing.assert_array_equal(weight.node.attrs["value"].array, np.array(given))
    assert str(li.weight("w", [1, 2], "f64").dtype) == "f64"
    assert str(li.weight("w", np.ones(2)).dtype) == "f64"


def test_lists_that_are_no_array_are_refused() -> None:
    ragged = [[1.0], [2.0, 3.0]]
    with pytest.raises(li.IRError, match="expected an array"):
        li.weight("w", ragged)
    with pytest.raises(li.IRError, match="expected an array"):
        li.constant(ragged)
