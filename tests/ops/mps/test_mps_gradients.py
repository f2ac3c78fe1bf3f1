"""MPSGraph's gradient ops: differences over every flag, li.vjp, chunks of time."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import mps_cases as mps
import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ir.opdef import OPS

SMALL = (4, 2, 3, 2)
ACTS = ("none", "relu", "tanh", "sigmoid", "hardSigmoid")
GATE_ACTS = {
    mps.LSTM: [n for n in OPS[mps.LSTM].attrs if n.lower().endswith("activation")],
    mps.GRU: [n for n in OPS[mps.GRU].attrs if n.endswith("Activation")],
    mps.RNN: ["activation"],
}
FLAGS = {mps.LSTM: ("forgetGateLast",), mps.GRU: ("resetGateFirst", "resetAfter", "flipZ"), mps.RNN: ()}
STEP = 1e-6


def subsets(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for keep in product((False, True), repeat=len(names)):
        yield tuple(n for n, k in zip(names, keep, strict=True) if k)


def flags(op: str) -> list[mps.Arrays]:
    """Every direction with every value of the other flags."""
    choices = product((False, True), repeat=len(FLAGS[op]))
    more = [dict(zip(FLAGS[op], values, strict=True)) for values in choices]
    return [d | m for d in mps.DIRECTIONS for m in more]


def last(op: str, attrs: mps.Arrays, rows: Any) -> Any:
    """[N,D*H] of the step that each direction processes last."""
    if not attrs.get("bidirectional"):
        return rows[0] if attrs.get("reverse") else rows[-1]
    H = rows.shape[2] // 2
    return np.concatenate([rows[-1][:, :H], rows[0][:, H:]], axis=1)


def weighed(op: str, a: mps.Arrays, attrs: mps.Arrays, given: mps.Arrays) -> float:
    """What the gradient op differentiates: h, and h and c of the last step, times what arrives."""
    out = mps.run(op, a, {**attrs, "training": True})
    total = float((out["h"] * given["sourceGradient"]).sum())
    for name, result in (("stateGradient", "h"), ("cellGradient", "c")):
        if name in given:
            total += float((last(op, attrs, out[result]) * given[name]).sum())
    return total


def check(op: str, attrs: mps.Arrays, present: tuple[str, ...], r: np.random.Generator) -> None:
    """Both the meaning and the expansion, along a random direction of each operand."""
    later = [n for n in present if n in mps.LATER[op]]
    a = mps.operands(r, op, [n for n in present if n not in later], attrs, SMALL, scale=0.6)
    given = mps.backward(r, op, a, attrs, later)
    back = mps.graph(mps.BACK[op], given, attrs)
    got = {k[2:]: v for k, v in li.interpret(back, given).items()}
    assert list(got) == mps.result_names(mps.BACK[op], a, attrs)
    again = li.interpret(mps.expanded(back), given)
    mps.close({k[2:]: v for k, v in again.items()}, got, 1e-11, (op, attrs, present))
    for name in got:
        along = r.standard_normal(a[name].shape)
        ends = [weighed(op, a | {name: a[name] + s * STEP * along}, attrs, given) for s in (1, -1)]
        want = (ends[0] - ends[1]) / (2 * STEP)
        have = float((got[name] * along).sum())
        assert abs(have - want) <= 1e-7 * max(1.0, abs(want)), (op, attrs, present, name, have, want)


@pytest.mark.parametrize("op", mps.FORWARD)
def test_every_flag_with_every_operand(op: str, rng: np.random.Generator) -> None:
    for attrs in flags(op):
        check(op, attrs, (*mps.OPTIONAL[op], *mps.LATER[op]), rng)


@pytest.mark.slow_cases(op=["mps.LSTM"])
@pytest.mark.parametrize("op", mps.FORWARD)
def test_every_set_of_operands(op: str, rng: np.random.Generator) -> None:
    """Nil or not, with flags that change from set to set."""
    every = flags(op)
    for i, present in enumerate(subsets((*mps.OPTIONAL[op], *mps.LATER[op]))):
        check(op, every[i % len(every)], present, rng)


@pytest.mark.parametrize("op", mps.FORWARD)
def test_every_activation(op: str, rng: np.random.Generator) -> None:
    every = (*mps.OPTIONAL[op], *mps.LATER[op])
    for attr, name in product(GATE_ACTS[op], ACTS):
        check(op, {attr: name, "bidirectional": name == "relu"}, every, rng)


def test_corners_have_slope_zero() -> None:
    """relu at 0 and hardSigmoid at both ends; the slope of hardSigmoid inside is 0.2."""
    for name, z, slope in (
        ("relu", [0.0, 1e-3, -0.0], [0, 1, 0]),
        ("hardSigmoid", [-2.5, 2.5, 2.4, 0.0, -2.4], [0, 0, 0.2, 0.2, 0.2]),
        ("none", [0.0], [1]),
    ):
        H = len(z)
        a = {
            "source": np.zeros((1, 1, H)),
            "recurrentWeight": np.zeros((H, H)),
            "sourceGradient": np.ones((1, 1, H)),
            "zState": np.array(z).reshape(1, 1, H),
        }
        g = mps.graph(mps.BACK[mps.RNN], a, {"activation": name})
        for graph in (g, mps.expanded(g)):
            got = li.interpret(graph, a)["r_source"].ravel()
            np.testing.assert_allclose(got, slope, atol=1e-15)


def pulled(
    op: str, attrs: mps.Arrays, a: mps.Arrays, of: list[str], r: np.random.Generator
) -> tuple[li.Graph, mps.Arrays]:
    """The vjp graph over results `of` for every operand, and its inputs."""
    graph = mps.graph(op, a, attrs)
    names = [f"r_{n}" for n in of]
    cts = {f"ct_{n}": r.standard_normal(graph.output(n).shape) for n in names}
    return li.vjp(graph, names, [n for n in a if n != "mask"]), {**a, **cts}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("op", mps.FORWARD)
def test_vjp_is_the_gradient_op(op: str, training: bool, rng: np.random.Generator) -> None:
    for attrs in flags(op):
        a = mps.operands(rng, op, mps.OPTIONAL[op], attrs, SMALL)
        attrs = attrs | {"training": training}
        back, given = pulled(op, attrs, a, ["h"], rng)
        used = [n.op.name for n in back.nodes if "." in n.op.name]
        assert used == [op, mps.BACK[op]], used
        more = mps.backward(rng, op, a, attrs, ()) | {"sourceGradient": given["ct_r_h"]}
        want = mps.run(mps.BACK[op], more, attrs)
        got = li.interpret(back, given)
        mps.close({n: got[f"d_{n}"] for n in want}, want, 1e-12, (op, attrs))
        np.testing.assert_array_equal(got["r_h"], mps.run(op, a, attrs)["h"])


@pytest.mark.parametrize("op", mps.FORWARD)
def test_gradients_arriving_elsewhere(op: str, rng: np.random.Generator) -> None:
    """At c and z, for which Apple's gradient ops have no operand; and the gradient of the mask."""
    for attrs in flags(op):
        a = mps.operands(rng, op, mps.OPTIONAL[op], attrs, SMALL)
        attrs = attrs | {"training": True}
        of = mps.result_names(op, a, attrs)
        graph = mps.graph(op, a, attrs)
        for chosen in [[n] for n in of] + [of]:
            names = [f"r_{n}" for n in chosen]
            cts = {n: rng.standard_normal(graph.output(n).shape) for n in names}
            back = li.vjp(graph, names, list(a))
            got = li.interpret(back, {**a, **{f"ct_{n}": v for n, v in cts.items()}})
            for name in a:
                along = rng.standard_normal(a[name].shape)
                ends = []
                for s in (STEP, -STEP):
                    out = mps.run(op, a | {name: a[name] + s * along}, attrs)
                    ends.append(sum(float((out[n[2:]] * ct).sum()) for n, ct in cts.items()))
                want, have = ((ends[0] - ends[1]) / (2 * STEP), float((got[f"d_{name}"] * along).sum()))
                assert abs(have - want) <= 1e-7 * max(1.0, abs(want)), (op, attrs, chosen, name)


