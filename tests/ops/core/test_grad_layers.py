"""Gradients of lstm, gru and rnn: every operand, gradients arriving at every result."""

from typing import Any

import layer_cases as cases
import numpy as np
import plain_layers
import pytest
from device import need
from torch_records import RECORDED, close, recorded, torch_graph

import lstm_ir as li
from lstm_ir.passes.decompose import decompose
from lstm_ir.training.gradient import grad, vjp

CORE = {"lstm", "gru", "rnn", "lstm_grad", "gru_grad", "rnn_grad"}
PARTS = 4


def float_names(operands: dict[str, Any]) -> list[str]:
    return [k for k, v in cases.arrays(operands).items() if v.dtype.kind == "f"]


def pulled(op: str, name: str, remat: int | None = None) -> tuple[li.Graph, Any, Any, Any]:
    """The vjp graph over all results and float operands; its inputs; the operands; the
    attributes."""
    operands, attrs = cases.build(op, name)
    graph = cases.graph(op, operands, attrs)
    results = plain_layers.run(op, cases.arrays(operands), attrs)
    rng = np.random.default_rng(cases.SEED)
    bars = {k: rng.normal(size=v.shape) for k, v in results.items()}
    back = vjp(graph, list(graph.output_names), float_names(operands), remat=remat)
    given = {**cases.arrays(operands), **{f"ct_{k}": v for k, v in bars.items()}}
    return back, given, operands, (attrs, bars)


def check_slopes(op: str, got: dict[str, Any], operands: Any, attrs: Any, bars: Any) -> None:
    """Along a random direction of every operand, against a complex step through plain NumPy."""
    rng = np.random.default_rng(cases.SEED + 1)
    for k in float_names(operands):
        along = rng.normal(size=operands[k].shape)
        want = plain_layers.slope(op, cases.arrays(operands), attrs, bars, k, along)
        have = float((got[f"d_{k}"] * along).sum())
        assert abs(have - want) <= 1e-10 * max(1.0, abs(want)), (k, have, want)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("op", ["lstm", "gru", "rnn"])
def test_every_feature_alone_and_in_pairs(op: str, part: int) -> None:
    for i, name in enumerate(cases.names(op)[part::PARTS]):
        back, given, operands, (attrs, bars) = pulled(op, name)
        got = li.interpret(back, given)
        try:
            check_slopes(op, got, operands, attrs, bars)
        except AssertionError as e:
            raise AssertionError(f"{op} {name}, seed {cases.SEED}: {e}") from e
        if i % 6 == 0:
            lowered = decompose(back)
            li.verify(lowered)
            assert not CORE & {n.op.name for n in lowered.nodes}
            again = li.interpret(lowered, given)
            for k in got:
                close(again[k], got[k], 1e-12)


@pytest.mark.parametrize(("op", "remat"), [("lstm", 4), ("gru", 3), ("rnn", 11)])
def test_remat_changes_nothing(op: str, remat: int) -> None:
    for name in ("plain", "lengths+bidirectional", "count+mask", "batch+states"):
        name = name if name in cases.names(op) else "+".join(reversed(name.split("+")))
        back, given, operands, (attrs, bars) = pulled(op, name, remat)
        check_slopes(op, li.interpret(back, given), operands, attrs, bars)


