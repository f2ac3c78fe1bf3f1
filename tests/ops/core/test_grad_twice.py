"""Second derivatives of lstm, gru and rnn: of every operand, and of what arrives at every result.

Held to PyTorch's autograd twice over, and, where PyTorch is not, to fourth-order differences of the
first gradient: those of second order are off by 2e-7 over eleven steps, as the third derivative is.
"""

from __future__ import annotations

from typing import Any

import layer_cases as cases
import numpy as np
import pytest
import torch_layers
from device import need
from tolerances import close, wide

import lstm_ir as li

Arrays = dict[str, Any]
CASES = [
    f"{op} {name}"
    for op, names in {
        "lstm": (
            "lengths+states+peephole3+projection+mask",
            "bidirectional+input_forget+forget_bias+count",
            "reverse+gate_clip+cell_clip+peephole4_previous+batch",
            "activations+straight+hold+lengths+no_bias",
        ),
        "gru": (
            "bidirectional+lengths+states+b_hn+mask",
            "reverse+count+gate_clip+reset_before+batch",
            "activations+flip_z+hold+lengths+projected_x",
        ),
        "rnn": ("bidirectional+lengths+states+mask", "reverse+count+gate_clip+batch+hold"),
    }.items()
    for name in names
]
SIZES = (5, 2, 3, 4, 2)


def twice(case: str, kind: Any = np.float64) -> tuple[li.Graph, li.Graph, Arrays, Arrays, Arrays]:
    """The graph of s = sum(u * gradient), that of s and its gradients, operands, attributes, and
    what arrives at the results."""
    op, name = case.split()
    operands, attrs = cases.build(op, name, kind, sizes=SIZES)
    given = cases.arrays(operands)
    graph = cases.graph(op, operands, attrs, dynamic=False)
    rng = np.random.default_rng(list(case.encode()))
    bars = {
        f"ct_{n}": rng.normal(size=[int(str(d)) for d in v.shape]).astype(kind)
        for n, v in zip(graph.output_names, graph.outputs, strict=True)
    }
    floats = [k for k, v in given.items() if v.dtype.kind == "f"]
    first = li.vjp(graph, list(graph.output_names), floats)
    total = sum(li.sum(first.output(f"d_{k}") * ways(given)[k]) for k in floats)
    assert isinstance(total, li.Value)
    once = li.Graph("once", first.params, {"s": total})
    return once, li.grad(once, "s", [*floats, *bars]), given, attrs, bars


def ways(given: Arrays) -> Arrays:
    """The direction along which the first gradient of each operand is taken."""
    rng = np.random.default_rng(17)
    floats = {k: v for k, v in given.items() if v.dtype.kind == "f"}
    return {k: rng.normal(size=v.shape).astype(v.dtype) for k, v in floats.items()}


@pytest.mark.parametrize("case", CASES)
def test_autograd_of_autograd(case: str) -> None:
    need("torch")
    import torch

    _, second, given, attrs, bars = twice(case)
    got = li.interpret(second, given | bars)
    v = {k: torch.tensor(a, requires_grad=True) for k, a in ways(given).items()}
    v = {k: torch.tensor(given[k], requires_grad=True) for k in v}
    cts = {k: torch.tensor(a, requires_grad=True) for k, a in bars.items()}
    results = torch_layers.run(case.split()[0], {**given, **v}, attrs)
    loss = sum((cts[f"ct_{k}"] * r).sum() for k, r in results.items())
    first = torch.autograd.grad(loss, list(v.values()), create_graph=True)
    s = sum((g * torch.tensor(u)).sum() for g, u in zip(first, ways(given).values(), strict=True))
    every = v | cts
    want = torch.autograd.grad(s, list(every.values()), materialize_grads=True)
    close(got, {f"d_{k}": g.numpy() for k, g in zip(every, want, strict=True)}, 1e-10, case)


# The gradient of a clip passed straight through is not the slope of what is computed.
@pytest.mark.parametrize("case", [c for c in CASES if "straight" not in c])
def test_fourth_order_differences(case: str) -> None:
    """Along one random direction of everything at once."""
    once, second, given, _, bars = twice(case)
    at = given | bars
    got = li.interpret(second, at)
    rng = np.random.default_rng(23)
    along = {k: rng.normal(size=at[k].shape) for k in (n[2:] for n in got if n != "s")}
    have = float(sum((got[f"d_{k}"] * v).sum() for k, v in along.items()))

    def s(step: float) -> float:
        moved = {k: at[k] + step * v for k, v in along.items()}
        return float(li.interpret(once, at | moved)["s"])

    e = 2e-4
    near, far = s(e) - s(-e), s(2 * e) - s(-2 * e)
    want = (8 * near - far) / (12 * e)
    assert abs(have - want) <= 1e-9 * max(1.0, abs(want)), (have, want)


def test_compiled() -> None:
    case = "rnn reverse+count+gate_clip+batch+hold"
    _, exact, *_ = twice(case)
    _, second, same, _, single = twice(case, np.float32)
    got = li.compile(second, "cpu")(same | single)
    want = li.interpret(exact, wide(same | single))
    del want["s"]  # a sum of hundreds of terms of either sign
    close(got, want, 1e-5, case)
