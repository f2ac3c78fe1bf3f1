"""Each op of the importer's table, called by itself: results and gradients beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

need("torch")
from torch_cases import arrays_of, held, leaves  # noqa: E402  they need torch
from torch_ops import CASES, PAIRS, SINGLES, Single, edges, operands  # noqa: E402

ELSEWHERE = ("lstm_ir.", "higher_order.")  # layers and packed sequences, loops and branches have files of their own
RENAMED = ("aten.detach_.default", "aten.lift_fresh.default")  # by torch.export, where they are called by themselves
NO_GRADIENT = ("aten.floor_divide.default", "aten.floor_divide.Scalar", "aten.detach_copy.default")  # in PyTorch
NOT_HELD: dict[str, Callable[[Any], Any]] = {  # a value of x where PyTorch has another than NumPy
    "aten.sign.default": lambda x: np.isnan(x),
    "aten.gelu.default": lambda x: x == np.inf,
}


def test_every_op_has_a_case() -> None:
    from lstm_ir.importers.torch import handlers
    from lstm_ir.importers.torch.table import TABLE

    assert handlers.__doc__
    assert {n for n in TABLE if not n.startswith(ELSEWHERE)} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_by_itself(name: str, seed: int, rng: np.random.Generator) -> None:
    args = operands(seed % 2**31)
    for case in CASES[name]:
        module = Single(name, case)
        ops = [o.op for o in li.examine(module, args, target=None).report.ops]
        assert name in ops or name in RENAMED, ops
        given = [a.clone().requires_grad_(a.is_floating_point()) for a in args]
        learns = name not in NO_GRADIENT and any(y.requires_grad for y in leaves(module(*given)))
        held(module, args, None, [], rng, grad=learns)


@pytest.mark.parametrize("name", [*SINGLES, *PAIRS])
def test_at_infinities_zeros_and_nan(name: str) -> None:
    """Each function at each value, or each pair of values, where functions break."""
    import torch

    x, y = edges(pairs=name in PAIRS)
    args = x, y, torch.zeros(1, dtype=torch.int64), torch.ones(1, dtype=torch.bool)
    for case in (SINGLES | PAIRS)[name]:
        module = Single(name, case)
        graph = li.from_torch(module, args)
        got, want = li.interpret(graph, arrays_of(graph, args))["y"], module(*args).numpy()
        at = ~NOT_HELD[name](x.numpy()) if name in NOT_HELD else slice(None)
        np.testing.assert_allclose(got[at], want[at], 2e-5, 2e-5)
