"""Modules of PyTorch as streams: what an importer writes with a gradient of its own is known over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.importers.streams import streamed


@pytest.fixture(autouse=True)
def _library() -> None:
    need("torch")


def test_an_adaptive_pool_over_the_features_of_a_stream(seed: int) -> None:
    import torch

    class Pooled(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.LSTM(4, 3, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.layer(torch.nn.functional.adaptive_max_pool1d(x, 4))[0]

    torch.manual_seed(seed)
    module = Pooled()
    x = torch.from_numpy(np.random.default_rng(seed).standard_normal((2, 7, 10)).astype(np.float32))
    graph = li.from_torch(module, (x,), sizes={"x": {1: "T"}})
    program = streamed("pooled", graph, True)
    (given,), output = graph.input_names, graph.output_names[0]
    with torch.no_grad():
        want = module(x).numpy()
    with li.compile(program) as exe:
        parts = [exe.entries["step"]({given: x[:, a:b].numpy()})[output] for a, b in ((0, 1), (1, 5), (5, 7))]
    np.testing.assert_allclose(np.concatenate(parts, 1), want, atol=1e-6, err_msg=f"seed {seed}")
