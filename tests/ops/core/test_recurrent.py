"""lstm, gru and rnn: meaning and decomposition against plain NumPy and recorded PyTorch."""

import json
from typing import Any

import layer_cases as cases
import numpy as np
import plain_layers
import pytest
from torch_records import GOLDEN, RECORDED, close, recorded, torch_graph

import lstm_ir as li
from lstm_ir.passes.decompose import decompose


def both(graph: li.Graph, given: dict[str, Any]) -> list[dict[str, Any]]:
    """The meaning, and the meaning of the decomposition."""
    lowered = decompose(graph)
    assert not {n.op.name for n in lowered.nodes} & {"lstm", "gru", "rnn"}
    return [li.interpret(graph, given), li.interpret(lowered, given)]


@pytest.mark.parametrize("op", ["lstm", "gru", "rnn"])
def test_features_alone_and_in_pairs(op: str) -> None:
    for name in cases.names(op):
        operands, attrs = cases.build(op, name)
        want = plain_layers.run(op, cases.arrays(operands), attrs)
        graph = cases.graph(op, operands, attrs)
        for got in both(graph, cases.arrays(operands)):
            assert set(got) == set(want), name
            for k in want:
                try:
                    close(got[k], want[k], 1e-12)
                except AssertionError as e:
                    raise AssertionError(f"{op} {name}, seed {cases.SEED}: {k}") from e


@pytest.mark.parametrize("op", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize(
    "sizes", [(0, 3, 5, 7, 4), (1, 1, 1, 1, 1), (2, 1, 3, 64, 16), (3, 0, 2, 5, 3), (4, 2, 0, 3, 2)]
)
def test_degenerate_sizes(op: str, sizes: Any) -> None:
    for name in ("states+lengths", "reverse+count", "lengths+bidirectional", "bidirectional+hold", "count+hold"):
        operands, attrs = cases.build(op, name, sizes=sizes)
        want = plain_layers.run(op, cases.arrays(operands), attrs)
        for dynamic in (True, False):
            graph = cases.graph(op, operands, attrs, dynamic)
            for got in both(graph, cases.arrays(operands)):
                for k in want:
                    close(got[k], want[k], 1e-12)


@pytest.mark.parametrize("op", ["lstm", "gru", "rnn"])
def test_values_past_the_end_never_matter(op: str) -> None:
    for name in ("lengths+bidirectional", "count+reverse", "lengths+projected_x", "count+batch"):
        name = name if name in cases.names(op) else "+".join(reversed(name.split("+")))
        operands, attrs = cases.build(op, name)
        want = plain_layers.run(op, cases.arrays(operands), attrs)
        x = np.swapaxes(operands["x"], 0, 1) if attrs.get("layout") == "batch" else operands["x"]
        ends = operands["lengths"] if operands["lengths"] is not None else [operands["count"]] * cases.B
        for b, end in enumerate(ends):
            x[end:, b] = np.nan
        for got in both(cases.graph(op, operands, attrs), cases.arrays(operands)):
            for k in want:
                close(got[k], want[k], 1e-12)


@pytest.mark.parametrize("op", ["lstm", "gru", "rnn"])
def test_saturated_values_stay_finite(op: str) -> None:
    operands, attrs = cases.build(op, "lengths+bidirectional")
    operands["x"] = operands["x"] * 1e4
    want = plain_layers.run(op, cases.arrays(operands), attrs)
    for got in both(cases.graph(op, operands, attrs), cases.arrays(operands)):
        for k in want:
            assert np.isfinite(got[k]).all()
            close(got[k], want[k], 1e-12)


def test_an_infinite_cell_does_not_reach_the_gate_without_peephole() -> None:
    """With peepholes [3H] the candidate g does not see the cell: 0 * inf would be NaN."""
    x, zeros = np.full((1, 1, 1), 0.5, np.float32), np.zeros((1, 4, 1), np.float32)
    w = np.array([1, 1, 0.25, 1], np.float32).reshape(1, 4, 1)
    c0 = np.full((1, 1, 1), -np.inf, np.float32)
    inputs = [li.input("x", x.shape), li.input("c0", c0.shape)]
    peephole = li.constant(np.ones((1, 3), np.float32))
    out = li.lstm(inputs[0], li.constant(w), li.constant(zeros), peephole=peephole, c0=inputs[1], save=True)
    graph = li.Graph("infinite", inputs, {"gates": out.gates})
    for got in both(graph, {"x": x, "c0": c0}):
        assert got["gates"][0, 0, 2] == pytest.approx(np.tanh(0.125), abs=1e-6)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["lstm", "gru", "rnn"])
def test_two_byte_floats_compute_in_f32(op: str, dtype: str) -> None:
    kind = li.DType.of(dtype).numpy
    operands, attrs = cases.build(op, "states+lengths", np.float32)
    small = {k: v.astype(kind) if v.dtype == np.float32 else v for k, v in cases.arrays(operands).items()}
    wide = {k: v.astype(np.float64) if v.dtype == kind else v for k, v in small.items()}
    want = plain_layers.run(op, wide, attrs)
    graph = cases.graph(op, {**operands, **small}, attrs)
    step = 2.0**-8 if dtype == "bf16" else 2.0**-11  # one rounding, at the results
    for got in both(graph, small):
        for k in want:
            assert got[k].dtype == kind
            error = np.abs(got[k].astype(np.float64) - want[k])
            assert (error <= step * np.abs(want[k]) + 1e-5).all(), (k, error.max())


