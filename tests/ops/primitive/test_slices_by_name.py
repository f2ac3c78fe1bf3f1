"""Slices whose bound is a named size: of an axis that is a number, they have a gradient too."""

from __future__ import annotations

import numpy as np

import lstm_ir as li


def positions() -> li.Graph:
    """The first T rows of a table, weighed by x [T,4]; and the others."""
    x, p = li.input("x", ("T", 4)), li.weight("pos", np.full((9, 4), 0.5, "f4"))
    return li.Graph("g", [x], {"l": li.sum(x * p[:"T"]) - li.sum(p["T":]) + li.sum(p[2:5])})


def test_a_gradient_of_the_first_rows(rng: np.random.Generator) -> None:
    back = li.grad(positions(), "l", "pos")
    with li.compile(back) as exe:
        for T in (0, 3, 9):
            a = rng.standard_normal((T, 4)).astype(np.float32)
            want = np.concatenate([a, np.full((9 - T, 4), -1, "f4")])
            want[2:5] += 1
            for out in (li.interpret(back, x=a), exe(x=a)):
                np.testing.assert_allclose(out["d_pos"], want, rtol=1e-6)


def test_such_a_table_is_trained() -> None:
    x, p = li.input("x", ("T", 4)), li.weight("pos", np.full((9, 4), 0.5, "f4"))
    step = li.train_step(li.Graph("g", [x], {"l": li.sum(x * p[:"T"])}), "l", li.sgd(0.1))
    a = np.arange(12, dtype="f4").reshape(3, 4)
    with li.compile(step) as exe:
        exe.entries["train"](x=a)
        want = np.full((9, 4), 0.5, "f4")
        want[:3] -= 0.1 * a
        np.testing.assert_allclose(exe.state["pos"], want, rtol=1e-6, atol=1e-6)
