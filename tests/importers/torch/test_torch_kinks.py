"""Gradients where slopes jump: equal elements, bounds, zeros. There PyTorch's choice is the right one.

Rows of zeros are no rare case: padding, dead units and masked steps give them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch_cases as tc
from device import need

import lstm_ir as li

Function = Callable[[Any, Any, Any], Any]  # of torch, torch.nn.functional and x
BOUNDS: dict[str, Function] = {
    "clamp": lambda t, f, x: x.clamp(-1, 2),
    "clamp_tensors": lambda t, f, x: x.clamp(t.full_like(x, -1), t.full_like(x, 2)),
    "clamp_crossed": lambda t, f, x: x.clamp(t.full_like(x, 2), t.full_like(x, -1)),
    "clamp_min": lambda t, f, x: x.clamp(min=0.0),
    "clamp_max": lambda t, f, x: x.clamp(max=0.0),
    "relu": lambda t, f, x: f.relu(x),
    "relu6": lambda t, f, x: f.relu6(x * 3),
    "hardtanh": lambda t, f, x: f.hardtanh(x, -1.0, 2.0),
    "hardsigmoid": lambda t, f, x: f.hardsigmoid(x * 3),
    "hardswish": lambda t, f, x: f.hardswish(x * 3),
    "leaky_relu": lambda t, f, x: f.leaky_relu(x, 0.2),
    "prelu": lambda t, f, x: f.prelu(x, t.tensor([0.3])),
    "elu": lambda t, f, x: f.elu(x, 0.7),
    "celu": lambda t, f, x: f.celu(x, 0.7),
    "selu": lambda t, f, x: f.selu(x),
    "abs": lambda t, f, x: t.abs(x),
    "softshrink": lambda t, f, x: f.softshrink(x, 1.0),
    "hardshrink": lambda t, f, x: f.hardshrink(x, 1.0),
    "threshold": lambda t, f, x: f.threshold(x, 0.0, 5.0),
    "masked_fill": lambda t, f, x: x.masked_fill(x == 0, 3.0),
    "fmod": lambda t, f, x: t.fmod(x, 2.0),
    "remainder": lambda t, f, x: t.remainder(x, 2.0),
}
EQUAL: dict[str, Function] = {
    "amax": lambda t, f, x: x.amax(1),
    "amin_of_all": lambda t, f, x: x.amin((0, 1)),
    "max": lambda t, f, x: x.max(),
    "max_of_an_axis": lambda t, f, x: x.max(1)[0],
    "min_of_an_axis": lambda t, f, x: x.min(0)[0],
    "maximum": lambda t, f, x: t.maximum(x, x.flip(0)),
    "minimum": lambda t, f, x: t.minimum(x, t.zeros_like(x)),
    "max_pool1d": lambda t, f, x: f.max_pool1d(x[None], 2, 1)[0],
    "max_pool2d": lambda t, f, x: f.max_pool2d(x[None], 2, 1)[0],
    "adaptive_max_pool1d": lambda t, f, x: f.adaptive_max_pool1d(x[None], 1)[0],
    "adaptive_max_pool1d_of_3": lambda t, f, x: f.adaptive_max_pool1d(x[None], 3)[0],
    "adaptive_max_pool2d": lambda t, f, x: f.adaptive_max_pool2d(x[None], (2, 3))[0],
    "adaptive_max_pool2d_of_all": lambda t, f, x: f.adaptive_max_pool2d(x.flip(0)[None], 1)[0],
    "sort": lambda t, f, x: x.sort(dim=1, stable=True)[0],
    "logaddexp": lambda t, f, x: t.logaddexp(x, x.flip(0)),
}
ZEROS: dict[str, Function] = {
    "norm": lambda t, f, x: x.norm(dim=1),
    "norm_1": lambda t, f, x: x.norm(1, dim=1),
    "norm_infinity": lambda t, f, x: x.norm(float("inf"), dim=1),
    "vector_norm": lambda t, f, x: t.linalg.vector_norm(x, dim=0),
    "distances": lambda t, f, x: (x[:, None] - x[None]).norm(dim=2),
    "normalize": lambda t, f, x: f.normalize(x, dim=1),
    "cosine_similarity": lambda t, f, x: f.cosine_similarity(x, x.flip(0), dim=1),
    "std": lambda t, f, x: x.std(1),
    "std_mean": lambda t, f, x: sum(t.std_mean(x, 1)),
    "var": lambda t, f, x: x.var(1),
    "prod": lambda t, f, x: x.prod(1),
    "cumprod": lambda t, f, x: x.cumprod(1),
    "power_0": lambda t, f, x: x**0,
    "power_3": lambda t, f, x: x**3.0,
    "power_of_0": lambda t, f, x: t.pow(0.0, x.abs()),
    "root": lambda t, f, x: x.abs().sqrt(),
    "atan2": lambda t, f, x: t.atan2(x, x.flip(1)),
    "nan_to_num": lambda t, f, x: (x / x).nan_to_num(0.5),
    "softmax_of_nothing": lambda t, f, x: t.softmax(x.masked_fill(x == 0, -1e9), 1),
    "rms_norm": lambda t, f, x: f.rms_norm(x, (4,)),
    "layer_norm": lambda t, f, x: f.layer_norm(x, (4,)),
}
ALL = BOUNDS | EQUAL | ZEROS
X = np.array(
    [[0, 0, 0, 0], [1, -1, 1, 2], [2, 2, -1, 0], [-1, -1, 3, 1], [1, 1, 1, 1], [3, 0.5, -3, 3]], np.float32
)  # fmt: skip


@pytest.fixture(scope="module")
def both() -> tuple[Any, li.Graph]:
    """A module of all functions, and its graph: one export."""
    need("torch")
    import torch

    class Module(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return {n: f(torch, torch.nn.functional, x) for n, f in ALL.items()}

    return Module(), li.from_torch(Module(), (torch.tensor(X),))


@pytest.mark.parametrize("name", ALL)
def test_beside_pytorch(name: str, both: tuple[Any, li.Graph], rng: np.random.Generator) -> None:
    import torch

    module, graph = both
    x = torch.tensor(X, requires_grad=True)
    y = module(x)[name]
    ct = rng.standard_normal(tuple(y.shape)).astype(np.float32)
    (want,) = torch.autograd.grad(y, [x], torch.tensor(ct))
    found = li.interpret(li.vjp(graph, [name], ["x"], missing="zeros"), {"x": X, f"ct_{name}": ct})
    tc.close(found[name], y, name)
    tc.close(found["d_x"], want, f"slope of {name}")


def test_a_slope_that_is_learned(rng: np.random.Generator) -> None:
    """The part of x below 0 that PReLU learns, at zeros."""
    need("torch")
    import torch

    torch.manual_seed(2)
    x = torch.tensor(X)
    tc.held(torch.nn.PReLU(4, init=0.3), (x,), {"input": ("B", None)}, [(x[:2],)], rng)


def test_an_open_pool_of_equal_elements(rng: np.random.Generator) -> None:
    """One window over an open axis: the gradient goes to the first of the largest."""
    need("torch")
    import torch

    x = torch.tensor(X)[:, None]
    calls = [(torch.tensor(X[1:4, None, :3]),), (torch.tensor(X[:, None]),)]
    tc.held(torch.nn.AdaptiveMaxPool1d(1), (x,), {"input": ("B", None, "T")}, calls, rng, targets=["cpu"])
