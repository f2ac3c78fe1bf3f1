"""Architectures that read pictures of text and speech, in PyTorch, from their papers; small, with random weights."""
# mypy: allow-subclassing-any

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as f


class TextLine(nn.Module):
    """CRNN (Shi, Bai and Yao 2015): convolutions over a line of text, columns as steps, two bidirectional LSTMs."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after, pool in ((1, 6, (2, 2)), (6, 9, (2, 1)), (9, 11, (2, 1))):
            layers += [nn.Conv2d(before, after, 3, 1, 1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(pool)]
        self.front = nn.Sequential(*layers)
        self.first = nn.LSTM(11 * 2, 7, bidirectional=True)
        self.between = nn.Linear(14, 10)
        self.second = nn.LSTM(10, 8, bidirectional=True)
        self.head = nn.Linear(16, 13)

    def forward(self, image: Tensor) -> Tensor:
        """[B,1,16,W] to log probabilities [W/2,B,13]."""
        x = self.front(image)
        x = x.flatten(1, 2).permute(2, 0, 1)
        x = self.between(self.first(x)[0])
        return f.log_softmax(self.head(self.second(x)[0]), -1)


class Transcriber(nn.Module):
    """Deep Speech 2 (Amodei et al. 2015): strided convolutions, bidirectional GRUs, lookahead, CTC."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(1, 4, (11, 5), (2, 2), (5, 2)), nn.BatchNorm2d(4), nn.Hardtanh(0, 20),
            nn.Conv2d(4, 5, (7, 5), (2, 1), (3, 2)), nn.BatchNorm2d(5), nn.Hardtanh(0, 20),
        )  # fmt: skip
        self.layers = nn.ModuleList([nn.GRU(25, 7, bidirectional=True), nn.GRU(7, 7, bidirectional=True)])
        self.norms = nn.ModuleList([nn.LayerNorm(25), nn.LayerNorm(7)])
        self.lookahead = nn.Conv1d(7, 7, 4, groups=7, bias=False)
        self.head = nn.Linear(7, 12)

    def forward(self, spectrum: Tensor) -> Tensor:
        """[B,20,T] to log probabilities [B,T/2,12]."""
        x = self.front(spectrum.unsqueeze(1))
        b, c, d, t = x.shape
        x = x.view(b, c * d, t).transpose(1, 2).transpose(0, 1).contiguous()
        for norm, layer in zip(self.norms, self.layers, strict=True):
            y, _ = layer(norm(x))
            x = y.view(y.shape[0], y.shape[1], 2, -1).sum(2)
        x = f.pad(x.permute(1, 2, 0), (0, 3))
        x = f.hardtanh(self.lookahead(x), 0, 20)
        return f.log_softmax(self.head(x.transpose(1, 2)), -1)


class Transducer(nn.Module):
    """RNN transducer (Graves 2012): encoder, prediction network and joint network over all pairs of places."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.LSTM(9, 6, 2, batch_first=True, bidirectional=True)
        self.words = nn.Embedding(11, 5)
        self.prediction = nn.LSTM(5, 8, batch_first=True)
        self.of_encoder, self.of_prediction = nn.Linear(12, 10), nn.Linear(8, 10, bias=False)
        self.head = nn.Linear(10, 12)

    def forward(self, sound: Tensor, words: Tensor) -> Tensor:
        """[B,T,9] and words [B,U] to log probabilities [B,T,U+1,12]."""
        above, _ = self.encoder(sound)
        known = self.words(f.pad(words, (1, 0)))
        below, _ = self.prediction(known)
        both = self.of_encoder(above).unsqueeze(2) + self.of_prediction(below).unsqueeze(1)
        return f.log_softmax(self.head(torch.tanh(both)), -1)


class PredictionStep(nn.Module):
    """A step of a transducer's prediction network and joint network, with its state."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 5)
        self.prediction = nn.LSTM(5, 8, 2, batch_first=True)
        self.joint = nn.Sequential(nn.ReLU(), nn.Linear(8, 12))

    def forward(self, frame: Tensor, word: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B,8], words [B], states [2,B,8] to scores [B,12] and states."""
        y, (h, c) = self.prediction(self.words(word.unsqueeze(1)), (h, c))
        return self.joint(frame + y.squeeze(1)), h, c


class Diarizer(nn.Module):
    """PyanNet (Bredin et al. 2020): filters of SincNet (Ravanelli and Bengio 2018), bidirectional LSTMs, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Parameter(torch.rand(4, 1) * 0.1)
        self.band = nn.Parameter(torch.rand(4, 1) * 0.2)
        self.register_buffer("n", torch.arange(1, 8) * (2 * torch.pi))
        self.first, self.last = nn.InstanceNorm1d(1, affine=True), nn.InstanceNorm1d(6, affine=True)
        self.conv = nn.Conv1d(4, 6, 5)
        self.lstm = nn.LSTM(6, 7, 2, batch_first=True, bidirectional=True, dropout=0.5)
        self.frames, self.speaker = nn.Linear(14, 5), nn.Linear(28, 9)

    def filters(self) -> Tensor:
        """Differences of two low passes [4,1,15]."""
        low = self.low.abs()
        high = (low + self.band.abs()).clamp(max=0.5)
        right = (torch.sin(high * self.n) - torch.sin(low * self.n)) / (self.n / 2)
        bands = torch.cat([right.flip(1), 2 * (high - low), right], 1)
        return (bands / bands.amax(1, keepdim=True)).unsqueeze(1)

    def forward(self, wave: Tensor) -> tuple[Tensor, Tensor]:
        """[B,1,N] to activity of 5 classes [B,frames,5], and a vector for the speaker [B,9]."""
        x = f.conv1d(self.first(wave), self.filters(), stride=3).abs()
        x = f.leaky_relu(f.max_pool1d(x, 3))
        x = f.leaky_relu(self.last(f.max_pool1d(self.conv(x), 2)))
        x, _ = self.lstm(x.transpose(1, 2))
        pooled = torch.cat([x.mean(1), x.std(1, unbiased=False)], -1)
        return torch.sigmoid(self.frames(x)), f.normalize(self.speaker(pooled), dim=-1)


