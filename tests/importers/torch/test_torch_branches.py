"""`torch.cond`: PyTorch runs one branch, and no gradient comes out of the other, whatever its slopes are there.

The graph computes both and picks. An `if` of Python stands beside it, in a module of the same weights: PyTorch would
compile a branch anew for each call that has other sizes. The branch that does not run has roots and logarithms of what
is negative or 0, and quotients by 0: their slopes are NaN or infinite, and 0 times these would be NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch_cases as tc
from device import need, need_target

I = 4


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


Forward = Callable[[Any, Any, Any], Any]  # of where `cond` and `scan` are, the module and x [B,T,I]


class InPython:
    """Branches and loops step by step."""

    @staticmethod
    def cond(holds: Any, then: Any, other: Any, operands: Any) -> Any:
        return then(*operands) if holds else other(*operands)

    @staticmethod
    def scan(step: Any, h: Any, x: Any, dim: int) -> Any:
        import torch

        rows = []
        for row in x.unbind(dim):
            h, y = step(h, row)
            rows.append(y)
        return h, torch.stack(rows, dim)


def of_torch() -> Any:
    import torch
    from torch._higher_order_ops.scan import scan

    return SimpleNamespace(cond=torch.cond, scan=scan)


def twins(forward: Forward) -> tuple[Any, Any]:
    """Two modules of the same weights, one positive and a layer's: with PyTorch's branches, and with Python's."""
    import torch

    class Branches(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, how: Any) -> None:
            super().__init__()
            self.how = how
            self.by = torch.nn.Parameter(torch.rand(I) + 0.5)
            self.layer = torch.nn.Linear(I, I)

        def forward(self, x: Any) -> Any:
            return forward(self.how, self, x)

    made = Branches(of_torch()), Branches(InPython)
    made[1].load_state_dict(made[0].state_dict())
    return made


def _root(t: Any, s: Any, x: Any) -> Any:
    """The condition keeps the root away from what is negative."""
    return t.cond((x > 0).all(), lambda x: (x * s.by).sqrt(), lambda x: s.layer(x) * 2, (x,))


def _other_side(t: Any, s: Any, x: Any) -> Any:
    return t.cond((x <= 0).any(), lambda x: s.layer(x * s.by), lambda x: (x * s.by).log() + s.layer(x), (x,))


def _around(t: Any, s: Any, x: Any) -> Any:
    """What branches read is computed in front of them, and read behind them too."""
    y = s.layer(x) * 0.1 + x

    def then(y: Any, x: Any) -> Any:
        return (x * s.by).rsqrt() + y

    z = t.cond((x > 0).all(), then, lambda y, x: y * 3 + x, (y, x))
    return z + y * s.by


def _nested(t: Any, s: Any, x: Any) -> Any:
    def then(x: Any) -> Any:
        return t.cond(
            x.sum() > 40, lambda x: (x.sum() - 40).sqrt() * x, lambda x: (40 - x.sum()).log() * s.by * x, (x,)
        )

    return t.cond((x > 0).all(), then, lambda x: s.layer(x).tanh(), (x,))


def _two_results(t: Any, s: Any, x: Any) -> Any:
    """One of the results is what goes in; one has no gradient."""
    return t.cond(
        (x > 0).all(),
        lambda x: (x.sqrt() * s.by, x.clone(), (x > 1).sum(1)),
        lambda x: (s.layer(x), x * -1.0, (x > 0).sum(1)),
        (x,),
    )


def _each_step(t: Any, s: Any, x: Any) -> Any:
    """A branch in a cell: another one at each step."""

    def step(h: Any, row: Any) -> Any:
        h = t.cond((row > 0).all(), lambda h, r: (r * s.by).sqrt() + h, lambda h, r: (s.layer(r) + h).tanh(), (h, row))
        return h, h * 2

    return t.scan(step, x.new_zeros(x.shape[0], I), x, dim=1)


CASES = {f.__name__.strip("_"): f for f in (_root, _other_side, _around, _nested, _two_results, _each_step)}


def given(rows: int, steps: int, sign: float, large: float = 1.0) -> tuple[Any]:
    """x [B,T,I], all of it above 0, or a part of it below, and 0."""
    import torch

    x = (torch.rand(rows, steps, I) + 0.2) * large
    if sign < 0:
        x[:, ::2] *= -1
        x[0, 0, 0] = 0
    return (x,)


CALLS = [(2, 5, -1.0, 1.0), (1, 2, 1.0, 1.0), (4, 3, 1.0, 3.0), (5, 1, -1.0, 1.0)]
SIZES = {"x": ("B", "T", None)}


@pytest.mark.parametrize("name", CASES)
def test_beside_pytorch(name: str, seed: int, rng: np.random.Generator) -> None:
    import torch

    torch.manual_seed(seed % 2**31)
    (module, plain), calls = twins(CASES[name]), [given(*c) for c in CALLS]
    graph = tc.held(module, given(3, 7, 1.0), SIZES, calls, rng, grad=False, beside=plain)
    for args in calls:
        tc.gradients(graph, plain, args, rng)


@pytest.mark.slow_cases(name=["each_step"])
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
@pytest.mark.parametrize("name", ["around", "each_step"])
def test_compiled(name: str, target: str, seed: int, rng: np.random.Generator) -> None:
    import torch

    need_target(target)
    torch.manual_seed(seed % 2**31)
    (module, plain), calls = twins(CASES[name]), [given(*c) for c in CALLS]
    graph = tc.held(module, given(3, 7, 1.0), SIZES, calls, rng, grad=False, targets=[target], beside=plain)
    for args in calls[:2]:
        tc.gradients(graph, plain, args, rng, targets=[target])
