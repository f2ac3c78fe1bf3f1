"""Gradients of the block ops: the Grad ops', differences, straight-through clip, second order."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tf_cases as tf

import lstm_ir as li

T, B, I, C = 5, 3, 4, 2
FORWARD = (tf.CELL, tf.SEQ, tf.SEQ_V2, tf.GRU)
PAIR = {tf.CELL: tf.CELL_GRAD, tf.SEQ: tf.SEQ_GRAD, tf.SEQ_V2: tf.SEQ_GRAD_V2, tf.GRU: tf.GRU_GRAD}
MAIN = {tf.CELL: ("cs", "h"), tf.SEQ: ("cs", "h"), tf.SEQ_V2: ("cs", "h"), tf.GRU: ("h",)}
Arrays = dict[str, Any]


def floats(a: Arrays) -> list[str]:
    """Operands that have a gradient."""
    return [n for n in a if n != "seq_len_max"]


def attributes(op: str, use_peephole: bool, **more: Any) -> dict[str, Any]:
    """No clip unless it is given."""
    if "GRU" in op:
        return {}
    clip = {} if "Grad" in op else {"cell_clip": 0.0}
    return {"use_peephole": use_peephole} | clip | more


def cotangents(r: np.random.Generator, g: li.Graph, names: Sequence[str]) -> Arrays:
    """Random gradients arriving at the outputs `names`."""
    return {f"ct_{n}": r.standard_normal(g.output(n).shape) for n in names}


def difference(f: Callable[[Arrays], float], a: Arrays, name: str, step: float = 1e-5) -> Any:
    """Central differences of f by every element of a[name]."""
    out = np.zeros_like(a[name])
    for at in np.ndindex(out.shape):
        ends = []
        for sign in (1, -1):
            moved = a[name].copy()
            moved[at] += sign * step
            ends.append(f(a | {name: moved}))
        out[at] = (ends[0] - ends[1]) / (2 * step)
    return out


def check(g: li.Graph, a: Arrays, of: Sequence[str], wrt: Sequence[str], cts: Arrays) -> None:
    """li.vjp against central differences of sum(<output, cotangent>)."""

    def loss(given: Arrays) -> float:
        out = li.interpret(g, given)
        return sum(float((out[n] * cts[f"ct_{n}"]).sum()) for n in of)

    got = li.interpret(li.vjp(g, of, wrt), a | cts)
    for n in wrt:
        want = difference(loss, a, n)
        np.testing.assert_allclose(got[f"d_{n}"], want, rtol=1e-6, atol=1e-7, err_msg=n)


@pytest.mark.parametrize(("op", "use_peephole"), [(op, p) for op, p in tf.PEEPHOLES if op in FORWARD])
def test_finite_differences(op: str, use_peephole: bool, rng: np.random.Generator) -> None:
    """What arrives at cs and h, nothing clipped."""
    a = tf.operands(rng, op, (T, B, I, C), np.float64, count=4, scale=0.7)
    g = tf.graph(op, a, attributes(op, use_peephole))
    check(g, a, MAIN[op], floats(a), cotangents(rng, g, MAIN[op]))


@pytest.mark.parametrize("op", FORWARD)
def test_every_result_alone(op: str, rng: np.random.Generator) -> None:
    """TensorFlow drops what arrives at i, f, o, ci, co; nothing is dropped here."""
    a = tf.operands(rng, op, (3, 2, 2, 2), np.float64, count=2, scale=0.7)
    g = tf.graph(op, a, attributes(op, use_peephole=True))
    for name in g.output_names:
        wrt = [n for n in floats(a) if n in _influences(g, a, name)]
        assert len(wrt) > 3
        check(g, a, [name], wrt, cotangents(rng, g, [name]))


def _influences(g: li.Graph, a: Arrays, output: str) -> set[str]:
    """Operands that change the output when they become NaN."""
    return {n for n in floats(a) if np.isnan(li.interpret(g, a | {n: np.full_like(a[n], np.nan)})[output]).any()}


@pytest.mark.parametrize("op", FORWARD)
def test_all_results_together(op: str, rng: np.random.Generator) -> None:
    a = tf.operands(rng, op, (3, 2, 2, 2), np.float64, count=3, scale=0.7)
    g = tf.graph(op, a, attributes(op, use_peephole=True))
    check(g, a, g.output_names, floats(a), cotangents(rng, g, g.output_names))


def by_grad_op(op: str, a: Arrays, out: Arrays, cts: Arrays, use_peephole: bool) -> Arrays:
    """The gradients of all operands from the Grad op's results, as a caller forms them."""
    grad, attrs = PAIR[op], {} if op == tf.GRU else {"use_peephole": use_peephole}
    arriving = {"d_h": cts["ct_h"]}
    if op != tf.GRU:
        arriving = {"cs_grad": cts["ct_cs"], "h_grad": cts["ct_h"]}
    given = a | out | arriving
    ordered = {n: given[n] for n in tf.shapes(grad, 1, 1, 1, 1)}
    r = li.interpret(tf.graph(grad, ordered, attrs), ordered)
    if op in (tf.SEQ, tf.SEQ_V2):
        return {f"d_{n}": r[f"{n}_grad"] for n in floats(a)}
    xh, cut = np.concatenate([a["x"], a["h_prev"]], axis=1), a["x"].shape[1]
    if op == tf.CELL:
        back, d = r["dicfo"] @ a["w"].T, r["dicfo"]
        found = {"d_x": back[:, :cut], "d_cs_prev": r["cs_prev_grad"], "d_h_prev": back[:, cut:]}
        found |= {"d_w": xh.T @ d, "d_b": d.sum(0)}
        return found | {f"d_{n}": r[f"{n}_grad"] for n in ("wci", "wcf", "wco")}
    xrh = np.concatenate([a["x"], a["h_prev"] * out["r"]], axis=1)
    d_ru, d_c = r["d_r_bar_u_bar"], r["d_c_bar"]
    found = {"d_x": r["d_x"], "d_h_prev": r["d_h_prev"], "d_w_ru": xh.T @ d_ru}
    return found | {"d_w_c": xrh.T @ d_c, "d_b_ru": d_ru.sum(0), "d_b_c": d_c.sum(0)}


