"""Files that ask for more than there is: sizes, windows, lists, walks without end are refused, or stay as they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need

import lstm_ir as li
from lstm_ir.importers import known
from lstm_ir.importers.onnx import model as onnx_model
from lstm_ir.importers.onnx.table import TABLE


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir")


def f4(*values: float) -> Any:
    return np.array(values, "f4")


def of(op: str, inputs: list[str], arrays: dict[str, Any], x: Any = (["T"], "f4"), **attrs: Any) -> Any:
    """A model of one node over x and arrays."""
    opset = 23 if op == "Attention" else 22
    return om.model([om.node(op, inputs, ["y"], **attrs)], {"x": x}, ["y"], arrays, opset)


def _range(start: float, limit: float, delta: float) -> Any:
    arrays = {n: np.float32(v) for n, v in (("a", start), ("b", limit), ("c", delta))}
    return om.model([om.node("Range", list(arrays), ["y"])], {}, ["y"], arrays)


def _attention() -> Any:
    rows = ([1, 1, 2, 4], "f4")
    node = om.node("Attention", ["x", "x", "x", "mask"], ["y"])
    return om.model([node], {"x": rows}, ["y"], {"mask": np.float32(0)}, 23)


def _scattered() -> Any:
    operands = {"at": np.int64(0), "new": np.float32(2)}
    return of("ScatterND", ["x", *operands], operands, reduction="mul")


IMAGE = ([1, 1, "T"], "f4")
WHOLE = 2**30
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a range without an end": (lambda: _range(0, math.inf, 1), r"Range\): start is 0\.0, limit inf, delta 1\.0"),
    "a range from nowhere": (lambda: _range(math.nan, 3, 1), r"Range\): start is nan"),
    "a range by nothing": (lambda: _range(0, 3, math.nan), r"Range\): start is 0\.0, limit 3\.0, delta nan"),
    "a convolution that stands": (
        lambda: of("Conv", ["x", "w"], {"w": np.ones((1, 1, 3), "f4")}, IMAGE, auto_pad="SAME_UPPER", strides=[0]),
        r"Conv\): strides of a window are \[0\]"),
    "a convolution without end": (
        lambda: of("Conv", ["x", "w"], {"w": np.ones((1, 1, 2), "f4")}, IMAGE, auto_pad="SAME_LOWER",
                   strides=[2**42], dilations=[2**41]),
        r"Conv\): a window of 2 taps, 2199023255552 places apart, reaches farther than"),
    "a convolution that skips": (
        lambda: of("Conv", ["x", "w"], {"w": np.ones((1, 1, 2), "f4")}, IMAGE, auto_pad="SAME_LOWER",
                   strides=[2**20], dilations=[2**19]),
        r"Conv\): padding 'same' of a window of 524289 places, each 1048576th place, over the open size T"),
    "a pool that stands": (
        lambda: of("MaxPool", ["x"], {}, IMAGE, kernel_shape=[2], auto_pad="SAME_UPPER", strides=[0]),
        r"MaxPool\): strides of a window are \[0\]"),
    "a pool without taps": (lambda: of("MaxPool", ["x"], {}, IMAGE, kernel_shape=[0]), r"taps of a window are \[0\]"),
    "the largest of many": (
        lambda: of("MaxPool", ["x"], {}, IMAGE, kernel_shape=[10**6]),
        r"MaxPool\): a pool of 1000000 taps is not taken"),
    "the mean of many": (
        lambda: of("AveragePool", ["x"], {}, IMAGE, kernel_shape=[10**6], auto_pad="SAME_UPPER", strides=[2]),
        r"AveragePool\): a pool of 1000000 taps is not taken"),
    "a product at no place": (_scattered, r"ScatterND\): indices are i64\[\]"),
    "a mask without keys": (_attention, r"Attention\): the mask is f32\[\], without an axis of keys"),
    "more parts than results": (
        lambda: of("Split", ["x"], {}, ([WHOLE], "f4"), num_outputs=2**40),
        r"Split\): num_outputs is 1099511627776, and there are 1 results"),
    "many parts": (
        lambda: of("SplitToSequence", ["x", "two"], {"two": np.int64(2)}, ([WHOLE], "f4")),
        r"SplitToSequence\): a list of 536870912 elements, of which each is a value: at most 65536"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    made, why = REFUSED[name]
    with pytest.raises(li.ModelError, match=why):
        li.from_onnx(made())


def test_elements_of_a_long_sequence() -> None:
    """A sequence of rows stands for as many as there are; one of them may be read, and none taken out."""
    rows = om.node("SplitToSequence", ["x"], ["s"], keepdims=0)
    arrays = {"place": np.int64(-1)}
    read = om.model([rows, om.node("SequenceAt", ["s", "place"], ["y"])], {"x": ([WHOLE, 2], "f4")}, ["y"], arrays)
    assert li.from_onnx(read).output("y").shape == (2,)
    taken = om.model(
        [rows, om.node("SequenceErase", ["s"], ["t"]), om.node("SequenceAt", ["t", "place"], ["y"])],
        {"x": ([WHOLE, 2], "f4")}, ["y"], arrays,
    )  # fmt: skip
    with pytest.raises(li.ModelError, match=r"SequenceErase\): a list of 1073741824 elements"):
        li.from_onnx(taken)


def test_parts_of_given_sizes(rng: np.random.Generator) -> None:
    """Where each part ends follows from those before it."""
    sizes = np.array([2, 0, 3, 1])
    nodes = [om.node("SplitToSequence", ["x", "n"], ["s"]), om.node("SequenceAt", ["s", "two"], ["y"])]
    made = om.model(nodes, {"x": ([6, 2], "f4")}, ["y"], {"n": sizes, "two": np.int64(2)})
    x = rng.normal(size=(6, 2)).astype("f4")
    np.testing.assert_array_equal(li.interpret(li.from_onnx(made), x=x)["y"], x[2:5])


def test_weights_that_are_missing_take_no_memory() -> None:
    """The library makes zeros of the shape that a file states."""
    made = om.model([om.node("Add", ["x", "w"], ["y"])], {"x": ([2], "f4")}, ["y"], {"w": np.ones(2, "f4")})
    (w,) = made.graph.initializer
    w.ClearField("raw_data")
    w.dims[:] = [2**40]
    with pytest.raises(li.ModelError, match=r"w \(initializer\): its data is missing, and its shape is"):
        li.from_onnx(made.SerializeToString())


@pytest.mark.parametrize("error", [MemoryError(), IndexError("tuple index out of range"), OverflowError("inf")])
def test_what_a_handler_raises(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of a damaged file may have anything anywhere."""

    def broken(_: Any) -> Any:
        raise error

    entry = TABLE["", "Tanh"]
    monkeypatch.setitem(TABLE._entries, ("", "Tanh"), replace(entry, build=broken))
    why = rf"the_Tanh \(Tanh\): an argument has a wrong type or value: {str(error) or 'MemoryError'}"
    with pytest.raises(li.ModelError, match=why):
        li.from_onnx(of("Tanh", ["x"], {}))


