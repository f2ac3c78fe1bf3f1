"""`fuse-cell` on activations that are written with several ops, in steps and in loops, and on what is nearly one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.importers.limits import larger, smaller
from lstm_ir.ops.core.activations import parse
from lstm_ir.passes.pipeline import Pipeline

T, B, I, H = 11, 3, 5, 7
FUSE = Pipeline.parse("canonicalize,cse,fuse-cell,canonicalize,cse")
Form = Callable[[li.Value], li.Value]


def chosen(v: li.Value) -> li.Value:
    """A line from 0 to 1 as importers write tf.maximum(0., tf.minimum(1., v))."""
    zero, one = (li.broadcast_in_dim(li.constant(np.float32(n)), v.shape, ()) for n in (0, 1))
    return larger(zero, smaller(one, v))


# Ways to write a line from 0 to 1, and its alpha and beta.
HARD: dict[str, tuple[Form, float, float]] = {
    "clamp": (lambda v: li.clamp(0.0, v * 0.2 + 0.5, 1.0), 0.2, 0.5),
    "sum first": (lambda v: li.clamp(0.0, 0.5 + 0.25 * v, 1.0), 0.25, 0.5),
    "no slope": (lambda v: li.clamp(0.0, v + 0.5, 1.0), 1.0, 0.5),
    "no offset": (lambda v: li.clamp(0.0, v * 0.5, 1.0), 0.5, 0.0),
    "relu6 by 6": (lambda v: li.minimum(li.maximum(v + 3.0, 0.0), 6.0) / 6.0, 1 / 6, 0.5),
    "relu6 times a sixth": (lambda v: li.minimum(li.maximum(v + 3.0, 0.0), 6.0) * np.float32(1 / 6), 1 / 6, 0.5),
    "lower limit last": (lambda v: li.maximum(li.minimum(v * 0.2 + 0.5, 1.0), 0.0), 0.2, 0.5),
    "limits first": (lambda v: li.minimum(1.0, li.maximum(0.0, v * 0.2 + 0.5)), 0.2, 0.5),
    "around zero": (lambda v: (li.clamp(-1.0, v, 1.0) + 1.0) / 2.0, 0.5, 0.5),
    "by choices": (li.hard_sigmoid, 0.2, 0.5),
    "by choices, the number first": (lambda v: chosen(v * 0.2 + 0.5), 0.2, 0.5),
    "falling twice": (lambda v: 1.0 - li.clamp(0.0, 0.5 - v * 0.25, 1.0), 0.25, 0.5),
}
NEARLY: dict[str, Form] = {
    "to 0.9": lambda v: li.clamp(0.0, v * 0.2 + 0.5, 0.9),
    "from 0.1": lambda v: li.clamp(0.1, v * 0.2 + 0.5, 1.0),
    "from 1 to 0": lambda v: 1.0 - li.clamp(0.0, v * 0.2 + 0.5, 1.0) * 2.0,
    "a choice of another value": lambda v: li.select(v <= 0.5, 0.0, li.minimum(v, 1.0)),
    "limits that cross": lambda v: li.clamp(1.0, v * 0.2 + 0.5, 0.0),
    "one limit": lambda v: li.minimum(v * 0.2 + 0.5, 1.0),
    "two lower limits": lambda v: li.maximum(li.maximum(v * 0.2 + 0.5, 0.0), 1.0),
    "a slope beyond all numbers": lambda v: li.clamp(0.0, v * np.float32(np.inf), 1.0),
}


def weights(rng: np.random.Generator) -> tuple[li.Value, li.Value, li.Value]:
    shapes = {"w": (I, 4 * H), "r": (H, 4 * H), "b": (4 * H,)}
    w, r, b = (li.weight(n, rng.standard_normal(s).astype("f4")) for n, s in shapes.items())
    return w, r, b


def step(gate: Form, inner: Form, outer: Form, rng: np.random.Generator) -> tuple[li.Graph, dict[str, Any]]:
    """An LSTM step: gates by `gate`, the candidate by `inner`, the state by `outer`."""
    x, h, c = li.input("x", ("B", I)), li.input("h", ("B", H)), li.input("c", ("B", H))
    w, r, b = weights(rng)
    z = x @ w + h @ r + b
    i, f, g, o = (z[:, k * H : (k + 1) * H] for k in range(4))
    new = gate(f) * c + gate(i) * inner(g)
    graph = li.Graph("step", [x, h, c], {"h": gate(o) * outer(new), "c": new})
    given = {n: rng.standard_normal((B, k)).astype("f4") for n, k in (("x", I), ("h", H), ("c", H))}
    return graph, given


def fused(graph: li.Graph, given: dict[str, Any]) -> list[li.Node]:
    """The recurrent ops after the pass, whose meaning is that of the plain ops."""
    after = FUSE.run(graph).graph
    want, got = li.interpret(graph, given), li.interpret(after, given)
    for n, a in want.items():
        np.testing.assert_allclose(got[n], a, rtol=2e-6, atol=2e-6, err_msg=n)
    assert FUSE.run(after).graph is after
    return [n for n in after.nodes if n.op.name in ("lstm", "gru", "rnn")]


def same(text: str, alpha: float, beta: float) -> bool:
    act = parse(text)
    return act.name == "hard_sigmoid" and np.allclose(act.parameters, (alpha, beta), rtol=1e-6)


@pytest.mark.parametrize("form", HARD)
def test_hard_sigmoids_of_a_step(form: str, rng: np.random.Generator) -> None:
    gate, alpha, beta = HARD[form]
    (n,) = fused(*step(gate, li.tanh, li.tanh, rng))
    acts = n.attrs["activations"]
    assert all(same(acts[k], alpha, beta) for k in (0, 1, 3))
    assert (acts[2], acts[4]) == ("tanh", "tanh")


@pytest.mark.parametrize("form", HARD)
def test_hard_sigmoids_of_a_gru_in_a_loop(form: str, rng: np.random.Generator) -> None:
    gate, alpha, beta = HARD[form]
    x = li.input("x", ("T", "B", I))
    w, r = (li.weight(n, rng.standard_normal((k, 3 * H)).astype("f4")) for n, k in (("w", I), ("r", H)))

    def cell(h: li.Value, row: li.Value) -> Any:
        p, q = row @ w, h @ r
        a, b, c = (slice(k * H, (k + 1) * H) for k in range(3))
        z = gate(p[:, b] + q[:, b])
        h = (1.0 - z) * li.tanh(p[:, c] + gate(p[:, a] + q[:, a]) * q[:, c]) + z * h
        return h, h

    _, y = li.scan(cell, li.zeros(("B", H)), x)
    (n,) = fused(li.Graph("gru", [x], {"y": y}), {"x": rng.standard_normal((T, B, I)).astype("f4")})
    assert n.op.name == "gru"
    assert all(same(act, alpha, beta) for act in n.attrs["activations"][:2])


@pytest.mark.parametrize("form", NEARLY)
def test_what_is_nearly_a_hard_sigmoid(form: str, rng: np.random.Generator) -> None:
    assert not fused(*step(NEARLY[form], li.tanh, li.tanh, rng))


@pytest.mark.parametrize(
    ("inner", "outer"), [("tanh", "relu"), ("relu", "tanh"), ("relu", "relu"), ("sigmoid", "tanh")]
)
@pytest.mark.parametrize("relu", [li.relu, lambda v: li.maximum(v, 0.0)], ids=["choice", "maximum"])
def test_other_activations_of_candidate_and_state(inner: str, outer: str, relu: Form, rng: np.random.Generator) -> None:
    forms: dict[str, Form] = {"tanh": li.tanh, "relu": relu, "sigmoid": li.logistic}
    (n,) = fused(*step(li.logistic, forms[inner], forms[outer], rng))
    assert n.op.name == "lstm"
    assert n.attrs["activations"] in ((), ("sigmoid", "sigmoid", inner, "sigmoid", outer))
    assert (n.attrs["activations"] == ()) == ((inner, outer) == ("tanh", "tanh"))


def test_limits_of_f64_are_those_of_f64() -> None:
    """6 * f32(1 / 6) is 1 up to a rounding of f32, not of f64."""
    x, r = li.input("x", ("T", "B", H), "f64"), li.weight("r", np.eye(H))

    def loop(sixth: float) -> li.Graph:
        def cell(h: li.Value, row: li.Value) -> Any:
            h = li.minimum(li.maximum(row + h @ r + 3.0, 0.0), 6.0) * sixth
            return h, h

        _, y = li.scan(cell, li.zeros(("B", H), "f64"), x)
        return li.Graph("g", [x], {"y": y})

    given = {"x": np.linspace(-4, 4, T * B * H).reshape(T, B, H)}
    assert not fused(loop(float(np.float32(1 / 6))), given)
    assert len(fused(loop(1 / 6), given)) == 1