@pytest.mark.parametrize("op", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("sizes", [(0, 3, 5, 7, 4), (1, 1, 1, 1, 1), (2, 1, 3, 64, 16)])
def test_degenerate_sizes(op: str, sizes: Any) -> None:
    for name in ("states", "lengths+bidirectional", "count+reverse", "bidirectional+hold"):
        name = name if name in cases.names(op) else "+".join(reversed(name.split("+")))
        operands, attrs = cases.build(op, name, sizes=sizes)
        graph = cases.graph(op, operands, attrs)
        results = plain_layers.run(op, cases.arrays(operands), attrs)
        rng = np.random.default_rng(3)
        bars = {k: rng.normal(size=v.shape) for k, v in results.items()}
        back = vjp(graph, list(graph.output_names), float_names(operands))
        given = {**cases.arrays(operands), **{f"ct_{k}": v for k, v in bars.items()}}
        check_slopes(op, li.interpret(back, given), operands, attrs, bars)


@pytest.mark.parametrize("op", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("name", ["lengths", "lengths+bidirectional", "count+reverse", "lengths+mask"])
def test_what_lies_past_the_end_never_matters(op: str, name: str) -> None:
    back, given, operands, _ = pulled(op, name)
    clean = li.interpret(back, given)
    lengths = given.get("lengths")
    ends = [int(given["count"])] * cases.B if lengths is None else list(lengths)
    dirty = {k: np.array(v) for k, v in given.items()}
    for b, end in enumerate(ends):
        for k in ("x", *(k for k in dirty if k.startswith("ct_") and dirty[k].shape[0] == cases.T)):
            dirty[k][end:, b] = np.nan
        assert (clean["d_x"][end:, b] == 0).all()
        if end == 0 and operands["h0"] is None:
            assert (clean["d_x"][:, b] == 0).all()
    got = li.interpret(back, dirty)
    for k in clean:
        if k.startswith("d_"):
            np.testing.assert_array_equal(got[k], clean[k])


def test_a_row_of_length_zero_passes_its_state_gradients_through() -> None:
    back, given, _, (_, bars) = pulled("lstm", "states+lengths")
    got = li.interpret(back, given)
    b = list(given["lengths"]).index(0)
    np.testing.assert_array_equal(got["d_h0"][:, b], bars["h_n"][:, b])
    np.testing.assert_array_equal(got["d_c0"][:, b], bars["c_n"][:, b])


SAVED = {"lstm": ["y", "gates", "cells", "activated"], "gru": ["y", "gates", "inner"], "rnn": ["y", "pre"]}


@pytest.mark.parametrize("op", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("name", ["plain", "lengths+bidirectional", "gate_clip+states", "batch+mask"])
def test_an_absent_saved_value_is_derived(op: str, name: str) -> None:
    name = name if name in cases.names(op) else "+".join(reversed(name.split("+")))
    operands, attrs = cases.build(op, name)
    results = plain_layers.run(op, cases.arrays(operands), attrs)
    rng = np.random.default_rng(7)
    d_y, d_h_n = (rng.normal(size=results[k].shape) for k in ("y", "h_n"))
    saved = SAVED[op]
    want = None
    for mask in range(2 ** len(saved)):
        given = {s: results[s] for i, s in enumerate(saved) if not mask >> i & 1}
        out = getattr(li, f"{op}_grad")(**operands, **attrs, **given, d_y=d_y, d_h_n=d_h_n)
        there = {k: v for k, v in out._asdict().items() if v is not None}
        got = li.interpret(li.Graph("g", [], there))
        want = got if want is None else want
        for k in want:
            close(got[k], want[k], 1e-12)


def test_saved_values_are_trusted() -> None:
    """Numbers that no forward pass gave: the equations of the backward step, written out."""
    rng = np.random.default_rng(11)
    T, B, I, H = 3, 2, 4, 5
    x, y = rng.normal(size=(T, B, I)), rng.normal(size=(T, B, H))
    w_ih, w_hh = rng.normal(size=(4 * H, I)), rng.normal(size=(4 * H, H))
    gates, cells = rng.random((T, B, 4 * H)), rng.normal(size=(T, B, H))
    act, d_y, d_c = (rng.uniform(-1, 1, size=(T, B, H)) for _ in range(3))
    h0, c0 = rng.normal(size=(B, H)), rng.normal(size=(B, H))
    p = rng.normal(size=(3 * H))
    got = li.lstm_grad(
        x, w_ih, w_hh, np.zeros(4 * H), h0, c0, peephole=p, y=y, gates=gates, cells=cells,
        activated=act, d_y=d_y, d_cells=d_c, cell_clip=0.1, clip_gradient="straight_through",
    )  # fmt: skip
    out = li.interpret(li.Graph("g", [], {k: v for k, v in got._asdict().items() if v is not None}))
    dh, dc = np.zeros((B, H)), np.zeros((B, H))
    want = {k: np.zeros_like(v) for k, v in out.items()}
    for t in reversed(range(T)):
        i, f, g, o = np.split(gates[t], 4, axis=1)
        c_in, h_in = (c0, h0) if t == 0 else (cells[t - 1], y[t - 1])
        e_h, e_c = dh + d_y[t], dc + d_c[t]
        do = o * (1 - o) * e_h * act[t]
        dcs = (1 - act[t] ** 2) * e_h * o + e_c + do * p[2 * H :]
        dg, df = (1 - g**2) * dcs * i, f * (1 - f) * dcs * c_in
        di = i * (1 - i) * dcs * g
        da = np.concatenate([di, df, dg, do], axis=1)
        dc = dcs * f + di * p[:H] + df * p[H : 2 * H]
        dh = da @ w_hh
        want["d_x"][t] = da @ w_ih
        want["d_w_ih"][0] += da.T @ x[t]
        want["d_w_hh"][0] += da.T @ h_in
        want["d_b"][0] += da.sum(0)
        want["d_peephole"][0] += np.concatenate([di * c_in, df * c_in, do * cells[t]], 1).sum(0)
    want["d_h0"][0], want["d_c0"][0] = dh, dc
    for k in want:
        close(out[k], want[k], 1e-13)


@pytest.mark.parametrize("stem", RECORDED)
def test_recorded_pytorch_gradients(stem: str) -> None:
    data, parts = recorded(stem)
    graph = torch_graph(data, parts)
    bars = [k.removeprefix("bar/") for k in data if k.startswith("bar/")]
    names = [k.removeprefix("grad/") for k in data if k.startswith("grad/")]
    back = vjp(graph, bars, names)
    given = {k: v for k, v in data.items() if k in graph.input_names}
    got = li.interpret(back, {**given, **{f"ct_{k}": data[f"bar/{k}"] for k in bars}})
    assert len(names) >= 5
    for k in names:
        close(got[f"d_{k}"], data[f"grad/{k}"], 1e-12)


def test_jax_grad_of_an_independent_cell() -> None:
    need("jax")
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(5)
    T, B, I, H = 11, 3, 5, 7
    values = {
        "x": rng.normal(size=(T, B, I)),
        "w_ih": rng.normal(size=(4 * H, I)),
        "w_hh": rng.normal(size=(4 * H, H)),
        "b": rng.normal(size=4 * H),
    }

    def loss(v: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(x @ v["w_ih"].T + h @ v["w_hh"].T + v["b"], 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (h := jax.nn.sigmoid(o) * jnp.tanh(c), c), h

        zero = jnp.zeros((B, H))
        (_, c), ys = jax.lax.scan(step, (zero, zero), v["x"])
        return (ys**2).sum() + jnp.sin(c).sum()

    with jax.enable_x64(True):
        want = jax.grad(loss)({k: jnp.asarray(v) for k, v in values.items()})
        want = {k: np.asarray(v) for k, v in want.items()}
    inputs = {k: li.input(k, v.shape, "f64") for k, v in values.items()}
    r = li.lstm(*inputs.values())
    total = li.sum(r.y * r.y) + li.sum(li.sin(r.c_n))
    back = grad(li.Graph("g", inputs.values(), {"loss": total}), "loss", list(values))
    got = li.interpret(back, values)
    for k in values:
        close(got[f"d_{k}"], want[k], 1e-12)


@pytest.mark.parametrize("op", ["lstm", "gru", "rnn"])
def test_second_derivatives(op: str) -> None:
    """d/dw of |d loss/dx|^2 against central differences of the first gradient."""
    operands, attrs = cases.build(op, "lengths", sizes=(4, 2, 3, 2, 2))
    operands["lengths"] = np.array([4, 2], np.int32)
    inputs = {k: li.input(k, v.shape, v.dtype.name) for k, v in cases.arrays(operands).items()}
    r = getattr(li, op)(**{**operands, **inputs}, **attrs)
    first = grad(li.Graph("g", inputs.values(), {"loss": li.sum(r.y * r.y * r.y)}), "loss", ["x", "w_hh"])
    square = li.sum(first.output("d_x") * first.output("d_x")) + li.sum(first.output("d_w_hh"))
    again = li.Graph("h", first.params, {"s": square})
    second = grad(again, "s", ["x", "w_ih", "w_hh", "b"])
    li.verify(decompose(second))
    got = li.interpret(second, cases.arrays(operands))
    rng = np.random.default_rng(13)
    for k in ("x", "w_ih", "w_hh", "b"):
        along, e = rng.normal(size=operands[k].shape), 1e-5
        ends = [
            float(li.interpret(again, {**cases.arrays(operands), k: operands[k] + s * e * along})["s"]) for s in (1, -1)
        ]
        want = (ends[0] - ends[1]) / (2 * e)
        have = float((got[f"d_{k}"] * along).sum())
        assert abs(have - want) <= 1e-6 * max(1.0, abs(want)), (k, have, want)


def test_the_forward_pass_runs_once() -> None:
    """The saving twin takes the place of the layer, and the loop holds the recurrence alone."""
    operands, attrs = cases.build("lstm", "bidirectional")
    graph = cases.graph("lstm", operands, attrs)
    back = vjp(graph, ["y"], float_names(operands))
    assert [n.op.name for n in back.nodes if n.op.name in CORE] == ["lstm", "lstm_grad"]
    scans = [n for n in decompose(back).nodes if n.op.name == "scan"]
    assert len(scans) == 2
    dots = [n for n in scans[1].attrs["body"].nodes if n.op.name == "dot_general"]
    assert len(dots) == 1


HIDDEN = {
    "lstm": ("elu(-0.4)", "sigmoid", "leaky_relu(-0.2)", "sigmoid", "leaky_relu(-0.1)"),
    "gru": ("leaky_relu(-0.3)", "sigmoid", "elu(-0.7)"),
    "rnn": ("leaky_relu(-0.1)",),
}


@pytest.mark.parametrize("op", list(HIDDEN))
def test_an_activation_that_hides_its_slope(op: str) -> None:
    """Its output does not tell its slope, so the layer is differentiated as a loop."""
    for name in ("lengths+mask", "count+reverse"):
        operands, attrs = cases.build(op, name if name in cases.names(op) else "lengths+mask")
        attrs = {**attrs, "activations": HIDDEN[op]}
        graph = cases.graph(op, operands, attrs)
        rng = np.random.default_rng(5)
        results = plain_layers.run(op, cases.arrays(operands), attrs)
        bars = {k: rng.normal(size=v.shape) for k, v in results.items()}
        back = vjp(graph, list(graph.output_names), float_names(operands))
        given = {**cases.arrays(operands), **{f"ct_{k}": v for k, v in bars.items()}}
        check_slopes(op, li.interpret(back, given), operands, attrs, bars)


@pytest.mark.parametrize(("acts", "remat"), [(("sigmoid",) * 4 + ("elu(-1)",), None), ((), 4)])
def test_a_loop_does_not_pass_a_clip_straight_through(acts: tuple[str, ...], remat: Any) -> None:
    operands, attrs = cases.build("lstm", "straight")
    graph = cases.graph("lstm", operands, {**attrs, "activations": acts})
    why = "activation elu" if acts else "remat"
    with pytest.raises(li.GradientError, match=rf"^lstm: {why}.* does not go with clip_gradient"):
        vjp(graph, "y", "x", remat=remat)


def test_a_gradient_op_refuses_an_activation_that_hides_its_slope() -> None:
    operands, attrs = cases.build("rnn", "plain")
    with pytest.raises(li.IRError, match=r"rnn_grad: activation leaky_relu\(-0.1\) has no gradient"):
        li.rnn_grad(**operands, **attrs, activations=HIDDEN["rnn"], d_y=np.zeros((11, 3, 7)))