# folding ----------------------------------------------------------------------------------------


def _sums(count: int) -> Any:
    """x plus literals of 100 integers, which are added up before: so many sums."""
    nodes = [om.node("Add", [f"c{k}" if k else "c", "c"], [f"c{k + 1}"], name=f"sum{k}") for k in range(count)]
    nodes.append(om.node("Add", ["x", f"c{count}"], ["y"]))
    return om.model(nodes, {"x": ([100], "i8")}, ["y"], {"c": np.arange(100)})


@pytest.mark.parametrize(("limit", "most"), [(None, None), ("MAX_WORK", 1000), ("MAX_BYTES", 2000)])
def test_what_is_computed_at_import_has_an_end(
    limit: str | None, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past it values are computed at each call."""
    if limit is not None:
        monkeypatch.setattr(known, limit, most)
    graph = li.from_onnx(_sums(9))
    assert sum(n.op.name == "add" for n in graph.nodes) == {None: 1, "MAX_WORK": 7, "MAX_BYTES": 8}[limit]
    np.testing.assert_array_equal(li.interpret(graph, x=np.ones(100, "i8"))["y"], 1 + 10 * np.arange(100))


def test_a_condition_past_that_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    then, other = (om.graph([om.node(op, ["x"], [op])], {}, [op]) for op in ("Neg", "Abs"))
    nodes = [
        om.node("ReduceSum", ["c"], ["total"], keepdims=0), om.node("Less", ["total", "five"], ["is"]),
        om.node("If", ["is"], ["y"], then_branch=then, else_branch=other),
    ]  # fmt: skip
    made = om.model(nodes, {"x": ([2], "f4")}, ["y"], {"c": np.arange(100), "five": np.int64(5)})
    assert li.interpret(li.from_onnx(made), x=f4(1, -2))["y"].tolist() == [1, 2]
    monkeypatch.setattr(known, "MAX_WORK", 50)
    with pytest.raises(li.ModelError, match=r"the_If \(If\): its condition depends on"):
        li.from_onnx(made)


# names that are one -----------------------------------------------------------------------------


def test_names_that_are_one_cost_few_walks(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """A Concat of many inputs, each with names of its own: all become the first one's at once."""
    walks: list[Any] = []

    class Counted(onnx_model.Walk):
        def run(self) -> None:
            walks.append(self)
            super().run()

    monkeypatch.setattr(onnx_model, "Walk", Counted)
    names = [f"x{k}" for k in range(40)]
    inputs: dict[str, Any] = {n: ([f"T{k}", f"C{k}", 2], "f4") for k, n in enumerate(names)}
    made = om.model([om.node("Concat", names, ["y"], axis=0)], inputs, ["y"])
    graph = li.from_onnx(made)
    assert len(walks) <= 3
    arrays = {n: rng.normal(size=(k % 3, 5, 2)).astype("f4") for k, n in enumerate(names)}
    np.testing.assert_array_equal(li.interpret(graph, arrays)["y"], np.concatenate(list(arrays.values())))
    with pytest.raises(li.CallError):
        li.interpret(graph, {**arrays, "x7": np.zeros((1, 4, 2), "f4")})


def test_names_that_are_one_in_a_circle(rng: np.random.Generator) -> None:
    """A name that stands in several pairs: what is left to say, the next walk finds."""
    names = ["x0", "x1", "x2", "x3"]
    sizes = ["A", "B", "A", "C"], ["B", "A", "C", "A"]
    inputs: dict[str, Any] = {n: ([1, a, b], "f4") for n, a, b in zip(names, *sizes, strict=True)}
    graph = li.from_onnx(om.model([om.node("Concat", names, ["y"], axis=0)], inputs, ["y"]))
    arrays = {n: rng.normal(size=(1, 3, 3)).astype("f4") for n in names}
    np.testing.assert_array_equal(li.interpret(graph, arrays)["y"], np.concatenate(list(arrays.values())))
