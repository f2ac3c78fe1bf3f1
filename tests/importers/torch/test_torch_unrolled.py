"""Cells in Python loops of a fixed length: one layer over all steps, never a node for each."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch_cases as tc
from device import need

import lstm_ir as li

T, B, I, H = 6, 3, 4, 5
CELLS = ("LSTMCell", "GRUCell", "RNNCell")
LAYERS = ("lstm", "gru", "rnn")


@pytest.fixture(autouse=True)
def _libraries() -> None:
    need("torch")


def _module(kind: str, form: str, bias: bool) -> Any:
    """A loop over time; `form` says where x comes from, and what is made of the outputs."""
    import torch

    class Loop(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.cell = getattr(torch.nn, kind)(I, H, bias=bias)
            self.second = getattr(torch.nn, kind)(H, H, bias=bias)
            self.head = torch.nn.Linear(H, 2)

        def step(self, cell: Any, x: Any, state: Any) -> Any:
            found = cell(x, state)
            return (found[0], found) if isinstance(found, tuple) else (found, found)

        def zeros(self, x: Any, rows: int) -> Any:
            h = x.new_zeros(rows, H)
            return (h, h) if kind == "LSTMCell" else h

        def forward(self, x: Any) -> Any:
            time = 1 if "batch" in form else 0
            state = self.zeros(x, x.shape[1 - time])
            other = state
            rows = []
            given = list(x.unbind(time))
            if "reverse" in form:
                given = given[::-1]
            for row in given:
                h, state = self.step(self.cell, torch.tanh(row) if "computed" in form else row, state)
                if "stacked" in form:
                    h, other = self.step(self.second, h, other)
                rows.append(self.head(h) if "head" in form else h)
            last = state[1] if kind == "LSTMCell" else state
            return rows[-1] if "last" in form else torch.stack(rows, time), last

    return Loop()


FORMS = [
    "time",
    "batch",
    "time reverse",
    "batch computed",
    "batch head",
    "time stacked",
    "batch stacked head",
    "time last",
]


def _layers(graph: li.Graph) -> Counter[str]:
    return Counter(n.op.name for n in graph.nodes if n.op.name in LAYERS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", CELLS)
def test_one_layer(kind: str, form: str, seed: int, rng: np.random.Generator) -> None:
    import torch

    torch.manual_seed(seed % 2**31)
    shape = (B, T, I) if "batch" in form else (T, B, I)
    shapes = [shape, tuple(2 if n == B else n for n in shape)]
    module = _module(kind, form, bias="head" not in form)
    g = tc.held(module, (torch.randn(shape),), {"x": {shape.index(B): "B"}}, [(torch.randn(shapes[1]),)], rng)
    assert _layers(g) == {kind[:-4].lower(): 2 if "stacked" in form else 1}
    assert all(n.inputs[0].shape[0] == T for n in g.nodes if n.op.name in LAYERS)
    if form == "time":  # no row stands alone, but the last one as the last state
        assert sum(n.op.name == "slice" and n.values[0].rank == 3 for n in g.nodes) == (kind != "LSTMCell")


class _Feedback:
    """A decoder: what a step gives goes into the next one, so that there is no layer over all."""

    @staticmethod
    def module() -> Any:
        import torch

        class Decoder(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.cell = torch.nn.LSTMCell(I, H)
                self.head = torch.nn.Linear(H, I)

            def forward(self, x: Any) -> Any:
                h = c = x.new_zeros(x.shape[1], H)
                rows = []
                for t in range(x.shape[0]):  # an encoder
                    h, c = self.cell(x[t], (h, c))
                row = x[-1]
                for _ in range(3):
                    h, c = self.cell(row, (h, c))
                    row = self.head(h)
                    rows.append(row)
                return torch.stack(rows)

        return Decoder()


def test_a_decoder_stays_apart(seed: int, rng: np.random.Generator) -> None:
    """The encoder's steps are one layer, and the decoder's first, whose row is no result of its own."""
    import torch

    torch.manual_seed(seed % 2**31)
    g = tc.held(_Feedback.module(), (torch.randn(T, B, I),), {"x": {1: "B"}}, [(torch.randn(T, 2, I),)], rng)
    assert sorted(n.inputs[0].shape[0] for n in g.nodes if n.op.name == "lstm") == [1, 1, T + 1]


def test_cells_that_are_all_read_stay_apart(seed: int, rng: np.random.Generator) -> None:
    """`lstm` gives no c of the steps inside."""
    import torch

    class Cells(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.LSTMCell(I, H)

        def forward(self, x: Any) -> Any:
            h = c = x.new_zeros(x.shape[1], H)
            kept = []
            for t in range(x.shape[0]):
                h, c = self.cell(x[t], (h, c))
                kept.append(c)
            return torch.stack(kept)

    torch.manual_seed(seed % 2**31)
    g = tc.held(Cells(), (torch.randn(T, B, I),), {"x": {1: "B"}}, [(torch.randn(T, 2, I),)], rng)
    assert _layers(g) == {"lstm": T}
