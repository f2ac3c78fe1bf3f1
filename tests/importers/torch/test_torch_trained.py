"""Models that PyTorch trained on real data, imported: the digits, and the letters of the sonnets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from device import need
from paths import ROOT

import lstm_ir as li
from lstm_ir.data import digits

SONNETS = ROOT / "examples" / "data" / "sonnets.txt"
CHUNK, READERS = 32, 64


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small products on a busy machine take ten times as long with two."""
    need("torch")
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _fit(module: Any, batches: list[tuple[Any, Any]], rate: float) -> float:
    """Train, and give the last loss."""
    import torch

    optimizer, loss = torch.optim.Adam(module.parameters(), rate), torch.nn.CrossEntropyLoss()
    for x, labels in batches:
        optimizer.zero_grad()
        found = module(x)
        last = loss(found.reshape(-1, found.shape[-1]), labels.reshape(-1))
        last.backward()
        optimizer.step()
    module.eval()
    return float(last.detach())


def test_the_same_digits() -> None:
    """A GRU in both directions over the rows of an image; images that it has not seen."""
    import torch

    torch.manual_seed(1)

    class Classifier(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.rows = torch.nn.GRU(8, 24, batch_first=True, bidirectional=True)
            self.digit = torch.nn.Linear(48, 10)

        def forward(self, x: Any) -> Any:
            return self.digit(self.rows(x)[0].mean(1))

    data, module = digits(), Classifier()
    x, labels = torch.tensor(data.train_images / 16.0).float(), torch.tensor(data.train_labels.astype(np.int64))
    order = [torch.randperm(len(x))[:128] for _ in range(150)]
    _fit(module, [(x[o], labels[o]) for o in order], 0.02)
    seen = torch.tensor(data.test_images / 16.0).float()
    with torch.no_grad():
        want = module(seen).numpy()
    assert (want.argmax(1) == data.test_labels).mean() > 0.85
    graph = li.from_torch(module, (seen[:2],), sizes={"x": ("B", 8, 8)})
    with li.compile(graph) as exe:
        (got,) = exe(x=seen.numpy()).values()
    assert np.allclose(got, want, atol=5e-5)
    assert (got.argmax(1) == want.argmax(1)).all()


def test_the_same_letters() -> None:
    """An embedding, an LSTM of two layers and a loss over letters; a line that it has not seen, of another length."""
    import torch

    torch.manual_seed(2)
    text = SONNETS.read_text(encoding="ascii").lower()
    letters = sorted(set(text))
    places = torch.tensor([letters.index(c) for c in text])

    class Letters(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.seen = torch.nn.Embedding(len(letters), 16)
            self.layers = torch.nn.LSTM(16, 48, num_layers=2, batch_first=True)
            self.next = torch.nn.Linear(48, len(letters))

        def forward(self, x: Any) -> Any:
            return self.next(self.layers(self.seen(x))[0])

    module = Letters()
    held_out = len(places) // 10
    begins = [torch.randint(len(places) - held_out - CHUNK - 1, (READERS, 1)) for _ in range(120)]
    chunks = [places[b + torch.arange(CHUNK + 1)] for b in begins]
    last = _fit(module, [(c[:, :-1], c[:, 1:]) for c in chunks], 0.01)
    assert last < 0.8 * np.log(len(letters))  # it has learned something
    line = places[-held_out:][:300].reshape(3, 100)
    with torch.no_grad():
        want = module(line).numpy()
    graph = li.from_torch(module, (line[:2, :7],), sizes={"x": ("B", "T")})
    with li.compile(graph) as exe:
        (got,) = exe(x=line.numpy()).values()
    assert np.allclose(got, want, atol=1e-4)
    top = np.sort(want, -1)
    sure = top[..., -1] - top[..., -2] > 1e-3  # roundings decide where two letters are as likely
    assert (got.argmax(-1) == want.argmax(-1))[sure].all()
