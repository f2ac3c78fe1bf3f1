"""Sequences of ONNX, in loops and outside of them, beside onnxruntime; and loops that torch.jit.script writes."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need
from test_onnx_loops import BOOL, INT, ROW, Info, same

import lstm_ir as li

X: Info = (["T", "B", 4], "f4")


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir", "onnxruntime")


def number(name: str, value: Any) -> Any:
    return om.node("Constant", [], [name], name=f"of_{name}", value=om.tensor(np.array(value)))


def drawn(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype("f4")


# outside of loops -------------------------------------------------------------------------------

ABC: dict[str, Info] = {"a": (["B", 4], "f4"), "b": (["B", 4], "f4"), "c": (["B", 4], "f4")}
MADE = ("SequenceConstruct", ["a", "b", "c"], ["s"])
CASES: dict[str, list[tuple[Any, ...]]] = {
    "joined": [("ConcatFromSequence", ["s"], ["y"], {"axis": 1})],
    "joined along a new axis": [("ConcatFromSequence", ["s"], ["y"], {"axis": -1, "new_axis": 1})],
    "an element": [("SequenceAt", ["s", "two"], ["y"])],
    "an element from the end": [("SequenceAt", ["s", "minus"], ["y"])],
    "inserted": [("SequenceInsert", ["s", "b"], ["t"]), ("ConcatFromSequence", ["t"], ["y"], {"axis": 0})],
    "placed": [("SequenceInsert", ["s", "c", "one"], ["t"]), ("ConcatFromSequence", ["t"], ["y"], {"axis": 0})],
    "erased": [("SequenceErase", ["s", "one"], ["t"]), ("ConcatFromSequence", ["t"], ["y"], {"axis": 0})],
    "the last erased": [("SequenceErase", ["s"], ["t"]), ("ConcatFromSequence", ["t"], ["y"], {"axis": 0})],
    "passed on": [("Identity", ["s"], ["t"]), ("ConcatFromSequence", ["t"], ["y"], {"axis": 0})],
    "how many": [("SequenceLength", ["s"], ["y"])],
}  # fmt: skip


def nodes_of(case: list[tuple[Any, ...]]) -> list[Any]:
    return [om.node(op, i, o, name=f"n{k}", **(more[0] if more else {})) for k, (op, i, o, *more) in enumerate(case)]


@pytest.mark.parametrize("name", CASES)
def test_outside_of_loops(name: str, rng: np.random.Generator) -> None:
    numbers = [number("two", 2), number("one", 1), number("minus", -3)]
    made = om.model([*numbers, om.node(*MADE), *nodes_of(CASES[name])], ABC, ["y"])
    same(made, {n: drawn(rng, 3, 4) for n in "abc"})


SPLITS: dict[str, tuple[Any, dict[str, Any]]] = {
    "rows": (None, {"axis": 0}),
    "rows without their axis": (None, {"axis": 0, "keepdims": 0}),
    "columns": (None, {"axis": 2, "keepdims": 0}),
    "rows by a size": (1, {"axis": 0}),
    "rows by a size, without their axis": (1, {"axis": 0, "keepdims": 0}),
    "parts of a size": (3, {"axis": 2}),
    "parts of sizes": ([1, 3], {"axis": -1}),
}


@pytest.mark.parametrize("name", SPLITS)
def test_splits(name: str, rng: np.random.Generator) -> None:
    sizes, attrs = SPLITS[name]
    first = [] if sizes is None else [number("sizes", sizes)]
    split = om.node("SplitToSequence", ["x", "sizes"] if first else ["x"], ["s"], **attrs)
    back = om.node("ConcatFromSequence", ["s"], ["y"], axis=attrs["axis"], new_axis=1 - attrs.get("keepdims", 1))
    picked = [number("at", 1), om.node("SequenceAt", ["s", "at"], ["z"])]
    made = om.model([*first, split, back, *picked], {"x": X}, ["y", "z"])
    for T in (5, 2):
        same(made, {"x": drawn(rng, T, 3, 4)})


# in loops ---------------------------------------------------------------------------------------


def appending(more: list[Any] | None = None, states: dict[str, Any] | None = None) -> Any:
    """h = tanh(h + x[i]); h goes to the end of the sequence s."""
    nodes = [
        om.node("Identity", ["go"], ["on"]), om.node("Gather", ["x", "i"], ["row"], axis=0),
        om.node("Add", ["h", "row"], ["sum"]), om.node("Tanh", ["sum"], ["new"]),
        *([om.node("SequenceInsert", ["s", "new"], ["longer"])] if more is None else more),
    ]  # fmt: skip
    from onnx import TensorProto, helper

    body = om.graph(nodes, {"i": INT, "go": BOOL, "h": ROW}, ["on", "new", "longer"])
    body.input.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None))
    typed = om.typed(body, on=BOOL, new=ROW)
    typed.output.append(helper.make_tensor_sequence_value_info("longer", TensorProto.FLOAT, None))
    return typed


def looped(body: Any, start: list[Any], after: list[Any], outputs: list[str]) -> Any:
    steps = [
        om.node("Shape", ["x"], ["steps"], start=0, end=1), om.node("Squeeze", ["steps"], ["T"]),
        number("true", True), *start,
    ]  # fmt: skip
    loop = om.node("Loop", ["T", "true", "h0", "s0"], ["h", "s"], body=body)
    return om.model([*steps, loop, *after], {"x": X, "h0": ROW}, outputs)


STACKED = ("ConcatFromSequence", ["s"], ["y"], {"axis": 0, "new_axis": 1})


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("new", [False, True])
def test_a_loop_that_appends(axis: int, new: bool, rng: np.random.Generator) -> None:
    if axis == 2 and not new:
        axis = -1
    after = [om.node("ConcatFromSequence", ["s"], ["y"], axis=axis, new_axis=int(new))]
    made = looped(appending(), [om.node("SequenceEmpty", [], ["s0"])], after, ["y", "h"])
    for T in (5, 1):
        g = same(made, {"x": drawn(rng, T, 3, 4), "h0": drawn(rng, 3, 4)}, compiled=axis == 0)
    assert [n.op.name for n in g.nodes].count("scan") == 1


def test_a_sequence_that_has_elements_before_the_loop(rng: np.random.Generator) -> None:
    made = looped(appending(), [om.node("SequenceConstruct", ["h0", "h0"], ["s0"])], nodes_of([STACKED]), ["y", "h"])
    same(made, {"x": drawn(rng, 5, 3, 4), "h0": drawn(rng, 3, 4)})


def test_how_long_a_sequence_is_after_the_loop(rng: np.random.Generator) -> None:
    after = [om.node("SequenceLength", ["s"], ["n"]), *nodes_of([STACKED])]
    made = looped(appending(), [om.node("SequenceEmpty", [], ["s0"])], after, ["n", "y"])
    same(made, {"x": drawn(rng, 5, 3, 4), "h0": drawn(rng, 3, 4)})


def test_rows_of_a_sequence_are_read_at_the_step(rng: np.random.Generator) -> None:
    """`for row in x.unbind(0)`: the loop scans the rows."""
    nodes = [
        om.node("Identity", ["go"], ["on"]), om.node("SequenceAt", ["rows", "i"], ["row"]),
        om.node("Add", ["h", "row"], ["sum"]), om.node("Tanh", ["sum"], ["new"]),
        om.node("Identity", ["new"], ["y"], name="stacked"),
    ]  # fmt: skip
    body = om.graph(nodes, {"i": INT, "go": BOOL, "h": ROW}, ["on", "new", "y"])
    first = [
        om.node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=0), om.node("SequenceLength", ["rows"], ["T"]),
        number("true", True),
    ]  # fmt: skip
    loop = om.node("Loop", ["T", "true", "h0"], ["h", "ys"], body=om.typed(body, on=BOOL, new=ROW, y=ROW))
    made = om.model([*first, loop], {"x": X, "h0": ROW}, ["h", "ys"])
    g = same(made, {"x": drawn(rng, 5, 3, 4), "h0": drawn(rng, 3, 4)}, compiled=True)
    (scan,) = (n for n in g.nodes if n.op.name == "scan")
    assert len(scan.arg("xs")) == 1  # type: ignore[arg-type]
    assert "gather" not in str(scan.attrs["body"])


def refused(made: Any, said: str) -> None:
    with pytest.raises(li.ModelError, match=said):
        li.from_onnx(made)


def test_what_is_refused() -> None:
    empty = [om.node("SequenceEmpty", [], ["s0"])]
    two = [
        om.node("SequenceInsert", ["s", "new"], ["one"], name="first"),
        om.node("SequenceInsert", ["one", "new"], ["longer"], name="second"),
    ]
    refused(looped(appending(two), empty, nodes_of([STACKED]), ["y"]), "two elements into one sequence")
    read = [
        om.node("SequenceAt", ["s", "i"], ["old"]), om.node("SequenceInsert", ["s", "old"], ["longer"])
    ]  # fmt: skip
    refused(looped(appending(read), empty, nodes_of([STACKED]), ["y"]), "reads a sequence that it makes longer")
    made = om.model([om.node(*MADE)], ABC, ["s"])
    refused(made, r"s \(output\): it is a sequence")
    made = om.model([om.node(*MADE), om.node("Neg", ["s"], ["y"])], ABC, ["y"])
    refused(made, "operand 0 is a sequence, not a tensor")
    made = om.model([om.node("SequenceLength", ["a"], ["y"])], ABC, ["y"])
    refused(made, "operand 0 is a tensor, not a sequence")


@pytest.mark.filterwarnings("ignore")
def test_a_loop_of_pytorch_that_appends(rng: np.random.Generator) -> None:
    """torch.jit.script keeps the loop; the exporter writes SequenceInsert and ConcatFromSequence."""
    need("torch")
    import torch

    class Steps(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.into, self.over = torch.nn.Linear(4, 5), torch.nn.Linear(5, 5)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            h = torch.zeros(x.size(1), 5)
            outputs: list[torch.Tensor] = []
            for row in x.unbind(0):
                h = torch.tanh(self.into(row) + self.over(h))
                outputs.append(h)
            return torch.stack(outputs, 1), h

    torch.manual_seed(4)
    module = Steps().eval()
    stream, x = io.BytesIO(), drawn(rng, 6, 3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            torch.jit.script(module), (torch.tensor(x),), stream, input_names=["x"], output_names=["y", "h"],
            dynamic_axes={"x": {0: "T", 1: "B"}}, dynamo=False, opset_version=17,
        )  # fmt: skip
    assert b"SequenceInsert" in stream.getvalue()
    g = li.from_onnx(stream.getvalue())
    for T, B in ((6, 3), (1, 2), (9, 1)):
        given = drawn(rng, T, B, 4)
        want = [v.detach().numpy() for v in module(torch.tensor(given))]
        for got, w in zip(li.interpret(g, x=given).values(), want, strict=True):
            np.testing.assert_allclose(got, w, atol=2e-6)
    assert [n.op.name for n in g.nodes].count("scan") == 1
