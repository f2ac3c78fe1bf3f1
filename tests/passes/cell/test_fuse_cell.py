"""`fuse-cell` on recorded programs, on every way to write a cell, and on what is nearly one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import cell_dumps
import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.passes.pipeline import PassResult, Pipeline

T, B, I, H = 11, 3, 5, 7
FUSE = Pipeline.parse("canonicalize,cse,fuse-cell,canonicalize,cse")
Array = np.ndarray[Any, Any]


def ops_of(graph: li.Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def fuse(graph: li.Graph, inputs: dict[str, Array]) -> PassResult:
    """The pass run, its meaning compared with that of the primitives."""
    result = FUSE.run(graph)
    want, got = li.interpret(graph, inputs), li.interpret(result.graph, inputs)
    for k, v in want.items():
        np.testing.assert_allclose(got[k], v, rtol=2e-6, atol=2e-6, err_msg=k)
    assert FUSE.run(result.graph).graph is result.graph
    return result


def core(result: PassResult) -> list[li.Node]:
    """The recurrent ops of a graph in which no loop and no gate arithmetic is left."""
    left = set(ops_of(result.graph)) & {"scan", "tanh", "logistic"}
    assert not left, left
    return [n for n in result.graph.nodes if n.op.name in ("lstm", "gru", "rnn")]


def reasons(result: PassResult) -> list[str]:
    return [m.reason for s in result.steps if s.name == "fuse-cell" for m in s.misses]


# recorded programs ------------------------------------------------------------------------------

RECORDED = cell_dumps.names()


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name: str, rng: np.random.Generator) -> None:
    graph = cell_dumps.read(name)
    inputs = {
        p: rng.standard_normal(v.shape).astype(np.float32) for p, v in zip(graph.input_names, graph.params, strict=True)
    }
    found = core(fuse(graph, inputs))
    assert [n.op.name for n in found] == ["gru" if "gru" in name else "lstm"]
    written_out = name in ("torch_lstm", "torch_gru")  # two steps, one after the other
    for n in found:
        rows = n.args[0]
        assert isinstance(rows, li.Value)
        assert rows.shape[0] == (2 if written_out else 1 if "cell" in name else 11)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_gru_resets_as_written(name: str, rng: np.random.Generator) -> None:
    graph = FUSE.run(cell_dumps.read(name)).graph
    for n in (n for n in graph.nodes if n.op.name == "gru"):
        assert n.attrs["reset_after"] == (not ("before" in name or name in ("jax_gru_six_dots", "jax_gru_difference")))


def test_there_are_recordings_of_all_three_systems() -> None:
    assert {n.partition("_")[0] for n in RECORDED} == {"torch", "jax", "keras"}


# ways to write an LSTM --------------------------------------------------------------------------


class Lstm:
    """One way to write an LSTM loop; every field is a choice that people make."""

    def __init__(self, rng: np.random.Generator, **how: Any) -> None:
        self.rng = rng
        self.order = how.get("order", "ifgo")
        self.dots = how.get("dots", "two")
        self.biases = how.get("biases", 1)
        self.transposed = how.get("transposed", False)
        self.sigmoid = how.get("sigmoid", li.logistic)
        self.swapped = how.get("swapped", False)
        self.forget = how.get("forget", 0.0)
        self.keep = how.get("keep", ("h",))
        self.more: Callable[..., Any] | None = how.get("more")
        self.loop = {k: how[k] for k in ("reverse", "lengths", "count") if k in how}
        self.named = how.get("named", True)
        self.h0 = how.get("h0", True)

    def weight(self, name: str, *shape: int) -> li.Value:
        flip = self.transposed and len(shape) == 2
        array = self.rng.standard_normal(shape[::-1] if flip else shape).astype(np.float32) / 2
        w = li.weight(name, array)
        return w.T if flip else w

    def sums(self, x: li.Value, h: li.Value, w: dict[str, li.Value]) -> dict[str, li.Value]:
        if self.dots == "eight":
            parts = {g: self.biased(x @ w[f"w{g}"] + h @ w[f"r{g}"], w, g) for g in "ifgo"}
        else:
            joint = li.concat([h, x], 1) @ w["m"] if self.dots == "joint" else h @ w["r"] + x @ w["w"]
            wide = self.biased(joint, w, "")
            parts = {g: wide[:, k * H : (k + 1) * H] for k, g in enumerate(self.order)}
        if self.forget:
            parts["f"] = parts["f"] + self.forget
        return parts

    def biased(self, v: li.Value, w: dict[str, li.Value], gate: str) -> li.Value:
        for k in range(self.biases):
            v = v + w[f"b{gate}{k}"]
        return v

    def weights(self) -> dict[str, li.Value]:
        if self.dots == "eight":
            out = {f"w{g}": self.weight(f"w{g}", I, H) for g in "ifgo"}
            out |= {f"r{g}": self.weight(f"r{g}", H, H) for g in "ifgo"}
            return out | {f"b{g}{k}": self.weight(f"b{g}{k}", H) for g in "ifgo" for k in range(self.biases)}
        if self.dots == "joint":
            out = {"m": self.weight("m", H + I, 4 * H)}
        else:
            out = {"w": self.weight("w", I, 4 * H), "r": self.weight("r", H, 4 * H)}
        return out | {f"b{k}": self.weight(f"b{k}", 4 * H) for k in range(self.biases)}

    def graph(self) -> tuple[li.Graph, dict[str, Array]]:
        w = self.weights()
        t, b = ("T", "B") if self.named else (T, B)
        x, h0, c0 = li.input("x", (t, b, I)), li.input("h0", (b, H)), li.input("c0", (b, H))
        params, values = [x, h0, c0], {}
        if "lengths" in self.loop:
            self.loop["lengths"] = li.input("lengths", (b,), "i32")
            params.append(self.loop["lengths"])
            values["lengths"] = np.array([4, 0, T], np.int32)
        if "count" in self.loop:
            self.loop["count"] = li.input("count", (), "i32")
            params.append(self.loop["count"])
            values["count"] = np.array(6, np.int32)

        def cell(carry: Any, row: li.Value) -> Any:
            h, c = carry
            p = self.sums(row, h, w)
            i, f, g, o = (self.sigmoid(p["i"]), self.sigmoid(p["f"]), li.tanh(p["g"]), self.sigmoid(p["o"]))
            new = g * i + c * f if self.swapped else f * c + i * g
            h = li.tanh(new) * o if self.swapped else o * li.tanh(new)
            kept = {"h": h, "c": new} | ({} if self.more is None else self.more(p, i, h, new, row, w))
            order = {"h": h, "c": new}
            return (order["h"], order["c"]), tuple(kept[k] for k in self.keep)

        (h, c), ys = li.scan(cell, (h0, c0), x, **self.loop)
        outputs = {"h": h, "c": c} | {f"y{k}": y for k, y in zip(self.keep, ys, strict=True)}
        for name, shape in (("x", (T, B, I)), ("h0", (B, H)), ("c0", (B, H))):
            values[name] = self.rng.standard_normal(shape).astype(np.float32)
        return li.Graph("written", params, outputs), values


def written_out(x: li.Value) -> li.Value:
    return 1.0 / (1.0 + li.exp(-x))


WAYS: dict[str, dict[str, Any]] = {
    "two dots": {}, "joint dot": {"dots": "joint"}, "eight dots": {"dots": "eight"},
    "static": {"named": False}, "no bias": {"biases": 0}, "two biases": {"biases": 2},
    "two biases, eight dots": {"biases": 2, "dots": "eight"},
    "transposed": {"transposed": True}, "transposed joint": {"transposed": True, "dots": "joint"},
    "transposed eight": {"transposed": True, "dots": "eight"},
    "factors swapped": {"swapped": True}, "sigmoid written out": {"sigmoid": written_out},
    "forget bias": {"forget": 1.0}, "forget bias alone": {"forget": 1.0, "biases": 0},
    "cells too": {"keep": ("h", "c")}, "cells alone": {"keep": ("c",)}, "no rows": {"keep": ()},
    "h twice": {"keep": ("h", "h")}, "reverse": {"reverse": True}, "lengths": {"lengths": True},
    "lengths in reverse": {"lengths": True, "reverse": True}, "count": {"count": True},
    "count in reverse": {"count": True, "reverse": True},
    "lengths and count in reverse": {"lengths": True, "count": True, "reverse": True},
    "lengths, static, reverse": {"lengths": True, "reverse": True, "named": False},
    "lengths, cells": {"lengths": True, "keep": ("h", "c")},
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_write_an_lstm(way: str, rng: np.random.Generator) -> None:
    (n,) = core(fuse(*Lstm(rng, **WAYS[way]).graph()))
    assert n.op.name == "lstm"
    assert n.attrs["direction"] == ("reverse" if WAYS[way].get("reverse") else "forward")
    assert (n.arg("lengths") is not None) == bool(WAYS[way].get("lengths"))
    assert (n.arg("count") is not None) == bool(WAYS[way].get("count"))
    assert (n.arg("b") is None) == (WAYS[way].get("biases") == 0 and "forget" not in WAYS[way])
    assert n.attrs["save"] == ("c" in WAYS[way].get("keep", ()))


def _answer(p: Any, i: Any, h: li.Value, c: li.Value, x: li.Value, w: Any) -> dict[str, li.Value]:
    wide = li.weight("out", np.linspace(-1, 1, H * 2, dtype=np.float32).reshape(H, 2))
    return {"q": li.tanh(h @ wide + x[:, :2]) + li.max(c, 1, keepdims=True), "x": x * 2.0}


@pytest.mark.parametrize("reverse", [False, True])
def test_what_is_computed_from_the_states_is_computed_after_the_loop(reverse: bool, rng: np.random.Generator) -> None:
    way = Lstm(rng, keep=("h", "q", "x"), more=_answer, reverse=reverse)
    result = fuse(*way.graph())
    assert "scan" not in ops_of(result.graph)
    (n,) = [n for n in result.graph.nodes if n.op.name == "lstm"]
    assert n.attrs["save"]


@pytest.mark.parametrize("how", ["lengths", "count"])
def test_what_is_computed_from_states_that_may_not_exist_stays(how: str, rng: np.random.Generator) -> None:
    graph, inputs = Lstm(rng, keep=("h", "q"), more=_answer, **{how: True}).graph()
    result = fuse(graph, inputs)
    assert "scan" in ops_of(result.graph)
    assert reasons(result)


@pytest.mark.parametrize("order", list(map("".join, itertools.permutations("ifgo"))))
def test_gate_orders(order: str, rng: np.random.Generator) -> None:
    result = fuse(*Lstm(rng, order=order).graph())
    assert len(core(result)) == 1
    if order == "ifgo":  # nothing is cut or joined: the weights go in as they are
        assert not {"slice", "concatenate"} & set(ops_of(result.graph))


def test_the_op_has_the_weights_rows_in_its_own_order(rng: np.random.Generator) -> None:
    """w_ih of the op, evaluated: the blocks i, f, g, o of the recorded matrix, transposed."""
    graph, _ = Lstm(rng, order="ofig", biases=0).graph()
    (n,) = core(FUSE.run(graph))
    w_ih = n.arg("w_ih")
    assert isinstance(w_ih, li.Value)
    got = li.interpret(li.Graph("w", [], {"w": w_ih}))["w"]
    blocks = dict(zip("ofig", np.split(graph.weights["w"].node.attrs["value"].array, 4, 1), strict=True))
    np.testing.assert_array_equal(got[0], np.concatenate([blocks[g].T for g in "ifgo"]))


def test_rows_projected_before_the_loop(rng: np.random.Generator) -> None:
    w, r = rng.standard_normal((I, 4 * H)), rng.standard_normal((H, 4 * H))
    x = li.input("x", ("T", "B", I), "f64")
    p = x @ li.weight("w", w)
    rec = li.weight("r", r)

    def cell(carry: Any, row: li.Value) -> Any:
        h, c = carry
        i, f, g, o = ((row + h @ rec)[:, k * H : (k + 1) * H] for k in range(4))
        c = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
        return (li.logistic(o) * li.tanh(c), c), li.logistic(o) * li.tanh(c)

    zero = li.zeros(("B", H), "f64")
    _, y = li.scan(cell, (zero, zero), p)
    (n,) = core(fuse(li.Graph("g", [x], {"y": y}), {"x": rng.standard_normal((T, B, I))}))
    assert n.arg("w_ih") is None


def test_two_input_rows_are_joined(rng: np.random.Generator) -> None:
    a, b = li.input("a", ("T", "B", I)), li.input("b", ("T", "B", 2))
    wa, wb, r = (li.weight(n, rng.standard_normal((k, H)).astype("f")) for n, k in (("wa", I), ("wb", 2), ("r", H)))

    def cell(h: li.Value, rows: Any) -> Any:
        h = li.maximum(rows[0] @ wa + rows[1] @ wb + h @ r * 1.0, 0.0)
        return h, h

    _, y = li.scan(cell, li.zeros(("B", H)), (a, b))
    inputs = {"a": rng.standard_normal((T, B, I)).astype("f"), "b": rng.standard_normal((T, B, 2)).astype("f")}
    (n,) = core(fuse(li.Graph("g", [a, b], {"y": y}), {k: v / 8 for k, v in inputs.items()}))
    assert n.op.name == "rnn"
    assert n.attrs["activations"] == ("relu",)
    assert n.args[0].shape[-1] == I + 2  # type: ignore[union-attr]


# ways to write a GRU ----------------------------------------------------------------------------

MIXES: dict[str, tuple[Callable[..., li.Value], bool]] = {
    "z h + (1-z) n": (lambda z, h, n: z * h + (1.0 - z) * n, False),
    "(1-z) n + h z": (lambda z, h, n: (1.0 - z) * n + h * z, False),
    "(h-n) z + n": (lambda z, h, n: (h - n) * z + n, False),
    "n + z (h-n)": (lambda z, h, n: n + z * (h - n), False),
    "(1-z) h + z n": (lambda z, h, n: (1.0 - z) * h + z * n, True),
    "h + z (n-h)": (lambda z, h, n: h + z * (n - h), True),
}


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("biased", [True, False])
def test_ways_to_write_a_gru(mix: str, after: bool, biased: bool, rng: np.random.Generator) -> None:
    names = [f"{k}{g}" for k in "wr" for g in "rzn"]
    w = {n: li.weight(n, rng.standard_normal((I if n[0] == "w" else H, H)).astype("f") / 2) for n in names}
    b = {n: li.weight(n, rng.standard_normal(H).astype("f")) for n in ("br", "bz", "bn", "bh")}
    x = li.input("x", ("T", "B", I))

    def gate(row: li.Value, h: li.Value, g: str) -> li.Value:
        v = row @ w[f"w{g}"] + h @ w[f"r{g}"]
        return v + b[f"b{g}"] if biased else v

    def cell(h: li.Value, row: li.Value) -> Any:
        r, z = li.logistic(gate(row, h, "r")), li.logistic(gate(row, h, "z"))
        inner = h @ w["rn"] + b["bh"] if biased else h @ w["rn"]
        product = r * inner if after else (r * h) @ w["rn"]
        given = row @ w["wn"] + b["bn"] if biased else row @ w["wn"]
        h = MIXES[mix][0](z, h, li.tanh(given + product))
        return h, h

    h, y = li.scan(cell, li.zeros(("B", H)), x)
    graph = li.Graph("gru", [x], {"y": y, "h": h})
    (n,) = core(fuse(graph, {"x": rng.standard_normal((T, B, I)).astype("f")}))
    assert n.op.name == "gru"
    assert (n.attrs["flip_z"], n.attrs["reset_after"]) == (MIXES[mix][1], after)
    assert (n.arg("b_hn") is not None) == (biased and after)


# nearly cells -----------------------------------------------------------------------------------


def _left_alone(rng: np.random.Generator, **how: Any) -> str:
    graph, inputs = Lstm(rng, **how).graph()
    result = fuse(graph, inputs)
    assert ops_of(result.graph).count("scan") == 1
    assert "lstm" not in ops_of(result.graph)
    (reason,) = reasons(result)
    return reason


def test_a_gate_that_something_else_reads(rng: np.random.Generator) -> None:
    reason = _left_alone(rng, keep=("h", "i"), more=lambda p, i, h, c, x, w: {"i": i})
    assert reason == "the loop is not fused: the loop gives a value that is neither state"


def test_a_pre_activation_that_something_else_reads(rng: np.random.Generator) -> None:
    reason = _left_alone(rng, keep=("h", "p"), more=lambda p, i, h, c, x, w: {"p": p["o"] * 2.0})
    assert reason == "the loop is not fused: the loop gives a value that is neither state"


def test_another_activation(rng: np.random.Generator) -> None:
    reason = _left_alone(rng, sigmoid=lambda x: li.abs(li.sin(x)))
    assert reason == "the loop is no LSTM, GRU or RNN cell"


def test_one_other_activation(rng: np.random.Generator) -> None:
    calls = itertools.count()

    def third(x: li.Value) -> li.Value:
        return li.sin(x) if next(calls) == 1 else li.logistic(x)

    assert _left_alone(rng, sigmoid=third) == "the loop is not fused: a gate is sine, not an activation of lstm"


def _loop(rng: np.random.Generator, cell: Callable[..., Any], carries: int) -> PassResult:
    x = li.input("x", ("T", "B", I))
    w = [li.weight(f"w{k}", rng.standard_normal((I, H)).astype("f")) for k in range(4)]
    r = [li.weight(f"r{k}", rng.standard_normal((H, H)).astype("f")) for k in range(4)]
    init = tuple(li.zeros(("B", H)) for _ in range(carries))

    def body(carry: Any, row: li.Value) -> Any:
        new = cell(row, carry, w, r)
        return new, new[0]

    _, y = li.scan(body, init, x)
    return fuse(li.Graph("near", [x], {"y": y}), {"x": rng.standard_normal((T, B, I)).astype("f")})


def test_a_state_used_in_another_way(rng: np.random.Generator) -> None:
    """A peephole: the gate reads c other than through the products."""

    def cell(x: li.Value, s: Any, w: Any, r: Any) -> Any:
        h, c = s
        i, f, g, o = (x @ w[k] + h @ r[k] for k in range(4))
        c = li.logistic(f + 0.1 * c) * c + li.logistic(i) * li.tanh(g)
        return li.logistic(o) * li.tanh(c), c

    result = _loop(rng, cell, 2)
    assert reasons(result) == ["the loop is not fused: a gate reads the state other than through its product"]
    assert "scan" in ops_of(result.graph)


def test_states_that_change_places(rng: np.random.Generator) -> None:
    """c is mixed from h: the equations of an LSTM, the loop of something else."""

    def cell(x: li.Value, s: Any, w: Any, r: Any) -> Any:
        h, c = s
        i, f, g, o = (x @ w[k] + c @ r[k] for k in range(4))
        c = li.logistic(f) * h + li.logistic(i) * li.tanh(g)
        return li.logistic(o) * li.tanh(c), c

    assert reasons(_loop(rng, cell, 2)) == [
        "the loop is not fused: the new state is not mixed from the state that it replaces"
    ]


def test_a_third_carry(rng: np.random.Generator) -> None:
    def cell(x: li.Value, s: Any, w: Any, r: Any) -> Any:
        h, c, total = s
        i, f, g, o = (x @ w[k] + h @ r[k] for k in range(4))
        c = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
        h = li.logistic(o) * li.tanh(c)
        return h, c, total + h

    result = _three(rng, cell)
    assert reasons(result) == ["the loop is not fused: it carries 3 values, an LSTM two"]


def _three(rng: np.random.Generator, cell: Callable[..., Any]) -> PassResult:
    x = li.input("x", ("T", "B", I))
    w = [li.weight(f"w{k}", rng.standard_normal((I, H)).astype("f")) for k in range(4)]
    r = [li.weight(f"r{k}", rng.standard_normal((H, H)).astype("f")) for k in range(4)]
    final, _ = li.scan(lambda s, row: (cell(row, s, w, r), None), (li.zeros(("B", H)),) * 3, x)
    inputs = {"x": rng.standard_normal((T, B, I)).astype("f")}
    return fuse(li.Graph("three", [x], {"h": final[0], "sum": final[2]}), inputs)


def test_a_gru_whose_gates_read_the_new_row_only(rng: np.random.Generator) -> None:
    """z without a product with h."""

    def cell(x: li.Value, s: Any, w: Any, r: Any) -> Any:
        (h,) = s
        reset, z = li.logistic(x @ w[0] + h @ r[0]), li.logistic(x @ w[1])
        return (z * h + (1.0 - z) * li.tanh(x @ w[2] + reset * (h @ r[2])),)

    assert reasons(_loop(rng, cell, 1)) == [
        "the loop is not fused: a gate does not have one product with the old state"
    ]


def test_half_precision_is_left_alone() -> None:
    """The op computes in f32 inside and rounds once: other bits than a loop in f16."""
    x, r = li.input("x", ("T", "B", H), "f16"), li.weight("r", np.eye(H, dtype=np.float16))
    _, y = li.scan(lambda h, row: ((v := li.tanh(row + h @ r)), v), li.zeros(("B", H), "f16"), x)
    result = FUSE.run(li.Graph("half", [x], {"y": y}))
    assert reasons(result) == ["the loop is not fused: the op computes in f32 inside, the cell in f16"]


# single steps -----------------------------------------------------------------------------------


def _step(use: Callable[..., dict[str, li.Value]]) -> PassResult:
    rng = np.random.default_rng(3)
    x, h, c = li.input("x", ("B", I)), li.input("h", ("B", H)), li.input("c", ("B", H))
    w = li.weight("w", rng.standard_normal((I, 4 * H)).astype("f"))
    r = li.weight("r", rng.standard_normal((H, 4 * H)).astype("f"))
    z = x @ w + h @ r
    i, f, g, o = (z[:, k * H : (k + 1) * H] for k in range(4))
    gates = li.logistic(i), li.logistic(f), li.tanh(g), li.logistic(o)
    new = gates[1] * c + gates[0] * gates[2]
    out = gates[3] * li.tanh(new)
    graph = li.Graph("step", [x, h, c], use(out, new, gates, z))
    inputs = {n: rng.standard_normal((B, k)).astype("f") for n, k in (("x", I), ("h", H), ("c", H))}
    return fuse(graph, inputs)


def test_a_step_of_which_both_states_are_read() -> None:
    result = _step(lambda h, c, gates, z: {"h": h, "c": c, "more": c * 2.0})
    (n,) = core(result)
    assert n.op.name == "lstm"
    assert n.arg("w_ih") is not None


def test_a_step_of_which_one_state_is_read() -> None:
    (n,) = core(_step(lambda h, c, gates, z: {"h": h}))
    assert n.op.name == "lstm"


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (lambda h, c, g, z: {"h": h, "c": c, "i": g[0]}, "its logistic is read by something else"),
        (lambda h, c, g, z: {"h": h, "z": li.exp(z)}, "its add is read by something else"),
        (lambda h, c, g, z: {"h": h, "t": li.tanh(c) + 1.0}, "its tanh is read by something else"),
    ],
    ids=["gate", "pre-activation", "activated cell"],
)
def test_a_step_whose_inside_is_read(use: Callable[..., Any], reason: str) -> None:
    result = Pipeline.parse("cse,fuse-cell").run(_step(use).graph)
    assert "lstm" not in ops_of(result.graph)
    assert f"a step is not fused: {reason}" in reasons(result)


def test_a_loop_inside_a_loop(rng: np.random.Generator) -> None:
    x = li.input("x", (4, "T", "B", I))
    w, r = (li.weight(n, rng.standard_normal((k, H)).astype("f")) for n, k in (("w", I), ("r", H)))

    def outer(s: li.Value, rows: li.Value) -> Any:
        h, _ = li.scan(lambda h, row: (li.tanh(row @ w + h @ r), None), li.zeros(("B", H)), rows)
        return s + h, s

    s, _ = li.scan(outer, li.zeros(("B", H)), x)
    graph = li.Graph("g", [x], {"s": s})
    result = fuse(graph, {"x": rng.standard_normal((4, T, B, I)).astype("f")})
    (loop,) = [n for n in result.graph.nodes if n.op.name == "scan"]
    assert "rnn" in ops_of(loop.attrs["body"])
