"""Modules of PyTorch on Vulkan: recurrent layers, packed rows, and random modules of the campaign."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need

pytestmark = pytest.mark.vulkan


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch", "vulkan")


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_packed_layer_both_ways(kind: str, rng: np.random.Generator) -> None:
    import torch
    from torch.nn.utils import rnn
    from torch_cases import held

    class Packed(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.layer = getattr(torch.nn, kind)(5, 7, bidirectional=True, batch_first=True)

        def forward(self, x: Any, lengths: Any) -> Any:
            rows = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return rnn.pad_packed_sequence(self.layer(rows)[0], batch_first=True, total_length=x.shape[1])[0]

    torch.manual_seed(2)
    calls = [(torch.randn(b, t, 5), torch.tensor(n)) for b, t, n in ((3, 6, [6, 1, 4]), (2, 4, [2, 4]))]
    held(Packed().eval(), calls[0], {"x": ("B", "T", None), "lengths": ("B",)}, calls[1:], rng, targets=("vulkan",))


@pytest.mark.parametrize("seed", [3, 5, 8])
def test_random_modules(seed: int) -> None:
    from torch_cases import held
    from torch_random import call, drawn

    rng = np.random.default_rng(seed)
    module, d, width = drawn(rng)
    sizes = {"x": ("B", "T", None)} | ({"lengths": ("B",)} if d.lengths else {})
    held(module, call(d, width, 3, 7), sizes, [call(d, width, 2, 5)], rng, grad=False, targets=("vulkan",))
