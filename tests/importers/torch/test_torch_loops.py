"""Loops and branches of PyTorch's higher-order ops: the user's own cell is a scan, of any number of steps."""

from __future__ import annotations

import re
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


def loop(body: Any, begin: Any) -> Any:
    """Forward of a module: a counter and one state through five steps of a while_loop."""
    import torch
    from torch._higher_order_ops import while_loop

    def run(s: Any, x: Any, h: Any) -> Any:
        first = torch.zeros((), dtype=torch.int64), begin(s, x)
        return while_loop(lambda t, h: t < 5, lambda t, h: (t + 1, body(s, x, t, h)), first)[1]

    return run


def _written(h: Any) -> Any:
    h = h.clone()
    h[0] = 1.0
    return h


def _scattered(h: Any) -> Any:
    import torch

    return torch.slice_scatter(h, torch.ones_like(h[:1]), 0, 0, 1)


def _begin(s: Any, x: Any) -> Any:
    return s.w(x[0])


AT = r", at test_torch_loops\.py:\d+: "
FORMS: dict[str, tuple[Any, Any, Any, Any, str]] = {  # a body and its beginning, both as they are taken, what is said
    "a place": (
        lambda s, x, t, h: s.gru(x[t], h), _begin,
        lambda s, x, t, h: s.gru(x.index_select(0, t.reshape(1))[0], h), _begin,
        rf"a tensor stands where Python needs a number, as t in x\[t\]{AT}write torch\.index_select",
    ),
    "strides": (
        lambda s, x, t, h: s.u(h).tanh(), lambda s, x: x.new_zeros(1, H).expand(x.shape[1], H),
        lambda s, x, t, h: s.u(h).tanh(), lambda s, x: x.new_zeros(1, H).expand(x.shape[1], H).contiguous(),
        rf"a loop gives a state back otherwise than it began \(stride: .* vs .*\){AT}shapes and dtypes have to stay",
    ),
    "itself": (
        lambda s, x, t, h: h, _begin, lambda s, x, t, h: h.clone(), _begin,
        rf"gives back what it was given{AT}give back h\.clone",
    ),
    "a write": (
        lambda s, x, t, h: _written(s.u(h)), _begin, lambda s, x, t, h: _scattered(s.u(h)), _begin,
        rf"writes in place \(aten\.fill_\.Tensor\){AT}write torch\.slice_scatter",
    ),
    "a number": (
        lambda s, x, t, h: s.u(h).tanh() + s.w(x[0]), lambda s, x: x.new_zeros(3, H),
        lambda s, x, t, h: s.u(h).tanh() + s.w(x[0]), lambda s, x: x.new_zeros(x.shape[1], H),
        rf"x axis 1 \(B\) is 3 whatever the call, by while_loop{AT}give its states and other tensors the input's size",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_what_pytorch_refuses_of_a_loop_has_its_line_and_what_to_write(name: str) -> None:
    import torch

    body, begin, other_body, other_begin, said = FORMS[name]
    given, sizes = (torch.randn(5, 3, I), torch.randn(H)), {"x": (None, "B", None)}
    with pytest.raises(li.ModelError, match=said):
        li.from_torch(cell(loop(body, begin)), given, sizes=sizes)
    found = li.examine(cell(loop(body, begin)), given, sizes=sizes)
    assert found.graph is None
    assert len(found.report.refusals) == 1
    if name == "a write":  # PyTorch exports it, and then does not rewrite it
        (refusal,) = li.examine(torch.export.export(cell(loop(body, begin)), given)).report.refusals
        assert re.search(said, str(refusal))
    module, x = cell(loop(other_body, other_begin)), torch.randn(5, 2, I)
    graph = li.from_torch(module, given, sizes=sizes)
    (got,) = li.interpret(graph, x=x.numpy(), h=given[1].numpy()).values()
    assert np.allclose(got, module(x, given[1]).detach().numpy(), atol=1e-5)


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


def test_what_an_op_of_torch_raised_is_said() -> None:
    """PyTorch's own scan takes no carry of integers where a weight needs a gradient."""
    import torch
    from torch._higher_order_ops.scan import scan

    def run(s: Any, x: Any, h: Any) -> Any:
        count = torch.zeros(x.shape[1], dtype=torch.long)
        return scan(lambda c, r: ((torch.tanh(s.w(r) + s.u(c[0])), c[1] + 1), c[0] * 2), (h, count), x, dim=0)

    with pytest.raises(li.ModelError, match=r"when making fake tensor call: \w+Error\("):
        li.from_torch(cell(run), (torch.randn(6, 3, I), torch.randn(3, H)))
