"""What decompose makes of lstm, gru and rnn: one loop per layer, in the form the kernels take."""

from typing import Any

import layer_cases as cases
import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ir.graph import Node
from lstm_ir.passes.base import Notes
from lstm_ir.passes.decompose import Decompose, decompose

OPS = ["lstm", "gru", "rnn"]


def layer(op: str, name: str, save: bool = False) -> tuple[li.Graph, dict[str, Any]]:
    """The graph of a case with its output y alone, or with all that is saved."""
    operands, attrs = cases.build(op, name)
    graph = cases.graph(op, operands, attrs)
    if not save:
        node = graph.output("y").node
        inputs = dict(zip(graph.input_names, graph.params, strict=True))
        given = {k: inputs.get(k) for k in operands}
        graph = li.Graph(op, graph.params, {"y": getattr(li, op)(**given, **attrs).y})
        assert node.op.name == op
    return graph, cases.arrays(operands)


def loops(graph: li.Graph) -> list[Node]:
    return [n for n in decompose(graph).nodes if n.op.name == "scan"]


def names(body: li.Graph) -> list[str]:
    return [n.op.name for n in body.nodes]


@pytest.mark.parametrize("op", OPS)
def test_one_direction_has_two_dimensional_products_of_rows(op: str) -> None:
    (loop,) = loops(layer(op, "plain")[0])
    body = loop.attrs["body"]
    dots = [n for n in body.nodes if n.op.name == "dot_general"]
    assert len(dots) == 2
    for n in dots:
        assert [v.rank for v in n.inputs] == [2, 2]
        assert n.attrs["lhs_contracting_dimensions"] == n.attrs["rhs_contracting_dimensions"] == (1,)
    assert not {"transpose", "reshape", "select", "compare"} & set(names(body))
    assert set(loop.attrs["reverse"]) == {False}


@pytest.mark.parametrize("op", OPS)
def test_two_directions_are_one_loop_without_flipped_copies(op: str) -> None:
    graph, _ = layer(op, "bidirectional")
    (loop,) = loops(graph)
    assert loop.attrs["reverse"] == (False, True, False, True)
    for n in loop.attrs["body"].nodes:
        if n.op.name == "dot_general":
            assert [v.rank for v in n.inputs] == [3, 3]
            assert n.attrs["lhs_batching_dimensions"] == n.attrs["rhs_batching_dimensions"] == (0,)
    assert "reverse" not in names(decompose(graph))


@pytest.mark.parametrize("op", OPS)
def test_reverse_is_a_flag(op: str) -> None:
    graph, _ = layer(op, "reverse")
    (loop,) = loops(graph)
    assert set(loop.attrs["reverse"]) == {True}
    assert "reverse" not in names(decompose(graph))


@pytest.mark.parametrize("op", OPS)
def test_masks_are_selects_and_only_where_asked(op: str) -> None:
    (loop,) = loops(layer(op, "lengths")[0])
    assert "select" in names(loop.attrs["body"])
    assert loop.arg("count") is None
    (loop,) = loops(layer(op, "count")[0])
    assert "select" not in names(loop.attrs["body"])
    assert loop.arg("count") is not None


@pytest.mark.parametrize("op", OPS)
def test_what_is_saved_comes_from_the_same_loop(op: str) -> None:
    assert len(loops(layer(op, "plain", save=True)[0])) == 1


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", ["states+lengths", "bidirectional+states"])
def test_a_single_step_from_a_state_is_a_loop(op: str, name: str) -> None:
    """On CPUs it is a kernel then: a stream of (1,256) took 51 us with it, 79 without."""
    name = name if name in cases.names(op) else "+".join(reversed(name.split("+")))
    operands, attrs = cases.build(op, name, sizes=(1, 3, 5, 7, 4))
    graph = cases.graph(op, operands, attrs, dynamic=False)
    lowered = decompose(graph, single_steps=True)
    (loop,) = (n for n in lowered.nodes if n.op.name == "scan")
    assert loop.attrs["length"] == 1
    assert "scan" not in names(decompose(graph))
    want, got = (li.interpret(g, cases.arrays(operands)) for g in (graph, lowered))
    for k in want:
        np.testing.assert_allclose(got[k], want[k], atol=1e-13)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", ["plain", "bidirectional"])
