"""nn.LSTM, nn.GRU, nn.RNN and their cells in every form: results and gradients beside PyTorch's, T and B open."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch_cases as tc
from device import need, need_target

import lstm_ir as li

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")
T, B, I, H = 6, 3, 5, 4
STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}
CHOICES: dict[str, list[Any]] = {
    "num_layers": [1, 2, 3],
    "bidirectional": [False, True],
    "batch_first": [False, True],
    "bias": [True, False],
    "proj_size": [0, 2],
    "nonlinearity": ["tanh", "relu"],
    "state": [False, True],
    "unbatched": [False, True],
    "double": [False, True],
}


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def possible(kind: str, case: dict[str, Any]) -> bool:
    return (kind == "LSTM" or not case["proj_size"]) and (kind == "RNN" or case["nonlinearity"] == "tanh")


def sampled(kind: str, count: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Random cases, of which each choice of each option has its share."""
    rows = {k: [v[i % len(v)] for i in rng.permutation(count)] for k, v in CHOICES.items()}
    cases = [{k: row[i] for k, row in rows.items()} for i in range(count)]
    for case in cases:
        case["proj_size"] *= kind == "LSTM"
        case["nonlinearity"] = case["nonlinearity"] if kind == "RNN" else "tanh"
    return cases


def layer(kind: str, case: dict[str, Any], seed: int) -> Any:
    import torch

    torch.manual_seed(seed)
    names = ("num_layers", "bidirectional", "batch_first", "bias")
    more = {n: case[n] for n in names} | ({"proj_size": case["proj_size"]} if case["proj_size"] else {})
    more |= {"nonlinearity": case["nonlinearity"]} if kind == "RNN" else {}
    return getattr(torch.nn, kind)(I, H, dtype=torch.float64 if case["double"] else torch.float32, **more)


def call(kind: str, case: dict[str, Any], t: int, b: int) -> tuple[Any, ...]:
    import torch

    dtype = torch.float64 if case["double"] else torch.float32
    shape = (t, I) if case["unbatched"] else (b, t, I) if case["batch_first"] else (t, b, I)
    rows = case["num_layers"] * (1 + case["bidirectional"])
    if not case["state"]:
        return (torch.randn(shape, dtype=dtype),)
    widths = (case["proj_size"] or H, H)[: STATES[kind]]
    states = [torch.randn((rows, n) if case["unbatched"] else (rows, b, n), dtype=dtype) for n in widths]
    return torch.randn(shape, dtype=dtype), tuple(states) if kind == "LSTM" else states[0]


def open_sizes(kind: str, case: dict[str, Any]) -> dict[str, Any]:
    if case["unbatched"]:
        return {"input": ("T", None)}
    sizes: dict[str, Any] = {"input": ("B", "T", None) if case["batch_first"] else ("T", "B", None)}
    if case["state"]:
        names = ("hx_0", "hx_1") if kind == "LSTM" else ("hx",)
        sizes |= {n: {1: "B"} for n in names}
    return sizes


def checked(
    kind: str, case: dict[str, Any], seed: int, rng: np.random.Generator, targets: tuple[str, ...] = ()
) -> None:
    print(kind, case)
    module, example = layer(kind, case, seed), call(kind, case, T, B)
    calls = [call(kind, case, 1, 2), call(kind, case, 8, 1)]
    g = tc.held(module, example, open_sizes(kind, case), calls, rng, targets=targets)
    assert Counter(n.op.name for n in g.nodes)[kind.lower()] == case["num_layers"]
    assert not any(n.op.name == "scan" for n in g.nodes)
    assert set(g.weights) == set(dict(module.named_parameters()))
    assert g.output_names == (("y", "h_n", "c_n") if kind == "LSTM" else ("y", "h_n"))


@pytest.mark.parametrize("kind", STATES)
def test_layers(kind: str, seed: int, rng: np.random.Generator) -> None:
    for case in sampled(kind, 8, rng):
        checked(kind, case, seed % 2**31, rng)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STATES)
def test_every_layer(kind: str, seed: int, rng: np.random.Generator) -> None:
    for values in itertools.product(*CHOICES.values()):
        case = dict(zip(CHOICES, values, strict=True))
        if possible(kind, case):
            checked(kind, case, seed % 2**31, rng)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
@pytest.mark.parametrize("kind", STATES)
def test_compiled(kind: str, target: str, seed: int, rng: np.random.Generator) -> None:
    need_target(target)
    (case,) = sampled(kind, 1, rng)
    case |= {"bidirectional": True, "num_layers": 2, "double": False, "unbatched": False}
    checked(kind, case, seed % 2**31, rng, (target,))


@pytest.mark.vulkan
def test_on_vulkan(seed: int, rng: np.random.Generator) -> None:
    need("vulkan")
    case = {k: v[0] for k, v in CHOICES.items()} | {"bidirectional": True, "state": True}
    checked("LSTM", case, seed % 2**31, rng, ("vulkan",))


CELLS: list[tuple[str, dict[str, Any]]] = [
    ("LSTMCell", {}), ("GRUCell", {"bias": False}), ("RNNCell", {"nonlinearity": "relu"}), ("RNNCell", {}),
]  # fmt: skip


def cells_are_layers(seed: int, rng: np.random.Generator, targets: Sequence[str] = ()) -> None:
    import torch

    torch.manual_seed(seed % 2**31)
    for kind, more in CELLS:
        cell = getattr(torch.nn, kind)(I, H, **more)
        states = [[torch.randn(b, H) for _ in range(2)] for b in (B, 1)]
        calls = [(torch.randn(len(s[0]), I), tuple(s) if kind == "LSTMCell" else s[0]) for s in states]
        names = ("hx_0", "hx_1") if kind == "LSTMCell" else ("hx",)
        g = tc.held(cell, calls[0], {n: {0: "B"} for n in ("input", *names)}, calls[1:], rng, targets=targets)
        assert [n.op.name for n in g.nodes if n.op.name in ("lstm", "gru", "rnn")] == [kind[:-4].lower()]


def test_cells_are_layers_of_one_step(seed: int, rng: np.random.Generator) -> None:
    cells_are_layers(seed, rng)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
def test_compiled_cells(target: str, seed: int, rng: np.random.Generator) -> None:
    need_target(target)
    cells_are_layers(seed, rng, (target,))


def test_a_cell_in_a_loop_of_python(seed: int, rng: np.random.Generator) -> None:
    import torch

    class Loop(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.LSTMCell(I, H)

        def forward(self, x: Any) -> Any:
            h = c = x.new_zeros(x.shape[1], H)
            rows = []
            for t in range(x.shape[0]):
                h, c = self.cell(x[t], (h, c))
                rows.append(h)
            return torch.stack(rows), c

    torch.manual_seed(seed % 2**31)
    x = torch.randn(T, B, I)
    g = tc.held(Loop(), (x,), {"x": {1: "B"}}, [(torch.randn(T, 2, I),)], rng)
    assert sum(n.op.name == "lstm" for n in g.nodes) == 1
    with pytest.raises(li.ModelError, match=r"x axis 0 \(T\) is 6 whatever the call"):
        li.from_torch(Loop(), (x,), sizes={"x": ("T", "B", None)})