def test_nan_in_the_cell_stays_through_the_clip() -> None:
    operands, attrs = cases.build("lstm", "cell_clip")
    operands["x"][2, 1] = np.nan
    want = plain_layers.run("lstm", cases.arrays(operands), attrs)
    for got in both(cases.graph("lstm", operands, attrs), cases.arrays(operands)):
        assert np.isnan(got["cells"][2:, 1]).all()
        np.testing.assert_allclose(got["y"], want["y"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("stem", RECORDED)
def test_recorded_pytorch_layers(stem: str) -> None:
    data, parts = recorded(stem)
    graph = torch_graph(data, parts)
    given = {k: v for k, v in data.items() if "/" not in k and k in graph.input_names}
    for got in both(graph, given):
        for k, v in got.items():
            close(v, data[k], 1e-13)


def test_the_recordings_are_all_there() -> None:
    listed = json.loads((GOLDEN / "manifest.json").read_text()) if (GOLDEN / "manifest.json").exists() else None
    assert len(RECORDED) >= 20 or listed is not None


X = li.input("x", ("T", "B", 5), "f32")
W_IH = li.input("w_ih", (1, 28, 5), "f32")
W_HH = li.input("w_hh", (1, 28, 7), "f32")

BAD: list[tuple[str, Any, str]] = [
    ("rank", lambda: li.lstm(li.input("x", ("T", 5)), W_IH, W_HH), "x is f32"),
    ("integers", lambda: li.lstm(li.input("x", ("T", "B", 5), "i32"), W_IH, W_HH), "not floats"),
    ("columns", lambda: li.lstm(X, li.input("w", (1, 28, 6)), W_HH), r"w_ih is .*expected \[1,28,5\]"),
    ("gates", lambda: li.lstm(X, None, li.input("w", (1, 27, 7))), "27 rows are not 4 gates"),
    ("no projection", lambda: li.lstm(X, W_IH, li.input("w", (1, 28, 3))), "without a projection"),
    ("projection", lambda: li.lstm(X, W_IH, W_HH, w_hr=li.input("p", (1, 7, 6))), "w_hr is"),
    ("dtype", lambda: li.lstm(X, W_IH, W_HH, li.input("b", (28,), "f64")), "b is f64"),
    ("bias", lambda: li.lstm(X, W_IH, W_HH, np.zeros(27, np.float32)), r"b is .*expected \[1,28\]"),
    ("state", lambda: li.lstm(X, W_IH, W_HH, h0=li.input("h", ("C", 7))), "h0 is"),
    ("peephole", lambda: li.lstm(X, W_IH, W_HH, peephole=np.zeros(14, np.float32)), "peephole is"),
    ("lengths", lambda: li.lstm(X, W_IH, W_HH, lengths=li.input("n", ("B",), "f32")), "lengths is"),
    ("lengths size", lambda: li.lstm(X, W_IH, W_HH, lengths=li.input("n", ("C",), "i32")), "lengths is"),
    ("count", lambda: li.lstm(X, W_IH, W_HH, count=li.input("n", (1,), "i32")), "count is"),
    ("direction", lambda: li.lstm(X, W_IH, W_HH, direction="backward"), "direction is 'backward'"),
    ("two directions", lambda: li.lstm(X, W_IH, W_HH, direction="bidirectional"), "expected"),
    ("layout", lambda: li.lstm(X, W_IH, W_HH, layout="TBI"), "layout is 'TBI'"),
    ("padding", lambda: li.lstm(X, W_IH, W_HH, padding="same"), "padding is 'same'"),
    ("activation", lambda: li.lstm(X, W_IH, W_HH, activations=("swish",) * 5), "activation 'swish'"),
    ("activations", lambda: li.lstm(X, W_IH, W_HH, activations=("tanh",)), "1 activations for 1"),
    ("parameters", lambda: li.lstm(X, W_IH, W_HH, activations=("tanh(2)",) * 5), "has 0 parameters"),
    ("number", lambda: li.lstm(X, W_IH, W_HH, activations=("elu(a)",) * 5), "is not a number"),
    ("clip", lambda: li.lstm(X, W_IH, W_HH, cell_clip=-1.0), "cell_clip is -1.0"),
    ("nan clip", lambda: li.lstm(X, W_IH, W_HH, gate_clip=float("nan")), "gate_clip is nan"),
    ("hidden name", lambda: li.rnn(X, None, li.input("w", (1, "H", "H"))), "hidden sizes are numbers"),
    (
        "b_hn",
        lambda: li.gru(
            X, li.input("w", (1, 21, 5)), li.input("u", (1, 21, 7)), b_hn=np.zeros(7, np.float32), reset_after=False
        ),
        "b_hn is the bias",
    ),
]


@pytest.mark.parametrize(("make", "problem"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_what_does_not_fit_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(li.IRError, match=problem) as e:
        make()
    lines = str(e.value).splitlines()
    assert lines[1].startswith("  operands: x: ")
    assert "test_recurrent.py:" in lines[2]


@pytest.mark.parametrize("name", ["lengths", "count"])
def test_lengths_and_count_outside_are_refused(name: str) -> None:
    operands, attrs = cases.build("lstm", name)
    graph = cases.graph("lstm", operands, attrs)
    for bad in (-1, cases.T + 1):
        operands[name] = np.full_like(operands[name], bad)
        for g in (graph, decompose(graph)):
            with pytest.raises(li.ValueRangeError):
                li.interpret(g, cases.arrays(operands))
