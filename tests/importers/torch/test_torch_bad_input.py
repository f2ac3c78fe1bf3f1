"""What `from_torch` and `to_torch` cannot take, each refused with its cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def linear(**more: Any) -> Any:
    import torch

    torch.manual_seed(1)
    return torch.nn.Linear(3, 2, **more)


def hooked() -> Any:
    """torch.export runs no hooks of a GraphModule."""
    import torch

    made = torch.fx.symbolic_trace(linear())
    made.register_forward_hook(lambda module, args, y: y * 2)
    return made


def example(**more: Any) -> Any:
    import torch

    return (torch.ones(4, 3, **more),)


MODULES: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "meta": (
        lambda: linear(device="meta"), lambda: example(device="meta"),
        r"weight \(parameter\): it is on the device meta, and has no elements",
    ),
    "meta example": (linear, lambda: example(device="meta"), "found at least two devices, meta and cpu"),
    "half module": (lambda: linear().half(), example, "lhs is f32, rhs f16; convert one of them"),
    "hooks of a GraphModule": (hooked, example, "a GraphModule with hooks of its own, which torch.export does not"),
    "one tensor": (linear, lambda: example()[0], r"example is a tensor; a tuple holds the inputs: \(x,\)"),
    "nothing": (linear, lambda: (None,), "must be Tensor, not NoneType"),
    "another name": (linear, lambda: {"x": example()[0]}, "does not fit forward: missing a required argument: 'input'"),
    "another width": (linear, lambda: (example()[0][:, :2],), r"got \[4, 2\] X \[3, 2\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_modules_and_examples(name: str) -> None:
    module, given, said = MODULES[name]
    with pytest.raises(li.ModelError, match=said):
        li.from_torch(module(), given())


def test_half_modules_and_shared_weights() -> None:
    """A module of f16 with inputs of f16, a tied parameter under one name: taken, and right."""
    import torch
    import torch_cases as tc

    class TiedLetters(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.seen, self.next = torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False)
            self.next.weight = self.seen.weight

        def forward(self, ids: Any) -> Any:
            return self.next(self.seen(ids))

    rng = np.random.default_rng(0)
    x = (torch.randn(4, 3).half(),)
    tc.held(linear().half(), x, {"input": ("B", None)}, [x], rng)
    module, ids = TiedLetters(), (torch.tensor([1, 4, 4]),)
    graph = li.from_torch(module, ids, sizes={"ids": ("B",)})
    (name,) = graph.weights
    assert [name] == [n for n, _ in module.named_parameters()]
    ct = torch.randn(3, 5)
    (want,) = torch.autograd.grad(module(*ids), [module.seen.weight], ct)
    back = li.vjp(graph, graph.output_names, [name])
    found = li.interpret(back, {"ids": ids[0].numpy(), f"ct_{graph.output_names[0]}": ct.numpy()})
    tc.close(found[f"d_{name}"], want, name)
    li.to_torch({name: np.ones((5, 3), np.float32)}, module)
    assert (module.seen.weight == 1).all()
    assert module.next.weight is module.seen.weight


def test_weights_that_are_no_arrays() -> None:
    import torch

    module, fits = linear(), np.arange(6, dtype=np.float32).reshape(2, 3)
    before = module.weight.detach().clone()
    bad: dict[str, tuple[Any, str]] = {
        "learns": (torch.ones(2, 3, requires_grad=True), r"weight: .*detach\(\)"),
        "bf16": (torch.ones(2, 3).bfloat16(), "weight: .*BFloat16"),
        "rows": ([[1.0], [2.0, 3.0]], "weight: .*inhomogeneous"),
        "word": ("abc", "weight: element type"),
        "object": (object(), "weight: element type 'object'"),
    }
    for given, said in bad.values():
        with pytest.raises(li.ModelError, match=f"to_torch: {said}"):
            li.to_torch({"weight": given}, module)
        assert torch.equal(module.weight, before)
    li.to_torch({"weight": fits.astype(">f4")}, module)  # other bytes, the same numbers
    np.testing.assert_array_equal(module.weight.detach().numpy(), fits)


def test_modules_that_keep_nothing() -> None:
    import torch

    fits = {"weight": np.ones((2, 3), np.float32)}
    with pytest.raises(li.ModelError, match="Linear: weight is on the device meta, and keeps no elements"):
        li.to_torch(fits, linear(device="meta"))
    with pytest.raises(li.ModelError, match="LazyLinear: weight has no shape yet: call the module first"):
        li.to_torch(fits, torch.nn.LazyLinear(2))
