"""Hooks on gradients, which torch.export drops: a gradient that one might change is refused, results are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch_cases as tc
from device import need

import lstm_ir as li

SIZES = {"x": ("B", None)}


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def two_layers(inside: Callable[[Any], None] = lambda y: None) -> Any:
    """Linear layers `a` and `b`, one after another, and `c` beside them; `inside` is called with what `a` gives."""
    import torch

    class TwoLayers(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2), torch.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            y = self.a(x)
            inside(y)
            return {"deep": self.b(y.tanh()), "beside": self.c(x)}

    torch.manual_seed(5)
    return TwoLayers()


def doubled(*given: Any) -> Any:
    """A hook of any kind: the gradient twice."""
    last = given[1] if len(given) > 1 else given[0]
    return tuple(None if g is None else g * 2 for g in last) if isinstance(last, tuple) else last * 2


def beside(graph: li.Graph, module: Any, x: Any) -> None:
    """What lies beside the hook has PyTorch's gradient."""
    import torch

    ct = torch.randn(len(x), 2)
    want = torch.autograd.grad(module(x)["beside"], [module.c.weight, module.c.bias], ct)
    found = li.interpret(li.vjp(graph, ["beside"], ["c.weight", "c.bias"]), x=x.numpy(), ct_beside=ct.numpy())
    for name, w in zip(("c.weight", "c.bias"), want, strict=True):
        tc.close(found[f"d_{name}"], w, name)


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook")
@pytest.mark.parametrize(
    "kind", ["register_full_backward_hook", "register_full_backward_pre_hook", "register_backward_hook"]
)
def test_hooks_of_a_module(kind: str, rng: np.random.Generator) -> None:
    """No gradient comes through the module; what comes after it, and lies beside it, has its own."""
    import torch

    module, x = two_layers(), torch.randn(4, 3)
    handle = getattr(module.a, kind)(doubled)
    graph = tc.held(module, (x,), SIZES, [(torch.randn(2, 3),)], rng, grad=False)
    for wrt in ("x", "a.weight"):
        with pytest.raises(li.GradientError, match=r"module Linear has a hook on its gradients, which torch\.export"):
            li.vjp(graph, ["deep"], [wrt])
    beside(graph, module, x)
    handle.remove()
    tc.held(module, (x,), SIZES, [(torch.randn(2, 3),)], rng)


def test_hooks_of_every_module(rng: np.random.Generator) -> None:
    """Of PyTorch's global list."""
    import torch
    from torch.nn.modules.module import register_module_full_backward_hook

    module, x = two_layers(), torch.randn(4, 3)
    handle = register_module_full_backward_hook(doubled)
    try:
        graph = li.from_torch(module, (x,), sizes=SIZES)
    finally:
        handle.remove()
    with pytest.raises(li.GradientError, match="the module TwoLayers has a hook on its gradients"):
        li.vjp(graph, ["beside"], ["c.weight"])
    tc.held(module, (x,), SIZES, [], rng)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("packed", [False, True])
def test_hooks_of_a_recurrent_layer(kind: str, packed: bool, rng: np.random.Generator) -> None:
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    class Tagged(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = getattr(torch.nn, kind)(3, 4, batch_first=True)

        def forward(self, x: Any, lengths: Any) -> Any:
            if not packed:
                return self.layer(x)[0]
            y, _ = self.layer(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
            return pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])[0]

    module, given = Tagged(), (torch.randn(2, 5, 3), torch.tensor([5, 3]))
    module.layer.register_full_backward_hook(doubled)
    graph = tc.held(module, given, {"x": ("B", "T", None), "lengths": ("B",)}, [], rng, grad=False)
    for wrt in ("x", "layer.weight_hh_l0"):
        with pytest.raises(li.GradientError, match=f"the module {kind} has a hook"):
            li.vjp(graph, graph.output_names, [wrt])


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_a_parameter(kind: str, rng: np.random.Generator) -> None:
    """Its own gradient is refused; those of all others are PyTorch's."""
    import torch

    module, x = two_layers(), torch.randn(4, 3)
    handle = getattr(module.a.weight, kind)(doubled if kind == "register_hook" else lambda p: None)
    graph = tc.held(module, (x,), SIZES, [(torch.randn(2, 3),)], rng, grad=False)
    with pytest.raises(li.GradientError, match=r"parameter a\.weight has a hook on its gradient, which torch\.export"):
        li.vjp(graph, ["deep"], ["a.weight"])
    ct = torch.randn(4, 2)
    want = torch.autograd.grad(module(x)["deep"], [module.b.weight], ct)[0]
    found = li.interpret(li.vjp(graph, ["deep"], ["b.weight"]), x=x.numpy(), ct_deep=ct.numpy())
    tc.close(found["d_b.weight"], want, "b.weight")
    handle.remove()
    tc.held(module, (x,), SIZES, [(torch.randn(2, 3),)], rng)


