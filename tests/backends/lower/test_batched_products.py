"""Batched products of fixed sizes whose operands have their axes in any order.

IREE 3.13 packs operands in tiles, and takes those of one batch for those of another where it joins their axes.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ops.primitive.linear import dot_general

_ORDERS = (  # of the left operand and the right: p batches, i and j rows, k and l columns, a and b summed
    ("apij", "pka"), ("apji", "akp"), ("abpi", "pkab"), ("abpi", "bakp"), ("abpij", "pkbal"), ("aqpij", "qpka"),
    ("apqi", "pqka"), ("pija", "apkl"), ("iapj", "kpla"), ("baip", "pkab"),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "kernels"), [("f32", False), ("f32", True), ("f16", False)])
def test_batched_products_in_any_order_of_axes(kind: str, kernels: bool, seed: int) -> None:
    """The rows of two batches of 3, 6, 9 or 12 fill as many tiles as one matrix of all; of others they do not."""
    rng = np.random.default_rng(seed)
    entries, calls = {}, {}
    for (left, right), rows, batches in itertools.product(_ORDERS, (3, 4, 12), (2, 3)):
        size = {"p": batches, "q": 2, "i": rows, "j": 1 + rows % 2, "k": 5, "l": 2, "a": 3, "b": 2}
        both = [c for c in left if c in right]
        batch, summed = [c for c in both if c in "pq"], [c for c in both if c in "ab"]
        out = [*batch, *(c for c in left if c not in both), *(c for c in right if c not in both)]
        x, y = (li.input(n, tuple(size[c] for c in s), kind) for n, s in (("x", left), ("y", right)))
        name = f"{left}_{right}_{rows}_{batches}"
        places = [(tuple(map(left.index, of)), tuple(map(right.index, of))) for of in (summed, batch)]
        entries[name] = li.Graph(name, [x, y], {"z": dot_general(x, y, *places)})
        a, b = (rng.integers(-3, 4, v.shape).astype(li.DType(kind).numpy) for v in (x, y))
        calls[name] = {"x": a, "y": b}, np.einsum(f"{left},{right}->{''.join(out)}", a, b)
    with li.compile(li.Program("products", entries), options={"cache": False, "kernels": kernels}) as exe:
        wrong = [n for n, (arrays, want) in calls.items() if not (exe.entries[n](arrays)["z"] == want).all()]
    assert not wrong, wrong


_GATES = {"lstm": 4, "gru": 3, "rnn": 1}


@pytest.mark.parametrize("cell", _GATES)
def test_both_directions_step_by_step(cell: str, seed: int) -> None:
    """Gradients in the portable loop, whose products have the directions as batches and several steps in a body."""
    rng = np.random.default_rng(seed)
    steps, inputs, width = 7, 4, 5
    w_ih = rng.standard_normal((2, _GATES[cell] * width, inputs)).astype("f4")
    w_hh = li.input("w_hh", (2, _GATES[cell] * width, width))
    entries, calls = {}, {}
    for rows in (3, 7, 12, 16):
        x, first, ct = (
            li.input("x", (steps, rows, inputs)),
            li.input("h0", (2, rows, width)),
            li.input("ct", (2, rows, width)),
        )
        made = getattr(li, cell)(x, w_ih, w_hh, h0=first, direction="bidirectional")
        graph = li.Graph(f"of_{rows}", [x, w_hh, first, ct], {"loss": li.sum(made.h_n * ct)})
        entries[graph.name] = li.grad(graph, "loss", ["h0"])
        named = {"x": x, "w_hh": w_hh, "h0": first, "ct": ct}
        arrays = {n: 0.5 * rng.standard_normal(v.shape).astype("f4") for n, v in named.items()}
        calls[graph.name] = arrays, li.interpret(entries[graph.name], arrays)
    with li.compile(li.Program("both", entries), options={"cache": False, "kernels": False}) as exe:
        for name, (arrays, want) in calls.items():
            for key, value in exe.entries[name](arrays).items():
                np.testing.assert_allclose(value, want[key], rtol=0, atol=3e-5, err_msg=f"{name} {key}")


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("named", ["", "p", "pa", "pi", "q", "i", "k", "a"])
def test_batches_behind_what_is_summed_with_named_sizes(named: str, kernels: bool, seed: int) -> None:
    """Both operands in orders that attention and its gradient give: [places, rows of the batch, heads, columns]."""
    rng, size = np.random.default_rng(seed), {"p": 3, "q": 2, "i": 3, "k": 5, "a": 5}
    lefts = ["".join(s) for s in itertools.permutations("pqia")]
    entries, calls = {}, {}
    for left, right in [
        *itertools.product(lefts, ("apqk", "pqka")),
        *itertools.product(("apqi", "pqia"), ("aqpk", "kpqa")),
    ]:
        x, y = (
            li.input(n, tuple(c.upper() if c in named else size[c] for c in s)) for n, s in (("x", left), ("y", right))
        )
        places = [(tuple(map(left.index, of)), tuple(map(right.index, of))) for of in ("a", "pq")]
        name = f"{left}_{right}"
        entries[name] = li.Graph(name, [x, y], {"z": dot_general(x, y, *places)})
        a, b = (rng.integers(-3, 4, [size[c] for c in s]).astype("f4") for s in (left, right))
        calls[name] = {"x": a, "y": b}, np.einsum(f"{left},{right}->pqik", a, b)
    with li.compile(li.Program("products", entries), options={"cache": False, "kernels": kernels}) as exe:
        wrong = [n for n, (arrays, want) in calls.items() if not (exe.entries[n](arrays)["z"] == want).all()]
    assert not wrong, wrong