def test_a_single_step_from_zeros_is_written_out(op: str, name: str) -> None:
    operands, attrs = cases.build(op, name, sizes=(1, 3, 5, 7, 4))
    graph = cases.graph(op, operands, attrs, dynamic=False)
    lowered = decompose(graph)
    assert "scan" not in names(lowered)
    want, got = (li.interpret(g, cases.arrays(operands)) for g in (graph, lowered))
    for k in want:
        np.testing.assert_allclose(got[k], want[k], atol=1e-13)


def test_a_loop_of_one_step_in_a_body_is_written_out() -> None:
    """One of the caller's own, with rows, constants and the step's number."""
    x, w = li.input("x", ("T", 1, 5)), li.input("w", (5,))

    def cell(h: Any, x: Any, w: Any) -> Any:
        def inner(c: Any, row: Any, step: Any) -> Any:
            return c + row * w, row + li.convert(step, "f32")

        return li.scan(inner, h, x, with_step=True)

    h, ys = li.scan(cell, li.zeros((5,)), x, (w,))
    graph = li.Graph("g", [x, w], {"ys": ys, "h": h})
    (loop,) = loops(graph)
    assert "scan" not in names(loop.attrs["body"])
    rng = np.random.default_rng(3)
    given = {"x": rng.normal(size=(4, 1, 5)).astype(np.float32), "w": rng.normal(size=5).astype(np.float32)}
    got = li.interpret(decompose(graph), given)
    np.testing.assert_allclose(got["h"], (given["x"][:, 0] * given["w"]).sum(0), atol=1e-6)
    np.testing.assert_allclose(got["ys"], given["x"], atol=1e-6)


def test_inside_a_body() -> None:
    """A layer in the body of a loop is decomposed too; the body stays closed."""
    x, w, u = li.input("x", ("T", 2, 5)), li.input("w", (28, 5)), li.input("u", (28, 7))

    def cell(h: Any, x: Any, w: Any, u: Any) -> Any:
        y = li.lstm(li.expand_dims(x, 0), w, u, None, h).h_n[0]
        return y, y

    h, ys = li.scan(cell, li.zeros((2, 7)), x, (w, u))
    graph = li.Graph("g", [x, w, u], {"ys": ys, "h": h})
    (loop,) = loops(graph)
    assert not {"lstm", "scan"} & set(names(loop.attrs["body"]))
    rng = np.random.default_rng(3)
    given = {"x": rng.normal(size=(4, 2, 5)), "w": rng.normal(size=(28, 5)), "u": rng.normal(size=(28, 7))}
    given = {k: v.astype(np.float32) for k, v in given.items()}
    want, got = (li.interpret(g, given) for g in (graph, decompose(graph)))
    np.testing.assert_allclose(got["ys"], want["ys"], atol=1e-6)


def test_the_text_does_not_grow_with_time() -> None:
    sizes = []
    for T in (10, 10_000):
        x = li.input("x", (T, 2, 5))
        y = li.lstm(x, li.input("w", (28, 5)), u := li.input("u", (28, 7))).y
        w = y.node.inputs[1].node.inputs[0]
        sizes.append(len(str(decompose(li.Graph("g", [x, w, u], {"y": y}))).splitlines()))
    assert sizes[0] == sizes[1]


def test_idle_on_a_graph_without_layers() -> None:
    x = li.input("x", (3, 4))
    graph = li.Graph("g", [x], {"y": li.tanh(x)})
    assert Decompose().run(graph, Notes(), None) is graph
    lowered = decompose(layer("lstm", "plain")[0])
    assert decompose(lowered) is lowered


def test_nodes_keep_the_line() -> None:
    graph, _ = layer("lstm", "plain")
    (loop,) = loops(graph)
    assert "decompose" in loop.loc.via
    assert loop.loc.file == __file__
    assert all(n.loc.file == __file__ for n in loop.attrs["body"].nodes)
