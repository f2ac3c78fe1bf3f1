"""Modules of every recurrent kind, trained here and by PyTorch after it, beside their twins that PyTorch alone trained.

100 steps are made here, with the losses of PyTorch at each; then PyTorch goes on, from the moments that Adam has here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

STEPS, MORE, B, T, LETTERS, TAGS = 100, 20, 4, 7, 11, 3
LENGTHS = np.array([7, 5, 5, 2])


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def _packed(t: Any) -> Any:
    return t.nn.GRU(5, 6, 2, batch_first=True)


def _projected(t: Any) -> Any:
    return t.nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True, proj_size=3)


def _relu(t: Any) -> Any:
    return t.nn.RNN(5, 6, 2, batch_first=True, nonlinearity="relu")


LAYERS: dict[str, Callable[[Any], Any]] = {f.__name__.strip("_"): f for f in (_packed, _projected, _relu)}


def module(name: str) -> Any:
    """A tagger of letters [B,T]: `packed` packs its rows by lengths [B]."""
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    class LetterTagger(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.layer = torch.nn.Embedding(LETTERS, 5), LAYERS[name](torch)
            self.out = torch.nn.Linear(6, TAGS)

        def forward(self, ids: Any, lengths: Any = None) -> Any:
            x = self.embed(ids)
            if lengths is None:
                return self.out(self.layer(x)[0])
            y, _ = self.layer(pack_padded_sequence(x, lengths, batch_first=True))
            return self.out(pad_packed_sequence(y, batch_first=True, total_length=ids.shape[1])[0])

    torch.manual_seed(6)
    return LetterTagger()


def optimizers(name: str, parameters: Any) -> tuple[Any, Any]:
    """Ours, and PyTorch's."""
    import torch

    if name == "adam":
        return li.adam(0.003), torch.optim.Adam(parameters, 0.003)
    return li.momentum(0.02, 0.9), torch.optim.SGD(parameters, 0.02, momentum=0.9)


def carry(optimizer: Any, module: Any, state: Any) -> None:
    """Give PyTorch's optimizer what ours keeps."""
    import torch

    adam = isinstance(optimizer, torch.optim.Adam)
    for name, p in module.named_parameters():
        kept = {n.rpartition("/")[0]: torch.tensor(np.array(state[n])) for n in state if n.endswith(f"/{name}")}
        moments = {"exp_avg": "adam/m", "exp_avg_sq": "adam/v"} if adam else {"momentum_buffer": "momentum/v"}
        optimizer.state[p] = {theirs: kept[ours] for theirs, ours in moments.items()}
        if adam:
            optimizer.state[p]["step"] = torch.tensor(float(state["step"]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(("double", "limit"), [(False, 1e-4), (True, 1e-9)])
def test_torch_goes_on_as_it_would_have(name: str, optimizer: str, double: bool, limit: float) -> None:
    import torch

    ours = module(name).double() if double else module(name)
    alone = copy.deepcopy(ours)
    rng = np.random.default_rng(8)
    ids, tags = rng.integers(0, LETTERS, (B, T)), rng.integers(0, TAGS, (B, T)).astype(np.int32)
    given: dict[str, Any] = {"ids": ids} | ({"lengths": LENGTHS} if name == "packed" else {})
    args = tuple(map(torch.tensor, given.values()))

    def step(module: Any, optimizer: Any) -> float:
        optimizer.zero_grad()
        found = module(*args).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(found, torch.tensor(tags, dtype=torch.int64).flatten())
        loss.backward()
        optimizer.step()
        return float(loss.item())

    graph = li.from_torch(
        ours, args, sizes={"ids": ("B", "T"), "lengths": ("B",)} if name == "packed" else {"ids": ("B", "T")}
    )
    labels = li.input("tags", ("B", "T"), "i32")
    loss = li.Graph("loss", [*graph.params, labels], {"loss": li.cross_entropy(graph.outputs[0], labels)})
    here, there = optimizers(optimizer, alone.parameters())
    with li.compile(li.train_step(loss, "loss", here)) as exe:
        for k in range(STEPS):
            got = float(exe.entries["train"](**given, tags=tags)["loss"])
            assert got == pytest.approx(step(alone, there), abs=limit), k
        li.to_torch(exe, ours)
        later = optimizers(optimizer, ours.parameters())[1]
        carry(later, ours, exe.state)
    for k in range(MORE):
        assert step(ours, later) == pytest.approx(step(alone, there), abs=limit), k
