"""Architectures over words, series and states, in PyTorch, from their papers; small, with random weights."""
# mypy: allow-subclassing-any

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as f
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Tagger(nn.Module):
    """A tagger of words (Huang, Xu and Yu 2015) over rows of their own lengths, packed."""

    kind: Any = nn.LSTM

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(19, 6, padding_idx=0)
        self.rnn = self.kind(6, 5, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(10, 7)

    def forward(self, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Words [B,T] and lengths [B], longest first, to scores [B,T,7] and the last states."""
        packed = pack_padded_sequence(self.words(words), lengths, batch_first=True)
        y, state = self.rnn(packed)
        y, _ = pad_packed_sequence(y, batch_first=True)
        return self.head(y), state[0] if isinstance(state, tuple) else state


class GatedTagger(Tagger):
    """The same with GRUs."""

    kind = nn.GRU


class CharacterTagger(nn.Module):
    """Characters of words by a convolution (Ma and Hovy 2016), words by an LSTM, and the best of all steps."""

    def __init__(self) -> None:
        super().__init__()
        self.characters, self.words = nn.Embedding(17, 4), nn.Embedding(19, 5)
        self.conv = nn.Conv1d(4, 6, 3, padding=1)
        self.lstm = nn.LSTM(11, 7, batch_first=True, bidirectional=True)
        self.head = nn.Linear(14, 8)

    def forward(self, words: Tensor, characters: Tensor) -> tuple[Tensor, Tensor]:
        """Words [B,T], characters [B,T,9] to scores [B,T,8] and the best [B,T]."""
        b, t, n = characters.shape
        c = self.conv(self.characters(characters.view(b * t, n)).transpose(1, 2))
        c = c.max(-1)[0].view(b, t, 6)
        scores = self.head(self.lstm(torch.cat([self.words(words), c], -1))[0])
        return scores, scores.argmax(-1)


class Forecaster(nn.Module):
    """DeepAR (Salinas et al. 2017): an LSTM over scaled values and covariates, with mean and spread of what follows."""

    def __init__(self) -> None:
        super().__init__()
        self.series = nn.Embedding(9, 3)
        self.lstm = nn.LSTM(1 + 4 + 3, 7, 3, batch_first=True)
        self.mean, self.spread = nn.Linear(21, 1), nn.Linear(21, 1)

    def forward(self, values: Tensor, more: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        """[B,T], covariates [B,T,4], the series' number [B]; mean and spread [B,1]."""
        scale = values.abs().mean(1, keepdim=True) + 1
        x = (values / scale).unsqueeze(-1)
        named = self.series(which).unsqueeze(1).expand(-1, x.shape[1], -1)
        _, (h, _) = self.lstm(torch.cat([x, more, named], -1))
        h = h.permute(1, 2, 0).contiguous().view(h.shape[1], -1)
        return self.mean(h) * scale, f.softplus(self.spread(h)) * scale


class Horizon(nn.Module):
    """An encoder and a decoder (Sutskever, Vinyals and Le 2014), whose last value goes in again, for five steps."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.LSTM(4, 8, 2, batch_first=True), nn.LSTM(1, 8, 2, batch_first=True)
        self.head = nn.Linear(8, 1)

    def forward(self, past: Tensor) -> Tensor:
        """[B,T,4] to [B,5]."""
        _, state = self.encoder(past)
        x, found = past[:, -1:, :1], []
        for _ in range(5):
            y, state = self.decoder(x, state)
            x = self.head(y)
            found.append(x)
        return torch.cat(found, 1).squeeze(-1)


class Fusion(nn.Module):
    """Temporal fusion (Lim et al. 2019): gated residuals, LSTMs of past and future, attention of heads with a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.past, self.future = nn.Linear(5, 8), nn.Linear(3, 8)
        self.encoder, self.decoder = nn.LSTM(8, 8, batch_first=True), nn.LSTM(8, 8, batch_first=True)
        self.gate, self.norm = nn.Linear(8, 16), nn.LayerNorm(8)
        self.inside, self.outside = nn.Linear(8, 24), nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, past: Tensor, future: Tensor) -> Tensor:
        """[B,T,5] and [B,S,3] to three quantiles [B,S,3]."""
        a, b = self.past(past), self.future(future)
        ya, state = self.encoder(a)
        yb, _ = self.decoder(b, state)
        x = self.norm(torch.cat([a, b], 1) + f.glu(self.gate(torch.cat([ya, yb], 1)), -1))
        b, n, _ = x.shape
        q, k, v = self.inside(x).view(b, n, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        mask = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
        y = f.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(b, n, 8)
        return self.head(x + self.outside(y))[:, past.shape[1] :]


class Speaker(nn.Module):
    """Tacotron 2 (Shen et al. 2017): an encoder of characters, a decoder that attends to places, four steps."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(23, 6)
        self.conv = nn.Sequential(nn.Conv1d(6, 6, 5, padding=2), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5))
        self.encoder = nn.LSTM(6, 4, batch_first=True, bidirectional=True)
        self.prenet = nn.Sequential(nn.Linear(5, 7), nn.ReLU())
        self.ask, self.decode = nn.LSTMCell(7 + 8, 9), nn.LSTMCell(9 + 8, 10)
        self.query, self.memory = nn.Linear(9, 6, bias=False), nn.Linear(8, 6, bias=False)
        self.places, self.location = nn.Conv1d(2, 3, 7, padding=3, bias=False), nn.Linear(3, 6, bias=False)
        self.energy = nn.Linear(6, 1)
        self.frame, self.stop = nn.Linear(18, 5), nn.Linear(18, 1)

    def forward(self, text: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Characters [B,N] to frames [B,4,5], ends [B,4] and weights [B,4,N]."""
        x = self.conv(self.characters(text).transpose(1, 2)).transpose(1, 2)
        memory, _ = self.encoder(x)
        keys = self.memory(memory)
        b, n = text.shape
        h1, c1, h2, c2 = (memory.new_zeros(b, k) for k in (9, 9, 10, 10))
        weights, total = memory.new_zeros(b, n), memory.new_zeros(b, n)
        context, frame = memory.new_zeros(b, 8), memory.new_zeros(b, 5)
        frames: list[Tensor] = []
        stops: list[Tensor] = []
        seen: list[Tensor] = []
        for _ in range(4):
            h1, c1 = self.ask(torch.cat([self.prenet(frame), context], -1), (h1, c1))
            where = self.location(self.places(torch.stack([weights, total], 1)).transpose(1, 2))
            weights = torch.softmax(self.energy(torch.tanh(self.query(h1).unsqueeze(1) + keys + where)).squeeze(-1), 1)
            total = total + weights
            context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            h2, c2 = self.decode(torch.cat([h1, context], -1), (h2, c2))
            both = torch.cat([h2, context], -1)
            frame = self.frame(both)
            frames, stops, seen = [*frames, frame], [*stops, self.stop(both)], [*seen, weights]
        return torch.stack(frames, 1), torch.cat(stops, 1), torch.stack(seen, 1)


class Policy(nn.Module):
    """A robot's policy: features by dense layers, an LSTM cell whose state goes in and out, and the action."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.randn(11))
        self.register_buffer("var", torch.rand(11))
        self.body = nn.Sequential(nn.Linear(11, 9), nn.ELU(), nn.Linear(9, 8), nn.ELU())
        self.cell = nn.LSTMCell(8, 7)
        self.head = nn.Sequential(nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 4))

    def forward(self, seen: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B,11] and states [B,7] to actions [B,4] and states."""
        x = ((seen - self.mean) / torch.sqrt(self.var + 1e-5)).clamp(-10, 10)
        h, c = self.cell(self.body(x), (h, c))
        return self.head(h), h, c


class Actor(nn.Module):
    """The same with GRUs of two layers, and an action from a normal distribution with a bound."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(11, 6, 2)
        self.mlp = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 8), nn.SiLU())
        self.mean, self.log_std = nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, seen: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B,11] and a state [2,B,6] to mean and spread [B,3] and the state."""
        y, h = self.gru(seen.unsqueeze(0), h)
        x = self.mlp(y.squeeze(0))
        return torch.tanh(self.mean(x)), torch.exp(self.log_std(x).clamp(-5, 2)), h


class World(nn.Module):
    """A world model (Hafner et al. 2018): a GRU cell over what was done and believed, and the next belief."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(5 + 3, 8), nn.ELU())
        self.cell = nn.GRUCell(8, 9)
        self.prior = nn.Sequential(nn.Linear(9, 7), nn.ELU(), nn.Linear(7, 10))

    def forward(self, belief: Tensor, action: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B,5], [B,3] and a state [B,9] to mean and spread [B,5] and the state."""
        h = self.cell(self.inside(torch.cat([belief, action], -1)), h)
        mean, spread = self.prior(h).chunk(2, -1)
        return mean, f.softplus(spread) + 0.1, h


MODELS: dict[str, Any] = {
    "tagger": (Tagger, {"words": ("i", "B", "T"), "lengths": ("i", "B")}, [{"B": 3, "T": 7}, {"B": 2, "T": 5}]),
    "gated tagger": (
        GatedTagger,
        {"words": ("i", "B", "T"), "lengths": ("i", "B")},
        [{"B": 3, "T": 7}, {"B": 2, "T": 5}],
    ),
    "character tagger": (
        CharacterTagger,
        {"words": ("i", "B", "T"), "characters": ("i", "B", "T", 9)},
        [{"B": 2, "T": 5}, {"B": 3, "T": 4}],
    ),
    "forecaster": (
        Forecaster,
        {"values": ("B", "T"), "more": ("B", "T", 4), "which": ("i", "B")},
        [{"B": 3, "T": 8}, {"B": 2, "T": 5}],
    ),
    "horizon": (Horizon, {"past": ("B", "T", 4)}, [{"B": 3, "T": 6}, {"B": 2, "T": 7}]),
    "fusion": (
        Fusion,
        {"past": ("B", "T", 5), "future": ("B", "S", 3)},
        [{"B": 2, "T": 6, "S": 4}, {"B": 3, "T": 5, "S": 7}],
    ),
    "speaker": (Speaker, {"text": ("i", "B", "N")}, [{"B": 2, "N": 9}, {"B": 3, "N": 7}]),
    "policy": (Policy, {"seen": ("B", 11), "h": ("B", 7), "c": ("B", 7)}, [{"B": 3}, {"B": 1}]),
    "actor": (Actor, {"seen": ("B", 11), "h": (2, "B", 6)}, [{"B": 3}, {"B": 1}]),
    "world": (World, {"belief": ("B", 5), "action": ("B", 3), "h": ("B", 9)}, [{"B": 3}, {"B": 1}]),
}
