"""Some of the campaign's random modules of PyTorch: results at three sizes and all gradients beside its own.

`tests/campaigns/torch_random_modules.py` draws as many as it has time for. `--seed` draws others here.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch_cases as tc
from device import need

import lstm_ir as li

SHAPES = ((3, 7), (2, 5), (4, 2), (1, 6), (2, 1))  # rows and steps of calls
NUMBERS = range(24)


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


@pytest.mark.filterwarnings("ignore")  # of torch's scan, and of layers with projections
@pytest.mark.parametrize("number", NUMBERS)
def test_beside_pytorch(number: int, rng: np.random.Generator) -> None:
    from torch_random import call, drawn, unrolled

    module, d, width = drawn(rng)
    print("; ".join(d.words))
    sizes = {"x": ("B", "T", None)} | ({"lengths": ("B",)} if d.lengths else {})
    example = call(d, width, *SHAPES[0])
    calls = [call(d, width, *SHAPES[k]) for k in rng.choice(range(1, len(SHAPES)), 2, replace=False)]
    try:
        graph = li.from_torch(module, example, sizes=sizes)
    except li.ModelError as e:
        if not e.refusals:  # each has its op
            raise
        pytest.skip(f"refused: {e.refusals[0]}")
    with unrolled():
        for args in (example, *calls):
            tc.results(graph, lambda given: li.interpret(graph, given), module, args)
            tc.gradients(graph, module, args, rng)
