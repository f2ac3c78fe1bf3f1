"""Public architectures in their module form, with every size open that has a name: results of PyTorch.

The modules are those that the tests of ONNX export; here no exporter stands between.
"""

from __future__ import annotations

import inspect
from typing import Any

import exported_models as em
import numpy as np
import pytest
from device import need, need_target

import lstm_ir as li

LIMIT = 2e-5  # of the largest number of an output


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def imported(made: Any, rng: np.random.Generator) -> li.Graph:
    import torch

    arrays = made.arrays(made.calls[0], rng)
    example = tuple(torch.from_numpy(a) for a in arrays.values())
    names = list(inspect.signature(made.module.forward).parameters)[: len(example)]
    axes = {
        name: tuple(d if isinstance(d, str) else None for d in shape if d != "i")
        for name, shape in zip(names, made.inputs.values(), strict=True)
    }
    return li.from_torch(made.module, example, sizes={n: a for n, a in axes.items() if any(a)})


@pytest.mark.slow_cases(name=[n for n in em.NAMES if n not in ("tagger", "transcriber", "fusion", "separator")])
@pytest.mark.parametrize("name", em.NAMES)
def test_results(name: str, rng: np.random.Generator) -> None:
    made = em.built(name, 3)
    graph = imported(made, rng)
    beside(made, graph, lambda given: li.interpret(graph, given), rng)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
@pytest.mark.parametrize("name", em.NAMES)
def test_compiled(name: str, target: str, rng: np.random.Generator) -> None:
    need_target(target)
    made = em.built(name, 3)
    graph = imported(made, rng)
    with li.compile(graph, target) as exe:
        beside(made, graph, exe, rng)


def beside(made: Any, graph: li.Graph, run: Any, rng: np.random.Generator) -> None:
    """Every call beside PyTorch's."""
    for sizes in made.calls:
        arrays = made.arrays(sizes, rng)
        got = run(dict(zip(graph.input_names, arrays.values(), strict=True)))
        for (out, g), want in zip(got.items(), made.results(arrays), strict=True):
            assert (g.shape, g.dtype) == (want.shape, want.dtype), out
            assert np.abs(g - want).max(initial=0) <= LIMIT * max(1.0, np.abs(want).max(initial=0)), out