def test_the_cell_alone(rng: np.random.Generator) -> None:
    """produceCell without training: what arrives at c needs gates that the call did not keep."""
    attrs = {"produceCell": True, "bidirectional": True}
    a = mps.operands(rng, mps.LSTM, mps.OPTIONAL[mps.LSTM], attrs, SMALL)
    graph = mps.graph(mps.LSTM, a, attrs)
    ct = rng.standard_normal(graph.output("r_c").shape)
    got = li.interpret(li.vjp(graph, "r_c", "source"), a | {"ct_r_c": ct})["d_source"]
    for at in np.ndindex(a["source"].shape):
        ends = []
        for s in (STEP, -STEP):
            moved = a["source"].copy()
            moved[at] += s
            ends.append(float((mps.run(mps.LSTM, a | {"source": moved}, attrs)["c"] * ct).sum()))
        assert abs(got[at] - (ends[0] - ends[1]) / (2 * STEP)) < 1e-8, at


@pytest.mark.parametrize("op", mps.FORWARD)
def test_the_gradient_ops_have_gradients(op: str, rng: np.random.Generator) -> None:
    """Second order, by every operand of the gradient op, saved values included."""
    attrs = {"bidirectional": True} | ({"activation": "tanh"} if op == mps.RNN else {})
    a = mps.operands(rng, op, mps.OPTIONAL[op], attrs, (3, 2, 3, 2))
    given = mps.backward(rng, op, a, attrs, mps.LATER[op])
    graph = mps.graph(mps.BACK[op], given, attrs)
    of = list(graph.output_names)
    cts = {n: rng.standard_normal(graph.output(n).shape) for n in of}
    wrt = [n for n in given if n != "bias"]  # da does not depend on it
    if op == mps.GRU:
        wrt.remove("secondaryBias")
    got = li.interpret(li.vjp(graph, of, wrt), {**given, **{f"ct_{n}": v for n, v in cts.items()}})
    for name in wrt:
        along = rng.standard_normal(given[name].shape)
        ends = []
        for s in (STEP, -STEP):
            out = mps.run(mps.BACK[op], given | {name: given[name] + s * along}, attrs)
            ends.append(sum(float((out[n[2:]] * ct).sum()) for n, ct in cts.items()))
        want, have = (ends[0] - ends[1]) / (2 * STEP), float((got[f"d_{name}"] * along).sum())
        assert abs(have - want) <= 1e-6 * max(1.0, abs(want)), (op, name, have, want)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("op", mps.FORWARD)
