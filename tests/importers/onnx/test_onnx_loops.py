"""Loop: rows read at the place of the step, conditions that count, and Scan of operator set 8; beside onnxruntime."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import onnx_models as om
import pytest
from device import need

import lstm_ir as li

need("onnx")  # the graphs below are made of its nodes

Info = tuple[list[Any], str]
INT: Info = ([], "i8")
BOOL: Info = ([], "?")
ROW: Info = (["B", 4], "f4")


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("onnx", "onnx_ir", "onnxruntime")


def same(made: Any, fed: dict[str, Any], compiled: bool = False, **options: Any) -> li.Graph:
    g: li.Graph = li.from_onnx(made, **options)
    given = {n: fed[n] for n in g.input_names}
    want = om.run(made, fed)
    sides = [li.interpret(g, given)]
    if compiled:
        with li.compile(g) as exe:
            sides.append(exe(**given))
    for side in sides:
        for got, w in zip(side.values(), want, strict=True):
            assert (got.shape, got.dtype) == (w.shape, w.dtype)
            np.testing.assert_allclose(got, w, atol=2e-6)
    return g


def rows_of(loop: li.Node) -> tuple[li.Value, ...]:
    """What a scan goes over."""
    found = loop.arg("xs")
    assert isinstance(found, tuple)
    return found


def reading(*place: Any) -> Any:
    """h = tanh(h + row), with the rows that the nodes `place` read as `row`; the step's h is stacked."""
    nodes = [
        om.node("Identity", ["go"], ["on"]), *place, om.node("Add", ["h", "row"], ["s"]),
        om.node("Tanh", ["s"], ["new"]), om.node("Identity", ["new"], ["y"], name="stacked"),
    ]  # fmt: skip
    body = om.graph(nodes, {"i": INT, "go": BOOL, "h": ROW}, ["on", "new", "y"])
    return om.typed(body, on=BOOL, new=ROW, y=ROW)


def over_rows(body: Any, more: int = 0) -> Any:
    """The body T times over x [T + more, B, 4]."""
    nodes = [
        om.node("Shape", ["x"], ["n"], start=0, end=1), om.node("Sub", ["n", "more"], ["T_"]),
        om.node("Squeeze", ["T_"], ["T"]), om.node("Sub", ["T", "one"], ["last"], name="last"),
        om.node("Loop", ["T", "", "h0"], ["h_n", "ys"], body=body),
    ]  # fmt: skip
    literals = {"one": np.int64(1), "zero": np.array([0]), "two": np.int64(2), "more": np.array([more])}
    return om.model(nodes, {"x": (["N", "B", 4], "f4"), "h0": ROW}, ["h_n", "ys"], literals)


UNSQUEEZED = [
    om.node("Add", ["i", "one"], ["j"], name="j"), om.node("Unsqueeze", ["i", "zero"], ["from"], name="a"),
    om.node("Unsqueeze", ["j", "zero"], ["to"], name="b"), om.node("Slice", ["x", "from", "to", "zero"], ["part"]),
]  # fmt: skip
PLACES: dict[str, tuple[list[Any], int]] = {
    "the step": ([om.node("Gather", ["x", "i"], ["row"])], 0),
    "from the end": ([om.node("Sub", ["last", "i"], ["j"]), om.node("Gather", ["x", "j"], ["row"])], 0),
    "a slice": ([*UNSQUEEZED, om.node("Squeeze", ["part", "zero"], ["row"])], 0),
    "the next": ([om.node("Add", ["i", "one"], ["j"], name="j"), om.node("Gather", ["x", "j"], ["row"])], 1),
    "a window": (
        [om.node("Add", ["i", "two"], ["k"], name="k"), *UNSQUEEZED[1:2],
         om.node("Unsqueeze", ["k", "zero"], ["to"], name="b"), om.node("Slice", ["x", "from", "to", "zero"], ["part"]),
         om.node("ReduceSum", ["part", "zero"], ["row"], keepdims=0)], 1
    ),
}  # fmt: skip


@pytest.mark.slow_cases(name=["from the end", "the next", "a window"])
@pytest.mark.parametrize("name", PLACES)
def test_rows_at_the_place_of_the_step(name: str, rng: np.random.Generator) -> None:
    place, more = PLACES[name]
    made = over_rows(reading(*place), more)
    fed = {"x": rng.normal(size=(5 + more, 3, 4)).astype("f4"), "h0": rng.normal(size=(3, 4)).astype("f4")}
    g = same(made, fed, compiled=True)
    (loop,) = (n for n in g.nodes if n.op.name == "scan")
    assert len(rows_of(loop)) == (0 if more else 1)  # a row of each step, not a gather in it


