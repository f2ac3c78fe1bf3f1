"""Architectures that turn sound into sound, in PyTorch, from their papers; small, with random weights."""
# mypy: allow-subclassing-any

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as f


class ComplexMask(nn.Module):
    """DCCRN (Hu et al. 2020): complex convolutions, a complex LSTM, transposed convolutions with skips, a mask."""

    def __init__(self) -> None:
        super().__init__()
        kernel: Any = ((5, 2), (2, 1), (2, 1))
        self.down = nn.ModuleList([nn.Conv2d(2, 4, *kernel), nn.Conv2d(4, 6, *kernel)])
        self.down_norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(6)])
        self.prelu = nn.ModuleList([nn.PReLU(), nn.PReLU(6)])
        self.real, self.imaginary = nn.LSTM(3 * 5, 7), nn.LSTM(3 * 5, 7)
        self.back = nn.Linear(7, 15)
        self.up = nn.ModuleList([
            nn.ConvTranspose2d(12, 4, (5, 2), (2, 1), (2, 0), (0, 0)),
            nn.ConvTranspose2d(8, 2, (5, 2), (2, 1), (2, 0), (0, 0)),
        ])  # fmt: skip

    def forward(self, spectrum: Tensor) -> tuple[Tensor, Tensor]:
        """[B,2,17,T] to the masked spectrum, and its mask."""
        x, skips = spectrum, []
        for conv, norm, act in zip(self.down, self.down_norms, self.prelu, strict=True):
            x = act(norm(conv(x)[..., :-1]))
            skips.append(x)
        b, c, d, t = x.shape
        x = x.permute(3, 0, 1, 2)
        re, im = x[:, :, : c // 2].reshape(t, b, c // 2 * d), x[:, :, c // 2 :].reshape(t, b, c // 2 * d)
        r2r, i2r = self.real(re)[0], self.imaginary(im)[0]
        r2i, i2i = self.imaginary(re)[0], self.real(im)[0]
        both = [self.back(v).reshape(t, b, c // 2, d) for v in (r2r - i2r, r2i + i2i)]
        x = torch.cat(both, 2).permute(1, 2, 3, 0)
        for up in self.up:
            x = up(torch.cat([x, skips.pop()], 1))[..., 1:]
        size = (x[:, 0] ** 2 + x[:, 1] ** 2 + 1e-8) ** 0.5
        m = torch.tanh(size).unsqueeze(1) * x / (size.unsqueeze(1) + 1e-8)
        re, im = spectrum[:, :1], spectrum[:, 1:]
        return torch.cat([re * m[:, :1] - im * m[:, 1:], re * m[:, 1:] + im * m[:, :1]], 1), m


class GroupedGRU(nn.Module):
    """Two GRUs over halves of the features."""

    def __init__(self, inside: int, hidden: int, bidirectional: bool) -> None:
        super().__init__()
        self.a = nn.GRU(inside // 2, hidden // 2, batch_first=True, bidirectional=bidirectional)
        self.b = nn.GRU(inside // 2, hidden // 2, batch_first=True, bidirectional=bidirectional)

    def forward(self, x: Tensor) -> Tensor:
        """[N,steps,C] to [N,steps,H]."""
        x1, x2 = torch.chunk(x, 2, -1)
        return torch.cat([self.a(x1)[0], self.b(x2)[0]], -1)


class DualPath(nn.Module):
    """GTCRN (Rong et al. 2024): GRUs over bands, then over frames, between convolutions with shuffled channels."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, (1, 5), (1, 2), (0, 2))
        self.depth = nn.Conv2d(8, 8, 3, dilation=(2, 1), padding=(0, 1), groups=8)
        self.norm, self.act = nn.BatchNorm2d(8), nn.PReLU()
        self.attention = nn.GRU(8, 10, batch_first=True)
        self.gate = nn.Linear(10, 8)
        self.intra, self.inter = GroupedGRU(8, 4, True), GroupedGRU(8, 8, False)
        self.after = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.norms = nn.ModuleList([nn.LayerNorm((9, 8), eps=1e-8), nn.LayerNorm((9, 8), eps=1e-8)])
        self.up = nn.ConvTranspose2d(8, 2, (1, 5), (1, 2), (0, 2))

    def forward(self, spectrum: Tensor) -> Tensor:
        """[B,2,T,17], real and imaginary, to the same."""
        re, im = spectrum[:, 0], spectrum[:, 1]
        x = torch.stack([torch.sqrt(re**2 + im**2 + 1e-12), re, im], 1)
        x = self.down(x)
        y = self.act(self.norm(self.depth(f.pad(x, (0, 0, 4, 0)))))
        energy = torch.mean(y.pow(2), -1).transpose(1, 2)
        y = y * torch.sigmoid(self.gate(self.attention(energy)[0])).transpose(1, 2)[..., None]
        x = torch.stack([x, y], 2).flatten(1, 2)[:, ::2] + y
        x = x.permute(0, 2, 3, 1)
        b, t, d, c = x.shape
        x = x + self.norms[0](self.after[0](self.intra(x.reshape(b * t, d, c)).reshape(b, t, d, c)))
        y = x.permute(0, 2, 1, 3).reshape(b * d, t, c)
        y = self.after[1](self.inter(y)).reshape(b, d, t, c).permute(0, 2, 1, 3)
        x = (x + self.norms[1](y)).permute(0, 3, 1, 2)
        mask = torch.tanh(self.up(x))
        s_re = re * mask[:, 0] - im * mask[:, 1]
        s_im = im * mask[:, 0] + re * mask[:, 1]
        return torch.stack([s_re, s_im], 1)


class DeepFilter(nn.Module):
    """DeepFilterNet (Schröter et al. 2022): gains of bands, then complex filters of five taps for the lowest bins."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bands", torch.rand(21, 8))
        self.pad = nn.ConstantPad2d((0, 0, 1, 0), 0.0)
        self.conv0, self.conv1 = (
            nn.Conv2d(1, 5, (2, 3), padding=(0, 1)),
            nn.Conv2d(5, 5, (1, 3), (1, 2), (0, 1), groups=5),
        )
        self.bn = nn.BatchNorm2d(5)
        self.group = nn.Parameter(torch.randn(4, 5, 3) * 0.4)
        self.gru = nn.GRU(12, 10, 2, batch_first=True)
        self.skip = nn.Linear(10, 20)
        self.up = nn.ConvTranspose2d(5, 5, (1, 3), (1, 2), (0, 1), (0, 1), groups=5, bias=False)
        self.gains = nn.Conv2d(5, 1, (1, 3), padding=(0, 1))
        self.df = nn.GRU(10, 9, batch_first=True)
        self.taps = nn.Linear(9, 6 * 5 * 2)

    def forward(self, spectrum: Tensor) -> Tensor:
        """[B,1,T,21,2] to the same."""
        power = spectrum.square().sum(-1)
        x0 = f.relu(self.conv0(self.pad(torch.log10(power.matmul(self.bands) + 1e-6))))
        x1 = f.relu(self.bn(self.conv1(x0)))
        b, c, t, e = x1.shape
        x = x1.permute(0, 2, 3, 1).reshape(b, t, 4, 5)
        x = torch.einsum("btgi,gih->btgh", x, self.group).flatten(2, 3)
        x, _ = self.gru(x)
        y = self.skip(x).view(b, t, e, c).permute(0, 3, 1, 2) + x1
        gains = torch.sigmoid(self.gains(f.relu(self.up(y)) + x0))
        spec = spectrum * gains.matmul(self.bands.t()).unsqueeze(-1)
        coefs = torch.tanh(self.taps(self.df(x)[0])).view(b, t, 5, 6, 2)
        padded = f.pad(spec[:, 0, :, :6], (0, 0, 0, 0, 2, 2))
        frames = torch.stack([padded[:, k : k + t] for k in range(5)], 2)
        re = (frames[..., 0] * coefs[..., 0] - frames[..., 1] * coefs[..., 1]).sum(2)
        im = (frames[..., 1] * coefs[..., 0] + frames[..., 0] * coefs[..., 1]).sum(2)
        low = torch.stack([re, im], -1).unsqueeze(1)
        return torch.cat([low, spec[:, :, :, 6:]], 3)


class Codec(nn.Module):
    """EnCodec (Défossez et al. 2022): strided convolutions, LSTMs with a residual, the nearest of a table, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.down = nn.Conv1d(1, 4, 7), nn.Conv1d(4, 8, 4, stride=2)
        self.residual = nn.Sequential(nn.ELU(), nn.Conv1d(4, 2, 3, dilation=1), nn.ELU(), nn.Conv1d(2, 4, 1))
        self.encoder, self.decoder = nn.LSTM(8, 8, 2), nn.LSTM(8, 8, 2)
        self.table = nn.Parameter(torch.randn(13, 8))
        self.up, self.outside = nn.ConvTranspose1d(8, 4, 4, stride=2), nn.Conv1d(4, 1, 7)

    @staticmethod
    def with_rest(layer: nn.Module, x: Tensor) -> Tensor:
        """The layer's result [B,C,T] and what went in."""
        x = x.permute(2, 0, 1)
        y, _ = layer(x)
        return (y + x).permute(1, 2, 0)

    def forward(self, wave: Tensor) -> tuple[Tensor, Tensor]:
        """[B,1,N] to the codes [B,T] and the wave again."""
        x = self.inside(f.pad(wave, (6, 0), mode="reflect"))
        x = x + self.residual(f.pad(x, (2, 0), mode="reflect"))
        x = self.down(f.pad(f.elu(x), (2, 0), mode="reflect"))
        x = self.with_rest(self.encoder, x)
        flat = x.transpose(1, 2)
        far = flat.pow(2).sum(-1, keepdim=True) - 2 * flat @ self.table.t() + self.table.pow(2).sum(-1)
        codes = (-far).max(-1).indices
        y = f.embedding(codes, self.table).transpose(1, 2)
        y = self.with_rest(self.decoder, y)
        y = self.up(f.elu(y))[..., :-2]
        return codes, self.outside(f.pad(f.elu(y), (6, 0), mode="reflect"))


class Suppressor(nn.Module):
    """RNNoise (Valin 2018): three GRUs, for voice, noise and the gains of bands."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(14, 6)
        self.voice, self.noise, self.gain = (nn.GRU(i, h, batch_first=True) for i, h in ((6, 6), (26, 8), (28, 9)))
        self.activity, self.gains = nn.Linear(6, 1), nn.Linear(9, 5)

    def forward(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B,T,14] and a state [1,B,9] to gains [B,T,5], activity [B,T,1] and the state."""
        x = torch.tanh(self.dense(features))
        v, _ = self.voice(x)
        n, _ = self.noise(torch.cat([x, v, features], -1))
        g, state = self.gain(torch.cat([v, n, features], -1), state)
        return torch.sigmoid(self.gains(g)), torch.sigmoid(self.activity(v)), state


class Amplifier(nn.Module):
    """A valve amplifier (Wright, Damskägg and Välimäki 2019): an LSTM of 40 units, a linear layer, plus the input."""

    def __init__(self) -> None:
        super().__init__()
        self.rec, self.lin = nn.LSTM(1, 40), nn.Linear(40, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[T,B,1] to the same."""
        return self.lin(self.rec(x)[0]) + x


class Separator(nn.Module):
    """Demucs (Défossez et al. 2019): gated convolutions down, a bidirectional LSTM, transposed convolutions up."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Sequential(
            nn.Conv1d(i, o, 8, 4), nn.ReLU(), nn.Conv1d(o, 2 * o, 1), nn.GLU(1)) for i, o in ((2, 4), (4, 6))
        ])  # fmt: skip
        self.lstm, self.linear = nn.LSTM(6, 6, 2, bidirectional=True), nn.Linear(12, 6)
        self.up = nn.ModuleList([nn.Sequential(
            nn.Conv1d(i, 2 * i, 3, padding=1), nn.GLU(1), nn.ConvTranspose1d(i, o, 8, 4)) for i, o in ((6, 4), (4, 6))
        ])  # fmt: skip

    def forward(self, mix: Tensor) -> Tensor:
        """[B,2,N] to three sources [B,3,2,M]."""
        mean, std = mix.mean(-1, keepdim=True), mix.std(-1, keepdim=True)
        x = (mix - mean) / (1e-5 + std)
        saved = []
        for down in self.down:
            x = down(x)
            saved.append(x)
        y, _ = self.lstm(x.permute(2, 0, 1))
        x = self.linear(y).permute(1, 2, 0)
        for i, up in enumerate(self.up):
            skip = saved.pop()
            x = up(x + skip[..., : x.shape[-1]])
            if i == 0:
                x = f.relu(x)
        return (x * std.mean(1, keepdim=True)).view(x.shape[0], 3, 2, x.shape[-1])


class Magnitudes(nn.Module):
    """Open-Unmix (Stöter et al. 2019): dense layers with BatchNorm around a bidirectional LSTM of three layers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.bn1 = nn.Linear(22, 8, bias=False), nn.BatchNorm1d(8)
        self.lstm = nn.LSTM(8, 4, 3, bidirectional=True)
        self.fc2, self.bn2 = nn.Linear(16, 8, bias=False), nn.BatchNorm1d(8)
        self.fc3, self.bn3 = nn.Linear(8, 34, bias=False), nn.BatchNorm1d(34)
        self.mean, self.scale = nn.Parameter(torch.randn(11)), nn.Parameter(torch.rand(11))
        self.out_scale, self.out_mean = nn.Parameter(torch.rand(17)), nn.Parameter(torch.rand(17))

    def forward(self, x: Tensor) -> Tensor:
        """[B,2,17,T] to the same."""
        x = x.permute(3, 0, 1, 2)
        frames, b, c, bins = x.shape
        mix = x.detach().clone()
        x = (x[..., :11] + self.mean) * self.scale
        x = self.bn1(self.fc1(x.reshape(-1, c * 11))).reshape(frames, b, 8)
        x = torch.tanh(x)
        x = torch.cat([x, self.lstm(x)[0]], -1)
        x = f.relu(self.bn2(self.fc2(x.reshape(-1, x.shape[-1]))))
        x = self.bn3(self.fc3(x)).reshape(frames, b, c, bins)
        return (f.relu(x * self.out_scale + self.out_mean) * mix).permute(1, 2, 3, 0)


MODELS: dict[str, Any] = {
    "complex mask": (ComplexMask, {"spectrum": ("B", 2, 17, "T")}, [{"B": 2, "T": 6}, {"B": 3, "T": 4}]),
    "dual path": (DualPath, {"spectrum": ("B", 2, "T", 17)}, [{"B": 2, "T": 5}, {"B": 3, "T": 7}]),
    "deep filter": (DeepFilter, {"spectrum": ("B", 1, "T", 21, 2)}, [{"B": 2, "T": 7}, {"B": 3, "T": 6}]),
    "codec": (Codec, {"wave": ("B", 1, "N")}, [{"B": 2, "N": 30}, {"B": 3, "N": 22}]),
    "suppressor": (
        Suppressor,
        {"features": ("B", "T", 14), "state": (1, "B", 9)},
        [{"B": 2, "T": 7}, {"B": 1, "T": 5}],
    ),
    "amplifier": (Amplifier, {"x": ("T", "B", 1)}, [{"B": 2, "T": 23}, {"B": 3, "T": 9}]),
    "separator": (Separator, {"mix": ("B", 2, "N")}, [{"B": 2, "N": 84}, {"B": 3, "N": 52}]),
    "magnitudes": (Magnitudes, {"x": ("B", 2, 17, "T")}, [{"B": 2, "T": 9}, {"B": 3, "T": 5}]),
}