@pytest.mark.parametrize("use_peephole", [False, True])
@pytest.mark.parametrize("op", FORWARD)
def test_the_grad_op(op: str, use_peephole: bool, rng: np.random.Generator) -> None:
    """li.vjp gives what the Grad op gives, with a clip that acts too."""
    a = tf.operands(rng, op, (11, 3, 5, 7), np.float64, count=9)
    attrs = attributes(op, use_peephole, cell_clip=0.4)
    g = tf.graph(op, a, attrs)
    out = li.interpret(g, a)
    assert op == tf.GRU or (np.abs(out["cs"]) == np.float32(0.4)).any()
    cts = cotangents(rng, g, MAIN[op])
    got = li.interpret(li.vjp(g, MAIN[op], floats(a)), a | cts)
    want = by_grad_op(op, a, out, cts, use_peephole)
    names = [f"d_{n}" for n in floats(a)]
    tf.close({n: got[n] for n in names}, {n: want[n] for n in names}, 1e-12, op)


@pytest.mark.parametrize("op", [tf.CELL, tf.SEQ, tf.SEQ_V2])
def test_straight_through(op: str, rng: np.random.Generator) -> None:
    """Where the clip acts: slope 1 through it, whichever results the gradient arrives at."""
    a = tf.operands(rng, op, (1, 3, 4, 5), np.float64, count=1)
    attrs = attributes(op, use_peephole=False, cell_clip=0.3)
    g = tf.graph(op, a, attrs)
    out = {k: v.reshape(3, 5) for k, v in li.interpret(g, a).items()}
    assert (np.abs(out["cs"]) == np.float32(0.3)).sum() > 3
    cts = cotangents(rng, g, ["cs", "co"])
    to = {k: v.reshape(3, 5) for k, v in cts.items()}
    # one step, gradients at cs and co only: dcs reaches cs_prev by f, whether clipped or not
    dcs = to["ct_cs"] + to["ct_co"] * (1 - out["co"] ** 2)
    got = li.interpret(li.vjp(g, ["cs", "co"], "cs_prev"), a | cts)["d_cs_prev"]
    np.testing.assert_allclose(got, dcs * out["f"], rtol=1e-12, atol=1e-12)
    only_cs = li.interpret(li.vjp(g, "cs", "cs_prev"), a | {"ct_cs": cts["ct_cs"]})["d_cs_prev"]
    np.testing.assert_allclose(only_cs, to["ct_cs"] * out["f"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("op", [tf.CELL_GRAD, tf.SEQ_GRAD, tf.SEQ_GRAD_V2, tf.GRU_GRAD])
def test_derivatives_of_the_grad_ops(op: str, rng: np.random.Generator) -> None:
    """Every operand that matters, every result."""
    a = tf.operands(rng, op, (3, 2, 2, 2), np.float64, count=2, scale=0.7)
    g = tf.graph(op, a, attributes(op, use_peephole=True))
    named = zip(g.output_names, g.outputs, strict=True)
    g = li.Graph("g", g.params, {f"of_{n}": v for n, v in named})  # some are called d_NAME
    matter = set().union(*(_influences(g, a, n) for n in g.output_names))
    wrt = [n for n in floats(a) if n in matter]
    assert len(wrt) >= len(floats(a)) - 4
    check(g, a, g.output_names, wrt, cotangents(rng, g, g.output_names))


@pytest.mark.parametrize("op", FORWARD)
def test_second_order(op: str, rng: np.random.Generator) -> None:
    """The gradient of a gradient, by differences of the first."""
    a = tf.operands(rng, op, (3, 2, 2, 2), np.float64, count=3, scale=0.7)
    ins = {n: li.input(n, v.shape, li.DType.of(v.dtype)) for n, v in a.items()}
    r = li.op(op, **ins, **attributes(op, use_peephole=True))
    g = li.Graph("g", list(ins.values()), {"loss": li.sum(r.h * r.h)})
    first = li.grad(g, "loss", ["x", "h_prev"])
    check(
        li.Graph("gg", first.params, {"slope": first.output("d_x")}),
        a,
        ["slope"],
        floats(a),
        {"ct_slope": rng.standard_normal(a["x"].shape)},
    )


@pytest.mark.parametrize("op", FORWARD)
def test_an_operand_given_twice(op: str, rng: np.random.Generator) -> None:
    """One value as two operands gets the sum of both, through the Grad op and without it."""
    a = tf.operands(rng, op, (3, 2, 2, 2), np.float64, count=3, scale=0.7)
    shared, other = ("x", "h_prev") if op == tf.GRU else ("cs_prev", "h_prev")
    v = li.input("v", (2, 2), "f64")
    held = {n: w for n, w in a.items() if n not in (shared, other)}
    r = li.op(op, **held, **{shared: v, other: v}, **attributes(op, use_peephole=True))
    given = {"v": a[other]}
    for of in (MAIN[op], tuple(r._fields)):
        g = li.Graph("g", [v], {n: getattr(r, n) for n in of})
        check(g, given, of, ["v"], cotangents(rng, g, of))


@pytest.mark.parametrize("length", [0, T])
@pytest.mark.parametrize("op", [tf.SEQ, tf.SEQ_V2])
def test_no_steps_and_all(op: str, length: int, rng: np.random.Generator) -> None:
    a = tf.operands(rng, op, (T, B, I, C), np.float64, count=length, scale=0.7)
    g = tf.graph(op, a, attributes(op, use_peephole=True))
    cts = cotangents(rng, g, g.output_names)
    check(g, a, g.output_names, ["w", "cs_prev", "x"], cts)
    if length == 0:
        got = li.interpret(li.vjp(g, g.output_names, floats(a)), a | cts)
        assert not any(got[f"d_{n}"].any() for n in floats(a))
