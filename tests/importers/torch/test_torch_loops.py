"""Loops and branches of PyTorch's higher-order ops: the user's own cell is a scan, of any number of steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch_cases as tc
from device import need

import lstm_ir as li

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # of torch's scan
I, H = 4, 5


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def cell(run: Any) -> Any:
    """A module of two dense layers and a GRU cell, whose forward is `run(self, x, h)`."""
    import torch

    class Cell(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.w, self.u, self.gru = torch.nn.Linear(I, H), torch.nn.Linear(H, H), torch.nn.GRUCell(I, H)

        def forward(self, x: Any, h: Any) -> Any:
            return run(self, x, h)

    torch.manual_seed(3)
    return Cell()


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse: bool, rng: np.random.Generator) -> None:
    import torch
    from torch._higher_order_ops.scan import scan

    def run(s: Any, x: Any, h: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = torch.tanh(s.w(row) + s.u(h))
            return h, h * 2

        return scan(step, h, x, dim=1, reverse=reverse)

    calls = [(torch.randn(2, 4, I), torch.randn(2, H)), (torch.randn(1, 9, I), torch.randn(1, H))]
    sizes = {"x": ("B", "T", None), "h": ("B", None)}
    g = tc.held(cell(run), (torch.randn(3, 7, I), torch.randn(3, H)), sizes, calls, rng, targets=["cpu"])
    assert sum(n.op.name == "scan" for n in g.nodes) == 1


def counted(start: int, step: int, last: int = 0) -> Any:
    """The rows start, start + step, … through the GRU cell, up to `last` before the end."""
    import torch
    from torch._higher_order_ops import while_loop

    def run(s: Any, x: Any, h: Any) -> Any:
        T = x.shape[0]

        def going(i: Any, h: Any) -> Any:
            return i < T - last

        def body(i: Any, h: Any) -> Any:
            return i + step, s.gru(x.index_select(0, i.reshape(1)).squeeze(0), h)

        return while_loop(going, body, (torch.full((), start, dtype=torch.int64), h))[1]

    return cell(run)


@pytest.mark.slow
def test_while_loop(rng: np.random.Generator) -> None:
    """A counter up to a size; which rows a step reads follows from it."""
    import torch

    sizes = {"x": ("T", "B", None), "h": ("B", None)}
    calls = [(torch.randn(2, 4, I), torch.randn(4, H)), (torch.randn(6, 1, I), torch.randn(1, H))]
    for case in ((0, 1), (0, 2)):
        g = tc.held(
            counted(*case), (torch.randn(7, 3, I), torch.randn(3, H)), sizes, calls, rng, grad=False, targets=["cpu"]
        )
        assert [n.op.name for n in g.nodes if n.op.name == "scan"] == ["scan"]


def test_while_loops_whose_end_a_call_knows(rng: np.random.Generator) -> None:
    import torch
    from torch._higher_order_ops import while_loop

    def run(s: Any, x: Any, h: Any) -> Any:
        return while_loop(lambda i, h: h.sum() < 100, lambda i, h: (i + 1, h + 1), (torch.zeros(()), h))[1]

    given = torch.randn(7, 3, I), torch.randn(3, H)
    with pytest.raises(li.ModelError, match=r"higher_order\.while_loop\): it ends when a condition says so"):
        li.from_torch(cell(run), given)
    with pytest.raises(li.ModelError, match="whether a counter begins above its end, T-2, depends on the call"):
        li.from_torch(counted(0, 1, 2), given, sizes={"x": ("T", "B", None), "h": ("B", None)})


def test_cond(rng: np.random.Generator) -> None:
    import torch

    def run(s: Any, x: Any, h: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() * 2, (x,))

    calls = [(torch.full((2, 2, I), v), torch.ones(1, H)) for v in (0.3, -0.3)]
    tc.held(cell(run), (torch.randn(3, 7, I), torch.ones(1, H)), {"x": ("B", "T", None)}, calls, rng)


def test_parts_without_gradients(rng: np.random.Generator) -> None:
    import torch

    def run(s: Any, x: Any, h: Any) -> Any:
        with torch.no_grad():
            z = s.w(x)
        return z * s.w(x) + h.detach() * h

    tc.held(cell(run), (torch.randn(3, I), torch.randn(3, H)), {"x": ("B", None), "h": ("B", None)},
            [(torch.randn(2, I), torch.randn(2, H))], rng)  # fmt: skip


def test_dropout_in_a_loop_is_refused() -> None:
    """Each step would have to draw a mask of its own."""
    import torch
    from torch._higher_order_ops import while_loop

    def run(s: Any, x: Any, h: Any) -> Any:
        def body(i: Any, h: Any) -> Any:
            return i + 1, torch.nn.functional.dropout(torch.tanh(s.u(h)), 0.5, s.training)

        return while_loop(lambda i, h: i < 5, body, (torch.zeros((), dtype=torch.int64), h))[1]

    with pytest.raises(li.ModelError, match="dropout inside the body of a loop"):
        li.from_torch(cell(run).train(), (torch.randn(3, 2, I), torch.randn(2, H)))
