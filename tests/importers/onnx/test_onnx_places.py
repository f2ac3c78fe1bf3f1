"""Places that a step of a Loop computes of its own: what looks like an index from the end is not always one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need

import lstm_ir as li

need("onnx")  # the graphs below are made of its nodes

INT: Any = ([], "i8")
BOOL: Any = ([], "?")
ROW: Any = ([3], "f4")


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx_ir", "onnxruntime")


def reading(place: list[Any], going: Any = None) -> Any:
    """A body whose row is x at `j`, which the nodes `place` make of the step i."""
    goes = om.node("Identity", ["go"], ["on"]) if going is None else going
    nodes = [goes, *place, om.node("Gather", ["x", "j"], ["row"], axis=0)]
    return om.typed(om.graph(nodes, {"i": INT, "go": BOOL}, ["on", "row"]), on=BOOL, row=ROW)


def loop(body: Any, rows: Any = 8, steps: int | None = 8) -> Any:
    """The body over x [rows, 3], which stacks what each step reads; without `steps` there are as many as rows."""
    nodes = [om.node("Shape", ["x"], ["n"], start=0, end=1), om.node("Squeeze", ["n"], ["T"])]
    count = "T" if steps is None else "M"
    nodes.append(om.node("Loop", [count, ""], ["ys"], body=body))
    numbers = {"zero": 0, "one": 1, "four": 4, "M": steps or 0}
    return om.model(nodes, {"x": ([rows, 3], "f4")}, ["ys"], {n: np.int64(k) for n, k in numbers.items()})


def moved(below: str, by: str) -> list[Any]:
    """j = i + `by` where i < `below`, else i."""
    return [
        om.node("Less", ["i", below], ["less"]), om.node("Add", ["i", by], ["more"], name="more"),
        om.node("Where", ["less", "more", "i"], ["j"]),
    ]  # fmt: skip


def same(made: Any, x: Any) -> li.Graph:
    g: li.Graph = li.from_onnx(made)
    (want,) = om.run(made, {"x": x})
    (got,) = li.interpret(g, x=x).values()
    np.testing.assert_array_equal(got, want)
    return g


def scanned(g: li.Graph) -> int:
    """How many tensors the loop goes over row by row."""
    (found,) = (n for n in g.nodes if n.op.name == "scan")
    rows = found.arg("xs")
    assert isinstance(rows, tuple)
    return len(rows)


X = np.arange(24, dtype="f4").reshape(8, 3)


def test_rows_that_are_read_twice() -> None:
    """Rows 4, 5, 6, 7, 4, 5, 6, 7: it compares with 4 and adds 4, where an index from the end has 0 and the size."""
    g = same(loop(reading(moved("four", "four"))), X)
    (got,) = li.interpret(g, x=X).values()
    np.testing.assert_array_equal(got, X[[4, 5, 6, 7, 4, 5, 6, 7]])
    assert scanned(g) == 0


@pytest.mark.parametrize(("below", "by"), [("zero", "four"), ("four", "zero"), ("zero", "one")])
def test_numbers_that_are_almost_those_of_an_index(below: str, by: str) -> None:
    same(loop(reading(moved(below, by))), X)


def test_an_index_that_is_below_0_for_some_steps() -> None:
    """i - 4, which from the end is i + 4 where it is below 0: rows 4 to 7, then 0 to 3."""
    wrapped = [
        om.node("Sub", ["i", "four"], ["k"]), om.node("Less", ["k", "zero"], ["less"]),
        om.node("Add", ["k", "T"], ["more"], name="more"), om.node("Where", ["less", "more", "k"], ["j"]),
    ]  # fmt: skip
    same(loop(reading(wrapped), "rows", None), X)


def test_an_index_from_the_end_is_a_row_of_each_step() -> None:
    """i - 0 where it is not below 0, else i + T: the step's own row."""
    g = same(loop(reading(moved("zero", "T")), "rows", None), X)
    assert scanned(g) == 1


def test_a_range_whose_start_is_moved() -> None:
    """x[i + 4 : i + 1] for i below 4: how many rows it has depends on i."""
    part = [
        *moved("four", "four"), om.node("Add", ["i", "one"], ["end"], name="end"),
        om.node("Unsqueeze", ["j", "axis"], ["from"], name="from"),
        om.node("Unsqueeze", ["end", "axis"], ["to"], name="to"),
        om.node("Slice", ["x", "from", "to", "axis"], ["part"]),
        om.node("ReduceSum", ["part", "axis"], ["row"], keepdims=0),
    ]  # fmt: skip
    body = om.graph([om.node("Identity", ["go"], ["on"]), *part], {"i": INT, "go": BOOL}, ["on", "row"])
    made = loop(om.typed(body, on=BOOL, row=ROW))
    made.graph.initializer.append(om.tensor(np.array([0]), "axis"))
    with pytest.raises(li.ModelError, match=r"Slice\): how many places a range has depends on values that only a call"):
        li.from_onnx(made)


def test_a_sum_of_sums_takes_no_time() -> None:
    """i + i + …, forty deep: 2^40 ways lead down."""
    deep = [om.node("Add", [f"i{k}", f"i{k}"], [f"i{k + 1}"], name=f"d{k}") for k in range(40)]
    nodes = [om.node("Identity", ["i"], ["i0"], name="first"), *deep, om.node("Mul", ["i40", "zero"], ["j"])]
    same(loop(reading(nodes)), X)


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_condition_that_is_false(steps: int) -> None:
    """The first step is the last."""
    going = om.node("Constant", [], ["on"], value=om.tensor(np.array(False)))
    same(loop(reading([om.node("Identity", ["i"], ["j"])], going), steps=steps), X)


def test_a_condition_that_is_false_over_an_open_size() -> None:
    going = om.node("Constant", [], ["on"], value=om.tensor(np.array(False)))
    made = loop(reading([om.node("Identity", ["i"], ["j"])], going), "rows", None)
    with pytest.raises(li.ModelError, match=r"Loop\): the number of its steps cannot be decided from the sizes"):
        li.from_onnx(made)
    g = li.from_onnx(made, sizes={"rows": "rows+1"})
    np.testing.assert_array_equal(li.interpret(g, x=X)["ys"], X[:1])
