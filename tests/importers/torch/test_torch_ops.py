"""Ops around the recurrent layers: a function each, results and gradients beside PyTorch's, with open sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need, need_target

import lstm_ir as li

B, T, C = 2, 5, 6
Case = Callable[[Any, Any, Any], Any]  # torch, torch.nn.functional, x [B,T,C]
CASES: dict[str, Case] = {
    "add": lambda t, f, x: x + x * 2 - 1,
    "divide": lambda t, f, x: x / (x.abs() + 1.5),
    "power": lambda t, f, x: (x.abs() + 0.5) ** 1.7 + x**2,
    "root": lambda t, f, x: (x.abs() + 0.1).sqrt() + (x.abs() + 0.1).rsqrt(),
    "exp": lambda t, f, x: x.exp() + (x.abs() + 1).log() + x.abs().log1p() + x.expm1(),
    "waves": lambda t, f, x: x.sin() * x.cos(),
    "erf": lambda t, f, x: x.erf(),
    "clamp": lambda t, f, x: x.clamp(-0.5, 0.7) + x.clamp(min=0.1),
    "max_min": lambda t, f, x: t.maximum(x, x * 0.5) + t.minimum(x, 1 - x),
    "where": lambda t, f, x: t.where(x > 0.1, x, x * 0.25),
    "masked_fill": lambda t, f, x: x.masked_fill(x < 0, -2.0),
    "compare": lambda t, f, x: ((x > 0) & (x < 1) | (x == 2)).float() * x,
    "round": lambda t, f, x: x + (x * 3).round() + x.floor() + x.ceil() + x.sign(),
    "relu": lambda t, f, x: f.relu(x) + f.relu6(x * 4) + f.leaky_relu(x, 0.2),
    "elu": lambda t, f, x: f.elu(x, 0.7) + f.selu(x) + f.celu(x, 1.3),
    "gelu": lambda t, f, x: f.gelu(x) + f.gelu(x, approximate="tanh"),
    "silu": lambda t, f, x: f.silu(x) + f.mish(x) + f.softplus(x) + f.softsign(x),
    "sigmoid": lambda t, f, x: t.sigmoid(x) + f.logsigmoid(x) + t.tanh(x),
    "hard": lambda t, f, x: f.hardtanh(x) + f.hardsigmoid(x) + f.hardswish(x),
    "glu": lambda t, f, x: f.glu(x, -1),
    "softmax": lambda t, f, x: f.softmax(x, -1) + f.log_softmax(x, 1),
    "sum": lambda t, f, x: x.sum(-1) + x.mean((1, 2)).unsqueeze(-1),
    "amax": lambda t, f, x: x.amax(-1) - x.amin(-1) + x.max(2).values,
    "statistics": lambda t, f, x: x.var(-1) + x.std(-1) + x.var(2, unbiased=False),
    "logsumexp": lambda t, f, x: x.logsumexp(-1) + x.norm(dim=-1),
    "prod": lambda t, f, x: x.prod(-1),
    "cumsum": lambda t, f, x: x.cumsum(1),
    "argmax": lambda t, f, x: x * x.argmax(-1, keepdim=True).float(),
    "reshape": lambda t, f, x: x.reshape(x.shape[0], -1, 3).flatten(1).view(x.shape[0], x.shape[1], C),
    "transpose": lambda t, f, x: x.transpose(1, 2).permute(0, 2, 1).contiguous(),
    "squeeze": lambda t, f, x: x.unsqueeze(1).squeeze(1)[..., None].squeeze(-1),
    "cat": lambda t, f, x: t.cat([x, x * 2], -1),
    "stack": lambda t, f, x: t.stack([x, -x], 2).sum(2) + x,
    "split": lambda t, f, x: t.cat(list(x.split(2, -1))[::-1], -1) * t.cat(x.chunk(3, 2)[1:] + x.chunk(3, 2)[:1], 2),
    "slice": lambda t, f, x: x[:, 1:, ::2] - x[:, :-1, 1::2],
    "select": lambda t, f, x: x[:, -1] + x[:, 0] + x.select(1, 1),
    "flip": lambda t, f, x: x.flip(1) + x.roll(1, 1),
    "pad": lambda t, f, x: f.pad(x, (1, 2, 2, 0), value=0.5),
    "pad_reflect": lambda t, f, x: f.pad(x, (2, 1), mode="reflect") + f.pad(x, (2, 1), mode="replicate"),
    "expand": lambda t, f, x: x[:, :1].expand(-1, x.shape[1], -1) + x,
    "repeat": lambda t, f, x: x.repeat(1, 2, 1),
    "gather": lambda t, f, x: x.gather(2, t.tensor([[[0, 3]]]).expand(x.shape[0], x.shape[1], 2)),
    "index_select": lambda t, f, x: x.index_select(2, t.tensor([4, 0, 0])),
    "arange": lambda t, f, x: x * t.arange(x.shape[1], dtype=x.dtype)[None, :, None],
    "full": lambda t, f, x: x + t.zeros_like(x) + t.ones(x.shape[1], 1) * t.full((C,), 2.0),
    "tril": lambda t, f, x: (x @ x.transpose(1, 2)).tril() + (x @ x.transpose(1, 2)).triu(1) * 2,
    "matmul": lambda t, f, x: t.matmul(x, t.ones(C, 3)) + t.bmm(x, x.new_ones(x.shape[0], C, 3)),
    "einsum": lambda t, f, x: t.einsum("btc,dc->bdt", x, t.ones(4, C)),
    "attention": lambda t, f, x: f.scaled_dot_product_attention(x, x, x),
    "max_pool": lambda t, f, x: f.max_pool1d(x, 2) + f.avg_pool1d(x, 2),
    "adaptive": lambda t, f, x: f.adaptive_avg_pool1d(x, 1) + f.adaptive_max_pool1d(x, 1),
    "dropout": lambda t, f, x: f.dropout(x, 0.5, training=False),
}
MODULES: dict[str, Callable[[Any], Any]] = {  # over x [B,C,T] where they have channels, else [B,T,C]
    "Linear": lambda n: n.Linear(C, 4),
    "LayerNorm": lambda n: n.LayerNorm(C),
    "Conv1d": lambda n: n.Conv1d(C, 4, 3, padding=2, dilation=2),
    "Conv1d_groups": lambda n: n.Conv1d(C, 9, 2, stride=2, groups=3, bias=False),
    "ConvTranspose1d": lambda n: n.ConvTranspose1d(C, 4, 3, stride=2, padding=1, output_padding=1),
    "BatchNorm1d": lambda n: n.BatchNorm1d(C),
    "GroupNorm": lambda n: n.GroupNorm(3, C),
    "PReLU": lambda n: n.PReLU(C),
    "Sequential": lambda n: n.Sequential(
        n.Conv1d(C, 8, 3, padding=1), n.BatchNorm1d(8), n.ReLU(), n.MaxPool1d(2), n.Dropout()
    ),
}


TARGETS = ["cpu", pytest.param("vulkan", marks=[pytest.mark.vulkan, pytest.mark.slow])]
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def _check(module: Any, x: Array, sizes: tuple[Any, ...], other: Array, target: str) -> None:
    """At the sizes of the example, and at others; slopes, which are not compiled, where the target is the CPU."""
    import torch

    need_target(target)
    graph = li.from_torch(module, (torch.tensor(x),), sizes={"x": sizes})
    (name,) = graph.output_names
    with li.compile(graph, target) as exe:
        for a in (x, other):
            given = torch.tensor(a, requires_grad=True)
            want = module(given)
            assert np.allclose(exe(x=a)[name], want.detach().numpy(), rtol=2e-5, atol=2e-5)
            if target != "cpu":
                continue
            slope = np.random.default_rng(6).standard_normal(want.shape).astype(np.float32)
            module.zero_grad()
            want.backward(torch.tensor(slope))
            back = li.vjp(graph, [name], ["x", *graph.weights], missing="zeros")
            got = li.interpret(back, {"x": a, f"ct_{name}": slope})
            assert given.grad is not None
            assert np.allclose(got["d_x"], given.grad.numpy(), rtol=1e-4, atol=1e-4)
            for n, p in module.named_parameters():
                assert np.allclose(got[f"d_{n}"], p.grad.numpy(), rtol=1e-4, atol=1e-4), n


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_functions(name: str, target: str) -> None:
    import torch

    class Function(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return CASES[name](torch, torch.nn.functional, x)

    rng = np.random.default_rng(5)
    x, other = (rng.standard_normal((b, t, C)).astype(np.float32) for b, t in ((B, T), (3, 8)))
    _check(Function().eval(), x, ("B", "T", None), other, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str, target: str) -> None:
    import torch

    torch.manual_seed(7)
    module = MODULES[name](torch.nn).eval()
    for p in (*module.parameters(), *(b for n, b in module.named_buffers() if "running" in n)):
        p.data = torch.rand_like(p) * 0.5 + 0.3
    last = name in ("Linear", "LayerNorm")

    class Wrapped(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    rng = np.random.default_rng(8)
    shapes = [(b, t, C) if last else (b, C, t) for b, t in ((B, T + 1), (3, 10))]
    x, other = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    _check(Wrapped().eval(), x, ("B", "T", None) if last else ("B", None, None), other if last else x[:1], target)


def test_everything_that_is_not_taken_is_named_at_once() -> None:
    import torch

    class Foreign(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.linalg.svd(x).S + torch.fft.rfft(x).abs().sum()

    with pytest.raises(li.ModelError) as found:
        li.from_torch(Foreign(), (torch.ones(2, 3, 3),))
    assert "svd" in str(found.value)
    assert "fft" in str(found.value)
