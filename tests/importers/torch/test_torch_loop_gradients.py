"""Gradients of loops of PyTorch's higher-order ops, beside autograd over the same steps in Python.

What autograd goes through step by step says what is right, for `while_loop` and `scan` alike: PyTorch compiles a loop
anew for each call that has other sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch_cases as tc
from device import need, need_target

import lstm_ir as li

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # of torch's scan
I, H = 4, 5
Loop = Callable[[Any, Any, Any], Any]  # of a condition, a body and the states
Forward = Callable[[Any, Loop, Any, Any], Any]  # of the module, the loop, x [T,B,I] and h [B,H]


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def in_python(going: Any, body: Any, state: Any) -> Any:
    while going(*state):
        state = body(*state)
    return state


def twins(forward: Forward, loop: Any, steps: Any) -> tuple[Any, Any]:
    """Two modules of the same weights: one with PyTorch's loop, one with the loop in Python."""
    import torch

    class Module(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, run: Any) -> None:
            super().__init__()
            self.w, self.u = torch.nn.Linear(I, H), torch.nn.Linear(H, H)
            self.gru, self.scale = torch.nn.GRUCell(I, H), torch.nn.Parameter(torch.randn(H))
            self.run = run

        def forward(self, x: Any, h: Any) -> Any:
            return forward(self, self.run, x, h)

    made = Module(loop), Module(steps)
    made[1].load_state_dict(made[0].state_dict())
    return made


def _zero() -> Any:
    import torch

    return torch.zeros((), dtype=torch.int64)


def _row(x: Any, t: Any) -> Any:
    import torch

    return torch.index_select(x, 0, t.reshape(1))[0]


def _all_rows(s: Any, loop: Loop, x: Any, h: Any) -> Any:
    return loop(lambda t, h: t < x.shape[0], lambda t, h: (t + 1, s.gru(_row(x, t), h)), (_zero(), h))[1]


def _every_second(s: Any, loop: Loop, x: Any, h: Any) -> Any:
    return loop(lambda t, h: t < x.shape[0], lambda t, h: (t + 2, s.gru(_row(x, t), h)), (_zero(), h))[1]


def _backwards(s: Any, loop: Loop, x: Any, h: Any) -> Any:
    last = x.shape[0] - 1
    return loop(lambda t, h: t < x.shape[0], lambda t, h: (t + 1, s.gru(_row(x, last - t), h)), (_zero(), h))[1]


def _two_states(s: Any, loop: Loop, x: Any, h: Any) -> Any:
    """A state that is read by the other, a tensor from around the loop, a weight that is no layer's."""
    around = (h @ s.u.weight).tanh()

    def body(t: Any, h: Any, total: Any) -> Any:
        new = (s.w(_row(x, t)) + s.u(h) * s.scale).tanh()
        return t + 1, new, total + new * around + h

    return loop(lambda t, h, total: t < x.shape[0], body, (_zero(), h, h * 0.5))[1:]


def _of_a_fixed_length(s: Any, loop: Loop, x: Any, h: Any) -> Any:
    """It reads no rows; its input is used around it too."""
    begin = s.w(x[0]) + h
    return loop(lambda t, h: t < 3, lambda t, h: (t + 1, s.u(h).tanh() + h * 0.1), (_zero(), begin))[1] * x.sum()


def _of_no_steps(s: Any, loop: Loop, x: Any, h: Any) -> Any:
    return loop(lambda t, h: t < 0, lambda t, h: (t + 1, s.u(h).tanh()), (_zero(), h * s.scale))[1]


WHILE = {f.__name__.strip("_"): f for f in (
    _all_rows, _every_second, _backwards, _two_states, _of_a_fixed_length, _of_no_steps)}  # fmt: skip
SIZES = {"x": ("T", "B", None), "h": ("B", None)}


def given(t: int, b: int) -> tuple[Any, Any]:
    import torch

    return torch.randn(t, b, I), torch.randn(b, H)