@pytest.mark.parametrize("name", ["the step", "from the end", "a slice", "a window"])
def test_without_steps(name: str, rng: np.random.Generator) -> None:
    """The state as it was, and no rows, although the places are outside."""
    place, more = PLACES[name]
    x, h0 = rng.normal(size=(more, 3, 4)).astype("f4"), rng.normal(size=(3, 4)).astype("f4")
    found = li.interpret(li.from_onnx(over_rows(reading(*place), more)), x=x, h0=h0)
    np.testing.assert_array_equal(found["h_n"], h0)
    assert found["ys"].shape == (0, 3, 4)


def counting(compare: str, by: int, start: int, most: int | None, begins: str, both: bool) -> Any:
    """A loop that goes on while a counter, from `start` in steps of `by`, compares with the rows of x."""
    sides = ["new_c", "T"] if compare.startswith("Less") else ["T", "new_c"]
    nodes = [
        om.node("Add", ["c", "by"], ["new_c"], name="count"), om.node(compare, sides, ["less"], name="goes"),
        om.node("Add", ["h", "half"], ["new"], name="add"),
    ]  # fmt: skip
    if both:
        nodes += [om.node("Less", ["i", "seven"], ["few"], name="few"), om.node("And", ["less", "few"], ["on"])]
    else:
        nodes.append(om.node("Identity", ["less"], ["on"]))
    body = om.graph(nodes, {"i": INT, "go": BOOL, "c": INT, "h": ([2], "f4")}, ["on", "new_c", "new"])
    om.typed(body, on=BOOL, new_c=INT, new=([2], "f4"))
    before = [om.node("Shape", ["x"], ["n"], start=0, end=1), om.node("Squeeze", ["n"], ["T"])]
    if begins == "same":
        before.append(om.node(compare, [s.replace("new_c", "c0") for s in sides], ["go0"], name="first"))
    literals: dict[str, Any] = {
        "by": np.int64(by),
        "c0": np.int64(start),
        "half": np.float32(0.5),
        "seven": np.int64(7),
    }
    literals |= {} if begins == "same" else {"go0": np.array(begins == "true")}
    literals |= {} if most is None else {"M": np.int64(most)}
    loop = om.node("Loop", ["" if most is None else "M", "go0", "c0", "h0"], ["c_n", "h_n"], body=body)
    return om.model([*before, loop], {"x": (["T_"], "f4"), "h0": ([2], "f4")}, ["c_n", "h_n"], literals)


WHILE = [
    ("Less", 1, 0, None, "same", False),
    ("Less", 1, 0, 2**63 - 1, "same", False),
    ("Less", 1, 0, None, "true", False),
    ("LessOrEqual", 1, 0, None, "same", False),
    ("Less", 2, 0, None, "same", False),
    ("Less", 1, 0, None, "false", False),
    ("Greater", 3, 1, None, "same", False),
    ("GreaterOrEqual", 2, 0, None, "true", False),
]


@pytest.mark.parametrize("case", WHILE, ids=str)
def test_conditions_that_count(case: Any, rng: np.random.Generator) -> None:
    """With the rows of x open where the number of steps follows from them, and with numbers."""
    made = counting(*case)
    for rows in (6, 7, 1, 3, 0):
        fed = {"x": rng.normal(size=rows).astype("f4"), "h0": rng.normal(size=2).astype("f4")}
        same(made, fed, sizes={"T_": rows})
        if case[:2] == ("Less", 1) and case[4] == "same":
            same(made, fed)


def test_two_conditions_and_a_greatest_number(rng: np.random.Generator) -> None:
    for most, rows in ((None, 12), (None, 5), (4, 12), (9, 3)):
        fed = {"x": rng.normal(size=rows).astype("f4"), "h0": rng.normal(size=2).astype("f4")}
        same(counting("Less", 1, 0, most, "true", True), fed, sizes={"T_": rows})


REFUSED = [
    ({"by": 0}, "it ends when a condition says so that only a call knows"),
    ({"by": -1}, "it ends when a condition says so that only a call knows"),
    ({"begins": "same", "both": True}, "whether it starts depends on values that only a call knows"),
    ({"most": 4, "begins": "same"}, "the number of its steps cannot be decided from the sizes"),
]