def test_a_hook_in_forward() -> None:
    """It cannot be seen where the tensor is: refused with its line, and with what to write."""
    import torch

    x = torch.randn(4, 3)
    said = r"a hook on the gradient of a tensor.*is_exporting\(\)`, at test_torch_hooks\.py:\d+"
    with pytest.raises(li.ModelError, match=said):
        li.from_torch(two_layers(lambda y: y.register_hook(doubled)), (x,), sizes=SIZES)

    def watched(y: Any) -> None:
        if not torch.compiler.is_exporting():
            y.register_hook(lambda g: None)

    assert li.from_torch(two_layers(watched), (x,), sizes=SIZES).output_names == ("deep", "beside")


def test_hooks_under_no_grad(rng: np.random.Generator) -> None:
    """Results alone: no gradient was asked for."""
    import torch

    module, x = two_layers(), torch.randn(4, 3)
    module.a.register_full_backward_hook(doubled)
    with torch.no_grad():
        graph = li.from_torch(module, (x,), sizes=SIZES)
    tc.results(graph, lambda given: li.interpret(graph, given), module, (x,))


def test_hooks_of_forward_run(rng: np.random.Generator) -> None:
    """Those before and after it change what is computed, and so the graph; gradients are PyTorch's."""
    import torch

    module, x = two_layers(), torch.randn(4, 3)
    module.a.register_forward_hook(lambda m, args, y: y * 3)
    module.b.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    module.register_forward_hook(lambda m, args, out: {n: v.tanh() for n, v in out.items()})
    tc.held(module, (x,), SIZES, [(torch.randn(2, 3),)], rng)


@pytest.mark.parametrize("kind", ["register_full_backward_hook", "register_full_backward_pre_hook", "global"])
def test_hooks_of_a_graph_module(kind: str) -> None:
    """torch.export does not call it, and sees none of its hooks."""
    import torch
    from torch.nn.modules.module import register_module_full_backward_hook

    module = torch.fx.symbolic_trace(torch.nn.Linear(3, 2))
    add = register_module_full_backward_hook if kind == "global" else getattr(module, kind)
    handle = add(doubled)
    try:
        with pytest.raises(li.ModelError, match="a GraphModule with hooks of its own"):
            li.from_torch(module, (torch.randn(4, 3),))
    finally:
        handle.remove()
    li.from_torch(module, (torch.randn(4, 3),))


def test_a_module_that_was_exported() -> None:
    """PyTorch puts hooks of its own there, which check the inputs."""
    import torch

    module, x = two_layers(), torch.randn(4, 3)
    again = torch.export.export(module, (x,)).module()
    assert again._forward_pre_hooks
    graph = li.from_torch(again, (x,))
    tc.results(graph, lambda given: li.interpret(graph, given), again, (x,))


def test_a_hooked_module_that_gives_a_size() -> None:
    import torch

    class Sized(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.tanh(), x.shape[0]

    class Around(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.sized = Sized()

        def forward(self, x: Any) -> Any:
            y, rows = self.sized(x)
            return y * rows

    module, x = Around(), torch.randn(4, 3)
    module.sized.register_full_backward_hook(doubled)
    graph = li.from_torch(module, (x,), sizes=SIZES)
    tc.results(graph, lambda given: li.interpret(graph, given), module, (x,))
    with pytest.raises(li.GradientError, match="the module Sized has a hook on its gradients"):
        li.vjp(graph, graph.output_names, ["x"])


def test_hooks_on_gradients_and_on_forward() -> None:
    """Those on forward would come behind what marks the results here, and before PyTorch's hook on gradients."""
    import torch

    module, x = two_layers(), torch.randn(4, 3)
    module.a.register_full_backward_hook(doubled)
    module.a.register_forward_hook(lambda m, args, y: args[0] @ m.weight.T)
    with pytest.raises(li.ModelError, match="the module Linear has a hook on its gradients and one on its forward"):
        li.from_torch(module, (x,), sizes=SIZES)
