"""A module imported, trained here, and written back: PyTorch goes on as if it had trained itself."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

STEPS, RATE, B, T = 100, 0.05, 4, 7


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def _model() -> Any:
    import torch

    class Tagger(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(11, 5)
            self.lstm = torch.nn.LSTM(5, 6, num_layers=2, batch_first=True, bidirectional=True)
            self.norm = torch.nn.LayerNorm(12)
            self.out = torch.nn.Linear(12, 3)

        def forward(self, ids: Any) -> Any:
            return self.out(self.norm(torch.tanh(self.lstm(self.embed(ids))[0])))

    torch.manual_seed(3)
    return Tagger().eval()


def _step(module: Any, optimizer: Any, ids: Any, tags: Any) -> float:
    import torch

    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(module(ids).flatten(0, 1), tags.flatten())
    loss.backward()
    optimizer.step()
    return float(loss.item())


@pytest.mark.slow
@pytest.mark.parametrize(("double", "limit"), [(False, 1e-4), (True, 1e-9)])  # rounding grows from step to step
@pytest.mark.parametrize("source", ["executable", "state"])
def test_torch_goes_on(source: str, double: bool, limit: float) -> None:
    import torch

    module = _model().double() if double else _model()
    alone = copy.deepcopy(module)
    rng = np.random.default_rng(4)
    ids, tags = rng.integers(0, 11, (B, T)), rng.integers(0, 3, (B, T)).astype(np.int32)
    graph = li.from_torch(module, (torch.tensor(ids),), sizes={"ids": ("B", "T")})
    assert set(graph.weights) == set(module.state_dict())
    labels = li.input("tags", ("B", "T"), "i32")
    loss = li.Graph("loss", [*graph.params, labels], {"loss": li.cross_entropy(graph.outputs[0], labels)})
    optimizer = torch.optim.SGD(alone.parameters(), lr=RATE)
    kind = graph.params[0].dtype.numpy
    with li.compile(li.train_step(loss, "loss", li.sgd(RATE))) as exe:
        train = exe.entries["train"]
        for k in range(STEPS):
            got = float(train(ids=ids.astype(kind), tags=tags)["loss"])
            want = _step(alone, optimizer, torch.tensor(ids), torch.tensor(tags, dtype=torch.int64))
            assert got == pytest.approx(want, abs=limit), k
        given = exe if source == "executable" else {n: exe.state[n] for n in graph.weights}
        assert li.to_torch(given, module) is module
    later = torch.optim.SGD(module.parameters(), lr=RATE)
    for _ in range(20):
        args = torch.tensor(ids), torch.tensor(tags, dtype=torch.int64)
        assert _step(module, later, *args) == pytest.approx(_step(alone, optimizer, *args), abs=limit)


def test_what_does_not_fit_changes_nothing() -> None:
    module = _model()
    before = {n: v.clone() for n, v in module.state_dict().items()}
    fits = np.zeros(3, np.float32)
    for arrays, text in (
        ({"out.bias": fits, "other": fits}, "Tagger has no 'other'"),
        ({"out.bias": fits, "out.weight": fits}, r"out\.weight is f32\[3\], in Tagger f32\[3,12\]"),
        ({"out.bias": fits.astype(np.float64)}, r"out\.bias is f64\[3\], in Tagger f32\[3\]"),
        (fits, "arrays by name, got ndarray"),
    ):
        with pytest.raises(li.ModelError, match=text):
            li.to_torch(arrays, module)  # type: ignore[arg-type]
        assert all((v == before[n]).all() for n, v in module.state_dict().items())
    with pytest.raises(li.ModelError, match=r"an nn\.Module, got dict"):
        li.to_torch({}, {})


def test_files_and_other_things_are_refused(tmp_path: Any) -> None:
    for given, text in (
        (tmp_path / "m.pt", "not the file"),
        (b"PK", "not bytes"),
        (lambda x: x, "got function"),
        (_model(), "example is missing"),
    ):
        with pytest.raises(li.ModelError, match=text):
            li.from_torch(given)