@pytest.mark.parametrize(("change", "why"), REFUSED, ids=[str(c) for c, _ in REFUSED])
def test_refused(change: dict[str, Any], why: str) -> None:
    case: dict[str, Any] = {
        "compare": "Less",
        "by": 1,
        "start": 0,
        "most": None,
        "begins": "true",
        "both": False,
    } | change
    with pytest.raises(li.ModelError, match=rf"the_Loop \(Loop\): {why}"):
        li.from_onnx(counting(**case))


def test_a_range_of_unknown_length_is_refused(rng: np.random.Generator) -> None:
    place = [om.node("Unsqueeze", ["i", "zero"], ["to"]), om.node("Slice", ["x", "zero", "to", "zero"], ["part"]),
             om.node("ReduceSum", ["part", "zero"], ["row"], keepdims=0)]  # fmt: skip
    with pytest.raises(li.ModelError, match=r"the_Slice \(Slice\): how many places a range has depends on values"):
        li.from_onnx(over_rows(reading(*place)))


@pytest.mark.parametrize("name", ["while", "for"])
def test_a_loop_that_torch_wrote(name: str, rng: np.random.Generator) -> None:
    """A scripted loop over the rows of x, with T and B open: a scan over these rows."""
    need("torch")
    import torch
    from exported_scripts import MODELS

    file = io.BytesIO()
    axes = {"x": {0: "T", 1: "B"}, "h": {0: "B"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.script(MODELS[name]().eval())
        torch.onnx.export(
            module, (torch.zeros(5, 2, 3), torch.zeros(2, 4)), file, dynamo=False, opset_version=17,
            input_names=["x", "h"], output_names=["y"], dynamic_axes=axes, verbose=False,
        )  # fmt: skip
    g = li.from_onnx(file.getvalue())
    (loop,) = (n for n in g.nodes if n.op.name == "scan")
    assert len(rows_of(loop)) == 1
    for T, B in ((7, 3), (1, 2)):
        x, h = rng.normal(size=(T, B, 3)).astype("f4"), rng.normal(size=(B, 4)).astype("f4")
        want = module(torch.from_numpy(x), torch.from_numpy(h)).detach().numpy()
        np.testing.assert_allclose(li.interpret(g, x=x, h=h)["y"], want, atol=2e-6)
        np.testing.assert_allclose(om.run_bytes(file.getvalue(), {"x": x, "h": h})[0], want, atol=2e-6)


def old_scan(lengths: bool, directions: list[int]) -> Any:
    """Scan of operator set 8: h = h a + b for each row of the batch."""
    nodes = [
        om.node("Mul", ["h", "a"], ["ha"]), om.node("Add", ["ha", "b"], ["new"]), om.node("Sub", ["a", "b"], ["z"]),
        om.node("Identity", ["new"], ["y"]),
    ]  # fmt: skip
    two: Info = ([2], "f4")
    body = om.typed(om.graph(nodes, {"h": two, "a": two, "b": two}, ["new", "y", "z"]), new=two, y=two, z=two)
    operands = ["lens" if lengths else "", "h0", "a", "b"]
    node = om.node("Scan", operands, ["h", "ys", "zs"], body=body, num_scan_inputs=2, directions=directions)
    rows: Info = (["B", "T", 2], "f4")
    inputs = {"h0": (["B", 2], "f4"), "a": rows, "b": rows, **({"lens": (["B"], "i8")} if lengths else {})}
    made = om.model([node], inputs, ["h", "ys", "zs"], opset=8)
    made.ir_version = 3
    return made


@pytest.mark.parametrize(("lengths", "directions"), [(False, [0, 0]), (False, [0, 1]), (True, [0, 0])], ids=str)
def test_scan_of_operator_set_8(lengths: bool, directions: list[int], rng: np.random.Generator) -> None:
    fed = {n: rng.normal(size=s).astype("f4") for n, s in {"h0": (3, 2), "a": (3, 4, 2), "b": (3, 4, 2)}.items()}
    if lengths:
        fed["lens"] = np.array([2, 4, 1])
    same(old_scan(lengths, directions), fed, compiled=True)


def test_scan_of_operator_set_8_refused() -> None:
    with pytest.raises(li.ModelError, match=r"the_Scan \(Scan\): rows backwards with lengths are not taken"):
        li.from_onnx(old_scan(True, [0, 1]))