@pytest.mark.parametrize("name", WHILE)
def test_while_loop(name: str, seed: int, rng: np.random.Generator) -> None:
    import torch
    from torch._higher_order_ops import while_loop

    torch.manual_seed(seed % 2**31)
    module, steps = twins(WHILE[name], while_loop, in_python)
    calls = [given(2, 4), given(6, 1), given(1, 2)]
    graph = tc.held(module, given(7, 3), SIZES, calls, rng, grad=False, beside=steps)
    for args in calls:
        tc.gradients(graph, steps, args, rng)


def test_what_has_no_number_of_steps_is_refused() -> None:
    """A loop that ends by its values has no gradient that a loop of a known length could give: it is not taken."""
    from torch._higher_order_ops import while_loop

    def until(s: Any, loop: Loop, x: Any, h: Any) -> Any:
        return loop(lambda t, h: h.sum() < 9, lambda t, h: (t + 1, s.u(h).tanh() + 1), (_zero(), h))[1]

    module, _ = twins(until, while_loop, in_python)
    with pytest.raises(li.ModelError, match=r"higher_order\.while_loop\): it ends when a condition says so"):
        li.from_torch(module, given(7, 3))


def _scanned(s: Any, run: Any, x: Any, h: Any) -> Any:
    return run(lambda h, row: ((s.w(row) + s.u(h)).tanh(), s.u(h) * s.scale), h, x)


def _of_two_states(s: Any, run: Any, x: Any, h: Any) -> Any:
    """States and rows as dicts; one state is an input that each step reads as it was."""

    def step(state: Any, row: Any) -> Any:
        new = s.gru(row["x"], state["h"]) * row["by"]
        return {"h": new, "sum": state["sum"] + new.sum(0)}, {"y": new * s.scale, "before": state["h"] + 0.0}

    last, rows = run(step, {"h": h, "sum": s.scale * 2}, {"x": x, "by": x.mean(2, keepdim=True)})
    return last["h"], last["sum"], rows["y"], rows["before"]


def scan_in_python(reverse: bool) -> Any:
    import torch

    tree = torch.utils._pytree

    def run(step: Any, state: Any, rows: Any) -> Any:
        (T,) = {v.shape[0] for v in tree.tree_leaves(rows)}
        out: list[Any] = [None] * T
        for t in range(T)[:: -1 if reverse else 1]:
            state, out[t] = step(state, tree.tree_map(lambda v, t=t: v[t], rows))
        return state, tree.tree_map(lambda *each: torch.stack(each), *out)

    return run


def scan_of_torch(reverse: bool) -> Any:
    from torch._higher_order_ops.scan import scan

    return lambda step, state, rows: scan(step, state, rows, dim=0, reverse=reverse)


SCAN = {"one_state": _scanned, "two_states": _of_two_states}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", SCAN)
def test_scan(name: str, reverse: bool, seed: int, rng: np.random.Generator) -> None:
    import torch

    torch.manual_seed(seed % 2**31)
    module, steps = twins(SCAN[name], scan_of_torch(reverse), scan_in_python(reverse))
    calls = [given(2, 4), given(6, 1), given(1, 2)]
    graph = tc.held(module, given(7, 3), SIZES, calls, rng, grad=False, beside=steps)
    assert sum(n.op.name == "scan" for n in graph.nodes) == 1
    for args in calls:
        tc.gradients(graph, steps, args, rng)


@pytest.mark.slow_cases(kind=["scan"])
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
@pytest.mark.parametrize("kind", ["while_loop", "scan"])
def test_compiled(kind: str, target: str, seed: int, rng: np.random.Generator) -> None:
    """Results and gradients of compiled loops."""
    import torch
    from torch._higher_order_ops import while_loop

    need_target(target)
    torch.manual_seed(seed % 2**31)
    made = (
        twins(_two_states, while_loop, in_python)
        if kind == "while_loop"
        else twins(_of_two_states, scan_of_torch(True), scan_in_python(True))
    )
    calls = [given(2, 4), given(6, 1)]
    graph = tc.held(made[0], given(7, 3), SIZES, calls, rng, grad=False, targets=[target], beside=made[1])
    tc.gradients(graph, made[1], calls[0], rng, targets=[target])
