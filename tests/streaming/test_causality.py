"""Causality: the axis of time and its rows, op by op; what looks ahead, with the reason; and that facts are so."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.streaming.causality import Causality
from lstm_ir.streaming.facts import Fixed, Latest, Timed
from lstm_ir.streaming.findings import WindowContext
from lstm_ir.streaming.steps import candidates

B, C = 2, 4
X = li.input("x", ("B", C, "T"))  # channels first
S = li.input("s", ("T", "B", C))
K = li.input("k", (C,))


def weight(*shape: int) -> Any:
    return li.weight(f"w{shape}", np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def over(y: Any) -> Causality:
    """The analysis of a graph with the one output y."""
    inputs = [v for v in (X, S, K) if v.node in li.Graph("g", [X, S, K], {"y": y}).nodes]
    return Causality.of(li.Graph("g", inputs, {"y": y}), "T")


def lstm(x: Any, direction: str = "forward", layout: str = "time", **more: Any) -> Any:
    D = 2 if direction == "bidirectional" else 1
    return li.lstm(x, weight(D, 12, C), weight(D, 12, 3), direction=direction, layout=layout, **more)


BTC = li.transpose(X, (0, 2, 1))
FACTS: dict[str, tuple[Any, Any]] = {
    "input": (X, Timed(2)),
    "transpose": (BTC, Timed(1)),
    "elementwise": (li.tanh(S) * K, Timed(0)),
    "broadcast": (li.expand_dims(S, 1) + li.zeros((3, 1, 1)), Timed(0)),
    "merged with the batch inside": (li.reshape(S, ("T*B", C)), Timed(0, inner=S.shape[1])),
    "merged and apart": (li.reshape(li.reshape(BTC, ("B*T", C)) @ weight(C, 3), ("B", "T", 3)), Timed(1)),
    "product": (BTC @ weight(C, 7), Timed(1)),
    "sum of channels": (li.sum(X, 1), Timed(1)),
    "softmax of channels": (li.softmax(X, 1), Timed(2)),
    "table": (li.take(weight(9, 5), li.argmax(BTC, 2), 0), Timed(1)),
    "picked channels": (li.take(X, np.array([2, 0]), 1), Timed(2)),
    "convolution": (li.conv1d(X, weight(5, C, 3), padding=(2, 0)), Timed(2)),
    "convolution that pads less, with stride": (li.conv1d(X, weight(5, C, 4), 2, (2, 0)), Timed(2, rate=2)),
    "patches": (li.conv1d(X, weight(5, C, 3), 3), Timed(2, rate=3)),
    "cut off behind": (li.conv1d(X, weight(5, C, 3), padding=2)[:, :, :-2], Timed(2)),
    "delayed": (li.pad(X, (0, 0, 3), (0, 0, -3)), Timed(2, look=-3)),
    "every other": (X[:, :, ::2], Timed(2, rate=2)),
    "largest of the last three": (li.max_pool1d(X, 3, 1, padding=(2, 0)), Timed(2)),
    "running sum": (li.cumsum(X, 2), Timed(2)),
    "sum of channels so far": (li.cumsum(X, 1), Timed(2)),
    "transposed": (li.conv_transpose1d(X, weight(C, 5, 2), 2), Timed(2, rate=Fraction(1, 2))),
    "transposed, its tail cut off": (
        li.conv_transpose1d(X, weight(C, 5, 4), 2)[:, :, :-2], Timed(2, rate=Fraction(1, 2))
    ),
    "patches, and back": (
        li.conv_transpose1d(li.conv1d(X, weight(5, C, 3), 3), weight(5, 6, 3), 3), Timed(2)
    ),
    "rows joined before": (li.conv1d(li.concat([li.ones(("B", C, 2)), X], 2), weight(5, C, 3)), Timed(2)),
    "layer": (lstm(S)[0], Timed(0)),
    "layer of batches": (lstm(BTC, layout="batch")[0], Timed(1)),
    "last state": (lstm(S)[1], Latest()),
    "last row": (S[-1] @ weight(C, 2), Latest()),
    "layer within each frame": (
        lstm(li.reshape(S, ("T*B", 1, C)), "bidirectional", "batch")[0], Timed(0, inner=S.shape[1])
    ),
    "layer within each frame, its rows delayed and its first states not": (
        lstm(
            li.transpose(li.pad(S, (1, 0, 0), (0, 0, 0)), (1, 0, 2)),
            h0=li.pad(li.expand_dims(S[:, 0, :3], 0), (0, 0, 0), (0, 1, 0)),
        )[0][:, :-1],
        Timed(1),
    ),
    "loop": (li.scan(lambda h, x: (h + x, h), li.zeros(("B", C)), S)[1], Timed(0)),
    "not over time": (K * 2.0, Fixed(frozenset())),
}  # fmt: skip


@pytest.mark.parametrize("case", FACTS)
def test_facts(case: str) -> None:
    y, want = FACTS[case]
    if case == "merged with the batch inside":
        y, before = li.reshape(y, ("T", "B", C)), y
        found = over(y)
        assert found.facts[before] == want
        assert found.facts[y] == Timed(0)
    else:
        found = over(y)
        assert found.facts[y] == want
    assert not found.reasons


AHEAD: dict[str, tuple[Any, str]] = {
    "symmetric": (
        li.conv1d(X, weight(5, C, 3), padding=1),
        "convolution: looks ahead: a window of 3 with padding 1 before and 1 after, not 2 before",
    ),
    "too little padding": (
        li.conv1d(X, weight(5, C, 3)),
        "convolution: looks ahead: a window of 3 with padding 0 before and 0 after, not 2 before",
    ),
    "stride": (
        li.conv1d(X, weight(5, C, 5), 2, padding=2),
        "convolution: looks ahead: a window of 5 with padding 2 before and 2 after, not 3 to 4 before",
    ),
    "too many rows": (li.conv1d(X, weight(5, C, 3), padding=2), "convolution: gives 2 rows more than the steps"),
    "cut off before": (X[:, :, 1:], "slice: looks ahead: cuts rows off, 1 before and 0 after"),
    "cut off behind": (X[:, :, :-2], "slice: gives less rows than it takes: cuts rows off, 0 before and 2 after"),
    "first row": (S[0], "slice: picks steps by their places in the call: [0, 1)"),
    "reverse": (li.reverse(X, 2), "reverse: reverses the order of the steps"),
    "mean": (li.mean(X, 2), "reduce_mean: reduce_mean over all steps"),
    "softmax": (li.softmax(X, 2), "softmax: softmax over all steps"),
    "running sum from the end": (li.cumsum(X, 2, reverse=True), "cumsum: sums from the last step"),
    "running sum of rows that are no frames": (
        li.cumsum(li.pad(X, (0, 0, 0), (0, 0, 2)), 2), "cumsum: gets rows that stand for no frame of the call",
    ),
    "delayed rows that a window would see": (
        li.conv1d(li.pad(X, (0, 0, 3), (0, 0, -3)), weight(5, C, 3), padding=1),
        "convolution: looks ahead: a window of 3 with padding 1 before and 1 after, not 2 before",
    ),
    "largest step": (li.argmax(X, 2), "argmax: argmax over all steps"),
    "attention": (X @ BTC, "dot_general: a product that sums over all steps"),
    "two axes": (BTC @ X, "dot_general: its operands have their steps on different axes"),
    "joined": (li.concat([X, X], 2), "concatenate: joins values one after another in time"),
    "rows after the last step": (li.concat([X, li.zeros(("B", C, 2))], 2), "concatenate: gives 2 rows more"),
    "an input before the first step": (
        li.concat([li.broadcast_to(K[:, None], ("B", C, 1)), X], 2)[:, :, :-1],
        "concatenate: what it joins before the first step comes from the input k: name it in `stateful`",
    ),
    "positions": (li.iota(("B", C, "T"), 2, "f32") + X, "add: reads a value that has a row of its own for every step"),
    "number of frames": (X * li.convert(li.size("T"), "f32"), "dim: its result depends on how many frames a call has"),
    "bidirectional": (lstm(S, "bidirectional")[0], "lstm: is bidirectional: it starts at the last step"),
    "from the end": (lstm(S, "reverse")[0], "lstm: is reverse: it starts at the last step"),
    "count": (lstm(S, count=li.constant(2))[0], "lstm: has count of whole sequences"),
    "last state at every step": (
        S + li.broadcast_to(lstm(S)[1], ("T", "B", 3))[:, :, :1], "reads at every step what only the last step gives",
    ),
    "loop from the end": (
        li.scan(lambda h, x: (h + x, h), li.zeros(("B", C)), S, reverse=True)[1],
        "scan: is reverse: it starts at the last step",
    ),
    "number of the step": (
        li.scan(lambda h, x, n: (h + x * li.convert(n, "f32"), h), li.zeros(("B", C)), S, with_step=True)[1],
        "scan: reads the number of its step, which starts again at every call",
    ),
    "table of places": (
        li.take(li.iota(("T", 2), 0, "f32"), li.argmax(BTC, 2), 0), "gather: picks from a value that has a row",
    ),
    "places in a loop": (
        li.scan(lambda h, x, c: (h + x, h * li.sum(c)), li.zeros(("B", C)), S, li.iota(("T",), 0, "f32"))[1],
        "scan: its steps read a value that has a row for every step of a call",
    ),
    "transposed, with a tail": (li.conv_transpose1d(X, weight(C, 5, 3), 2), "convolution_transpose: gives 1 row more"),
    "transposed, cut before": (
        li.conv_transpose1d(X, weight(C, 5, 4), 2, padding=1),
        "convolution_transpose: looks ahead: spreads a step over 4 rows, every 2, and cuts 1 off before and 1 after",
    ),
    "transposed, with holes": (li.conv_transpose1d(X, weight(C, 5, 1), 2), "gives less rows than it takes"),
    "first state of an input": (lstm(S, h0=li.expand_dims(li.broadcast_to(K[:3], ("B", 3)), 0))[0], "from the input k"),
    "batch outside": (li.reshape(BTC, ("B*T", C)), "all sequences on one axis, one sequence after another"),
    "rows in a ceiled window": (li.max_pool1d(X, 2, 2, ceil_mode=True), "ceil_mode over time"),
    "mean of less": (
        li.avg_pool1d(X, 3, 1, padding=(2, 0), count_include_pad=False), "its first mean is of less frames",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", AHEAD)
def test_reasons(case: str) -> None:
    y, why = AHEAD[case]
    found = [f"{n.op.name}: {reason}" for n, reason in over(y).reasons]
    assert len(found) == 1, found
    assert why in found[0]


def test_all_reasons_come_at_once() -> None:
    x = li.conv1d(X, weight(C, C, 3), padding=1)
    y = lstm(li.transpose(x, (2, 0, 1)), "reverse")[0]
    z = y - li.mean(y, 0, keepdims=True)
    assert [n.op.name for n, _ in over(z).reasons] == ["convolution", "lstm", "reduce_mean"]


def test_what_is_kept() -> None:
    """The last (k - 1) d rows; a call is a multiple of the strides, one after the other."""
    x = li.conv1d(X, weight(C, C, 3), 2, (4, 0), 2)
    found = over(li.conv1d(x, weight(C, C, 4), 3, (3, 0)))
    assert [(k.axis, k.rows, k.more) for k in found.carried.values() if isinstance(k, WindowContext)] == [
        (2, 4, 0),
        (2, 3, 0),
    ]
    assert found.unit == 6
    assert found.factor == 1


def test_the_size_that_is_time() -> None:
    """That of layers before that of windows; of a merged axis the name that all have."""
    y = lstm(li.transpose(li.conv1d(X, weight(C, C, 3), padding=(2, 0)), (2, 0, 1)))[0]
    assert candidates(li.Graph("g", [X], {"y": y})) == ["T"]
    image = li.input("image", ("B", 1, "H", "W"))
    z = li.conv2d(image, weight(2, 1, 3, 3), padding=1)
    assert candidates(li.Graph("g", [image], {"z": z})) == ["H", "W"]
    assert candidates(li.Graph("g", [S], {"y": li.tanh(S)})) == []
    assert candidates(li.Graph("g", [S], {"y": li.cumsum(S)})) == ["T"]
    assert candidates(li.Graph("g", [X], {"y": li.conv_transpose1d(X, weight(C, 5, 2), 2)})) == ["T"]


@pytest.mark.parametrize("case", [n for n, (_, f) in FACTS.items() if isinstance(f, Timed) and f.plain])
def test_rows_know_no_later_frame(case: str, rng: np.random.Generator) -> None:
    """Other frames from some time on change no row before it, by the NumPy meaning."""
    y, fact = FACTS[case]
    found = over(y)
    unit, frames = found.unit, 4 * found.unit
    a = {
        n: rng.standard_normal(s).astype(np.float32)
        for n, s in {"x": (B, C, frames), "s": (frames, B, C), "k": (C,)}.items()
        if n in found.graph.input_names
    }
    before = li.interpret(found.graph, a)["y"]
    for at in range(unit, frames, unit):
        other = {n: v.copy() for n, v in a.items()}
        if "x" in other:
            other["x"][:, :, at:] += 1
        if "s" in other:
            other["s"][at:] += 1
        after = li.interpret(found.graph, other)["y"]
        kept = np.arange(at // fact.rate)
        np.testing.assert_array_equal(np.take(before, kept, fact.axis), np.take(after, kept, fact.axis))