class Basecaller(nn.Module):
    """Bonito's basecaller (Oxford Nanopore): strided convolutions, LSTMs backward and forward in turns."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(1, 4, 5, padding=2), nn.SiLU(), nn.Conv1d(4, 6, 5, padding=2), nn.SiLU(),
            nn.Conv1d(6, 10, 9, stride=5, padding=4), nn.SiLU(),
        )  # fmt: skip
        self.layers = nn.ModuleList([nn.LSTM(10, 9), nn.LSTM(9, 8), nn.LSTM(8, 7)])
        self.head = nn.Linear(7, 20)

    def forward(self, current: Tensor) -> Tensor:
        """[B,1,N] to scores [N/5,B,20], in -5..5."""
        x = self.front(current).permute(2, 0, 1)
        for i, layer in enumerate(self.layers):
            x = layer(x.flip(0))[0].flip(0) if i % 2 == 0 else layer(x)[0]
        return 5.0 * torch.tanh(self.head(x))


class KeywordSpotter(nn.Module):
    """Attention over a GRU (de Andrade et al. 2018): the middle step asks, softmax over all steps answers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 5, (5, 1), padding=(2, 0)), nn.BatchNorm2d(5), nn.ReLU())
        self.squeeze = nn.Conv2d(5, 1, 1)
        self.gru = nn.GRU(9, 6, 2, batch_first=True, bidirectional=True)
        self.query = nn.Linear(12, 12)
        self.head = nn.Sequential(nn.Linear(12, 8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 7))

    def forward(self, spectrum: Tensor) -> tuple[Tensor, Tensor]:
        """[B,T,9] to scores [B,7] and weights [B,T]."""
        x = self.squeeze(self.conv(spectrum.unsqueeze(1))).squeeze(1)
        x, _ = self.gru(x)
        asked = self.query(x[:, x.shape[1] // 2])
        weights = torch.softmax(torch.einsum("btc,bc->bt", x, asked), -1)
        return self.head(torch.einsum("bt,btc->bc", weights, x)), weights


class VoiceActivity(nn.Module):
    """TEN VAD: separable convolutions over a few frames, two LSTMs of one step whose states go in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=(0, 1), groups=1), nn.ReLU(), nn.MaxPool2d((1, 3), (1, 2), (0, 1)),
            nn.Conv2d(6, 6, (1, 3), (1, 2), (0, 1), groups=6), nn.Conv2d(6, 4, 1), nn.ReLU(),
        )  # fmt: skip
        self.a, self.b = nn.LSTM(20, 9), nn.LSTM(9, 9)
        self.head = nn.Sequential(nn.Linear(18, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())

    def forward(self, frames: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """[B,3,19] and states [4,B,9] to a probability [B,1] and states."""
        x = self.front(frames.unsqueeze(1)).flatten(1).unsqueeze(0)
        p, (h1, c1) = self.a(x, (state[0:1], state[1:2]))
        q, (h2, c2) = self.b(p, (state[2:3], state[3:4]))
        return self.head(torch.cat([p, q], -1)).squeeze(0), torch.cat([h1, c1, h2, c2], 0)


MODELS: dict[str, Any] = {
    # inputs: shape by name; capital letters are named sizes, "i" before a shape stands for word numbers
    "text line": (TextLine, {"image": ("B", 1, 16, "W")}, [{"B": 2, "W": 24}, {"B": 1, "W": 10}]),
    "transcriber": (Transcriber, {"spectrum": ("B", 20, "T")}, [{"B": 2, "T": 17}, {"B": 3, "T": 8}]),
    "transducer": (
        Transducer,
        {"sound": ("B", "T", 9), "words": ("i", "B", "U")},
        [{"B": 2, "T": 5, "U": 3}, {"B": 1, "T": 7, "U": 4}],
    ),
    "prediction step": (
        PredictionStep,
        {"frame": ("B", 8), "word": ("i", "B"), "h": (2, "B", 8), "c": (2, "B", 8)},
        [{"B": 3}, {"B": 1}],
    ),
    "diarizer": (Diarizer, {"wave": ("B", 1, "N")}, [{"B": 2, "N": 250}, {"B": 3, "N": 140}]),
    "basecaller": (Basecaller, {"current": ("B", 1, "N")}, [{"B": 3, "N": 61}, {"B": 2, "N": 40}]),
    "keyword spotter": (KeywordSpotter, {"spectrum": ("B", "T", 9)}, [{"B": 2, "T": 11}, {"B": 3, "T": 6}]),
    "voice activity": (VoiceActivity, {"frames": ("B", 3, 19), "state": (4, "B", 9)}, [{"B": 2}, {"B": 1}]),
}
