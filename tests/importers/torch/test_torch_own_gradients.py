"""What a module says of its gradients: detach, no_grad, and functions with a backward of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch_cases as tc
from device import need

import lstm_ir as li


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def rounding(apply: Any) -> Any:
    """A layer whose results are rounded by `apply`."""
    import torch

    class Rounding(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 5)

        def forward(self, x: Any) -> Any:
            return apply(self.layer(x) * 4)

    torch.manual_seed(5)
    return Rounding()


def straight_through() -> Any:
    """An autograd.Function: rounded, with the gradient of what it rounds."""
    import torch

    class Rounded(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.round()

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0]

    return Rounded


@pytest.mark.parametrize("held", ["before", "at each call"])
def test_a_backward_of_its_own_is_refused(held: str, rng: np.random.Generator) -> None:
    """torch.export keeps the forward alone: the gradient would be 0 where PyTorch's is not. Results are right.

    The module holds `apply` from before the export, as is usual: `rounded = Rounded.apply`; or asks for it then.
    """
    import torch

    function, x = straight_through(), torch.randn(4, 3)
    module = rounding(function.apply if held == "before" else lambda x: function.apply(x))
    calls = [(torch.randn(2, 3),)]
    graph = tc.held(module, (x,), {"x": ("B", None)}, calls, rng, grad=False, targets=["cpu"])
    said = r"the autograd\.Function Rounded has a backward of its own, which torch\.export drops; .*\.detach\(\)"
    for wrt in ("x", "layer.weight"):
        with pytest.raises(li.GradientError, match=said):
            li.vjp(graph, graph.output_names, [wrt])


def test_what_lies_beside_it_has_its_gradient(rng: np.random.Generator) -> None:
    """Of the results that do not come through the function."""
    import torch

    function = straight_through()

    class Both(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 5), torch.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            return {"rounded": function.apply(self.a(x)), "plain": self.b(x).tanh()}

    module, x = Both(), torch.randn(4, 3)
    graph = tc.held(module, (x,), {"x": ("B", None)}, [(torch.randn(2, 3),)], rng, grad=False)
    ct = torch.randn(4, 2)
    want = torch.autograd.grad(module(x)["plain"], [module.b.weight, module.b.bias], ct)
    back = li.vjp(graph, ["plain"], ["b.weight", "b.bias"])
    found = li.interpret(back, x=x.numpy(), ct_plain=ct.numpy())
    for name, w in zip(("b.weight", "b.bias"), want, strict=True):
        tc.close(found[f"d_{name}"], w, name)


def test_what_the_refusal_advises(rng: np.random.Generator) -> None:
    """The same rounding with detach has PyTorch's gradient, that of the function itself."""
    import torch

    def rounded(x: Any) -> Any:
        return x + (x.round() - x).detach()

    x, calls = torch.randn(4, 3), [(torch.randn(2, 3),)]
    graph = tc.held(rounding(rounded), (x,), {"x": ("B", None)}, calls, rng)
    tc.gradients(graph, rounding(straight_through().apply), calls[0], rng)


def test_results_alone_under_no_grad() -> None:
    """PyTorch has no gradient there; nor has the graph."""
    import torch

    module, x = rounding(straight_through().apply), torch.randn(4, 3)
    with torch.no_grad():
        graph = li.from_torch(module, (x,), sizes={"x": ("B", None)})
        want = module(x[:3])
    (got,) = li.interpret(graph, x=x[:3].numpy()).values()
    np.testing.assert_allclose(got, want.numpy(), atol=1e-5)
    back = li.vjp(graph, graph.output_names, ["x", "layer.weight"], missing="zeros")
    name = graph.output_names[0]
    found = li.interpret(back, {"x": x.numpy(), f"ct_{name}": np.ones((4, 5), np.float32)})
    assert not found["d_x"].any()
    assert not found["d_layer.weight"].any()


def test_pytorch_is_as_before() -> None:
    """Outside of an export, and after one that failed, a Function is PyTorch's."""
    import torch

    function, x = straight_through(), torch.randn(4, 3, requires_grad=True)
    with pytest.raises(li.ModelError):
        li.from_torch(rounding(lambda x: torch.nonzero(function.apply(x))), (x.detach(),))
    function.apply(x).sum().backward()
    assert torch.equal(x.grad, torch.ones(4, 3))


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
def test_detach(kind: str) -> None:
    """No gradient goes through it, in every dtype."""
    import torch

    class Module(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, h: Any) -> Any:
            return x.detach() * x + h * 2, h.detach()

    given = [torch.randn(4, 3).to(getattr(torch, kind)) for _ in range(2)]
    graph = li.from_torch(Module(), tuple(given))
    x, h = (v.clone().requires_grad_() for v in given)
    y = Module()(x, h)[0]
    y.backward(torch.ones_like(y))
    name = graph.output_names[0]
    arrays = {"x": given[0], "h": given[1], f"ct_{name}": torch.ones_like(given[0])}
    back = li.vjp(graph, [name], ["x", "h"])
    found = li.interpret(back, {n: _array(v) for n, v in arrays.items()})
    for n, v in (("x", x), ("h", h)):
        np.testing.assert_array_equal(found[f"d_{n}"].astype("f8"), v.grad.double().numpy())


def _array(v: Any) -> Any:
    """NumPy has no bf16 of its own."""
    import ml_dtypes
    import torch

    return v.float().numpy().astype(ml_dtypes.bfloat16) if v.dtype is torch.bfloat16 else v.numpy()
