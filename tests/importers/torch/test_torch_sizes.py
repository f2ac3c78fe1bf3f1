"""What an export fixes of open sizes is refused by its place; what it does not fix is right at other sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch_cases as tc
from device import need

import lstm_ir as li

B, T = 3, 7


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def module(call: Callable[[Any], Any], *layers: Any) -> Any:
    import torch

    class Reader(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(*layers)

        def forward(self, x: Any) -> Any:
            return call(self.layers(x))

    return Reader().eval()


def rows(x: Any) -> Any:
    total = x[:, 0]
    for t in range(1, x.shape[1]):
        total = total + x[:, t]
    return total


FIXED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a number of Python": (lambda x: x * int(x.shape[1]), r"x axis 1 \(T\) is 7 whatever the call, at test_torch_s"),
    "a loop of Python": (rows, rf"whatever the call, at test_torch_sizes\.py:{rows.__code__.co_firstlineno + 2}:"),
    "a tensor of this size": (
        lambda x: x + x.new_ones(3, 7),
        r"x axis 0 \(B\) is 3 whatever the call, by add, at test",
    ),
    "an exact size": (lambda x: x * 2 if x.shape[1] == 7 else x, r"x axis 1 \(T\) is 7 whatever the call, at test"),
}
BRANCHES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "from above": (lambda x: x * 2 if x.shape[1] > 5 else x * 3, r"at B = 3, T = 1 the module does something else"),
    "from below": (lambda x: x * 2 if x.shape[1] < 50 else x * 3, r"at B = 3, T = 64 the module"),
    "one": (lambda x: x * 2 if x.shape[0] == 1 else x * 3, r"at B = 1, T = 7 the module"),
    "a remainder": (lambda x: x * 2 if x.shape[1] % 2 == 1 else x * 3, r"at B = 3, T = 2 the module"),
    "not this": (lambda x: x * 2 if x.shape[1] != 9 else x * 3, r"at B = 3, T = 9 the module"),
    "another op": (lambda x: x.sin() if x.shape[1] > 5 else x.cos(), r"aten\.cos\.default where it had aten\.sin"),
    "of both": (lambda x: x * 2 if x.shape[0] < x.shape[1] else x * 3, r"the module does something else .*aten\.mul"),
}  # fmt: skip


@pytest.mark.parametrize("name", FIXED)
def test_a_size_that_becomes_a_number(name: str) -> None:
    import torch

    call, said = FIXED[name]
    with pytest.raises(li.ModelError, match=said):
        li.from_torch(module(call), (torch.ones(B, T),), sizes={"x": ("B", "T")})
    graph = li.from_torch(module(call), (torch.ones(B, T),))  # as a number it is right
    want = module(call)(torch.ones(B, T)).numpy()
    (got,) = li.interpret(graph, x=np.ones((B, T), np.float32)).values()
    np.testing.assert_allclose(got, want, 1e-6)


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_that_is_not_in_the_graph(name: str) -> None:
    """The size is a condition of Python: the graph has one side of it alone."""
    import torch

    call, said = BRANCHES[name]
    with pytest.raises(li.ModelError, match=said) as found:
        li.from_torch(module(call), (torch.ones(B, T),), sizes={"x": ("B", "T")})
    assert "at test_torch_sizes.py:" in str(found.value)


def test_advice_names_other_inputs_alone() -> None:
    """That another axis of the same input has the number says nothing."""
    import torch

    square = module(lambda x: x + x.new_ones(3, 3))
    with pytest.raises(li.ModelError, match=r"is 3 whatever the call, by add, at [^:]*:\d+: leave it out of sizes"):
        li.from_torch(square, (torch.ones(3, 3),), sizes={"x": ("B", None)})


def test_sizes_that_stay_open(rng: np.random.Generator) -> None:
    """Layers that compare sizes for themselves, with the same result on each side."""
    import torch

    n, f = torch.nn, torch.nn.functional
    cases = [
        (module(lambda x: x, n.Unflatten(1, (1, -1)), n.InstanceNorm1d(1)), 2),
        (module(lambda x: x.reshape(x.shape[0], -1, 1)), 1),
        (module(lambda x: x + x.new_ones(x.shape[0], 1)), 1),
        (module(lambda x: x / x.shape[1] ** 0.5), 1),
        (module(lambda x: x.chunk(2, 1)[0]), 2),
        (module(lambda x: x[:, : x.shape[1] // 2]), 2),
        (module(lambda x: f.instance_norm(x.unsqueeze(1).expand(-1, 4, -1))), 2),
        (module(lambda x: x, n.Unflatten(1, (1, -1)), n.Conv1d(1, 2, 5), n.MaxPool1d(3)), 8),
        (module(lambda x: x, n.Unflatten(1, (1, -1)), n.MaxPool1d(3, ceil_mode=True)), 3),
        (module(lambda x: f.max_pool1d(x.unsqueeze(1), 2, 1, 1)), 2),
    ]
    for made, least in cases:
        calls = [(torch.randn(b, t),) for b, t in ((2, least), (4, least + 9))]
        tc.held(made, (torch.randn(B, T + 10),), {"x": ("B", "T")}, calls, rng)


def test_the_largest_with_their_places_are_not_taken() -> None:
    import torch

    made = module(lambda x: torch.nn.functional.max_pool1d(x.unsqueeze(1), 3, return_indices=True)[1])
    with pytest.raises(li.ModelError, match=r"max_pool1d_with_indices\.default\): its result 1 is not taken, at"):
        li.from_torch(made, (torch.ones(B, T),))