def test_chunks_of_time_make_the_whole(op: str, reverse: bool, rng: np.random.Generator) -> None:
    """d initState and d initCell of a later chunk are the state gradients of the one before it."""
    attrs = {"reverse": reverse, "training": True}
    a = mps.operands(rng, op, mps.OPTIONAL[op], attrs)
    whole = mps.backward(rng, op, a, attrs, mps.LATER[op])
    want = mps.run(mps.BACK[op], whole, attrs)
    states = {"initState": "h", "initCell": "c"}
    cuts = [slice(0, 4), slice(4, 5), slice(5, 11)]  # in source time
    cuts = cuts[::-1] if reverse else cuts
    calls, now = [], dict(a)
    for cut in cuts:
        call = now | {"source": a["source"][cut], "sourceGradient": whole["sourceGradient"][cut]}
        out = li.interpret(mps.graph(op, {n: call[n] for n in a}, attrs), {n: call[n] for n in a})
        call |= {operand: out[f"r_{result}"] for operand, result in mps.SAVED[op].items()}
        calls.append(call)
        now |= {s: last(op, attrs, out[f"r_{r}"]) for s, r in states.items() if s in a}
    later = {n: whole[n] for n in mps.LATER[op]}
    total: mps.Arrays = {}
    pieces = {}
    for cut, call in reversed(list(zip(cuts, calls, strict=True))):
        given = call | later
        got = li.interpret(mps.graph(mps.BACK[op], given, attrs), given)
        later = {"stateGradient": got["r_initState"]}
        if op == mps.LSTM:
            later["cellGradient"] = got["r_initCell"]
        pieces[cut.start] = got["r_source"]
        for n in set(want) - {"source", *states}:
            total[n] = total.get(n, 0) + got[f"r_{n}"]
    found = {"source": np.concatenate([pieces[k] for k in sorted(pieces)])} | total
    found |= {"initState": later["stateGradient"]}
    if op == mps.LSTM:
        found |= {"initCell": later["cellGradient"]}
    mps.close({n: found[n] for n in want}, want, 1e-12, op)
