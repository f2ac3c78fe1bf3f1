"""Random modules of PyTorch over rows [B,T,C]: recurrent layers of every form among what stands around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from choices import Choices
from torch import nn
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.scan import scan
from torch.nn import functional
from torch.nn.utils import rnn

Part = Callable[[Any, Any], Any]  # of rows and their lengths


class _Loops:
    """How loops run: by PyTorch, or in Python."""

    run: Callable[..., Any] = staticmethod(while_loop)
    scan: Callable[..., Any] = staticmethod(scan)


def _run(going: Any, body: Any, state: Any) -> Any:
    while going(*state):
        state = body(*state)
    return state


def _scan(step: Any, h: Any, x: Any, dim: int, reverse: bool) -> Any:
    rows = []
    for row in x.unbind(dim)[:: -1 if reverse else 1]:
        h, y = step(h, row)
        rows.append(y)
    return h, torch.stack(rows[:: -1 if reverse else 1], dim)


@contextmanager
def unrolled() -> Iterator[None]:
    """Meanwhile loops run in Python: PyTorch compiles its own for each size, and differentiates here step by step."""
    _Loops.run, _Loops.scan = staticmethod(_run), staticmethod(_scan)
    try:
        yield
    finally:
        _Loops.run, _Loops.scan = staticmethod(while_loop), staticmethod(scan)


class Draw(Choices):
    """What is drawn for one module: its words, its layers, whether rows have lengths."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.held = nn.ModuleList()
        self.lengths = self.chance(0.3)

    def keep(self, layer: nn.Module) -> nn.Module:
        self.held.append(layer)
        return layer


def _recurrent(d: Draw, c: int) -> tuple[Part, int]:
    kind, hidden = d.of(["LSTM", "GRU", "RNN"]), d.of([3, 4, 6])
    first, both, layers = d.chance(), d.chance(), d.of([1, 1, 2])
    more: dict[str, Any] = {"proj_size": 2} if kind == "LSTM" and d.chance(0.3) else {}
    more |= {"nonlinearity": "relu"} if kind == "RNN" and d.chance(0.3) else {}
    packed, last = d.lengths and d.chance(0.7), d.chance(0.3)
    whole = d.of([True, True, False])  # without total_length the longest row says how many steps there are
    work = d.of([None, None, torch.tanh, d.keep(nn.BatchNorm1d(c)), d.keep(nn.Linear(c, c))]) if packed else None
    layer = d.keep(getattr(nn, kind)(
        c, hidden, layers, bidirectional=both, batch_first=first, bias=d.chance(0.8), dropout=0.3 * (layers > 1), **more
    ))  # fmt: skip
    how = f"{'both ' * both}{'packed ' * packed}{f'after {work} ' if work else ''}{'last ' * last}{more or ''}"
    d.words.append(f"{kind} {hidden} x{layers} {how}")
    width = more.get("proj_size", hidden) * (1 + both)

    def part(x: Any, lengths: Any) -> Any:
        rows = x if first else x.transpose(0, 1)
        if packed:
            rows = rnn.pack_padded_sequence(rows, lengths, batch_first=first, enforce_sorted=False)
            if work is not None:
                rows = rnn.PackedSequence(work(rows.data), *rows[1:])
        y, h = layer(rows)
        if packed:
            y, _ = rnn.pad_packed_sequence(y, batch_first=first, total_length=x.shape[1] if whole else None)
        y = y if first else y.transpose(0, 1)
        h = h[0] if kind == "LSTM" else h
        return y * torch.sigmoid(h[-1].mean(1))[:, None, None] if last else y

    return part, width


def _linear(d: Draw, c: int) -> tuple[Part, int]:
    width, name = (
        d.of([2, 4, 6]),
        d.of(["relu", "tanh", "gelu", "silu", "elu", "leaky_relu", "hardsigmoid", "softplus"]),
    )
    layer, f = d.keep(nn.Linear(c, width, bias=d.chance(0.8))), getattr(functional, name)
    d.words.append(f"Linear {width} {name}")
    return lambda x, n: f(layer(x)), width


def _convolution(d: Draw, c: int) -> tuple[Part, int]:
    width, dilation = d.of([2, 4, 6]), d.of([1, 2])
    layer = d.keep(nn.Conv1d(c, width, 3, padding=dilation, dilation=dilation, groups=2 if c % 2 == 0 else 1))
    d.words.append(f"Conv1d {width} /{dilation}")
    return lambda x, n: layer(x.transpose(1, 2)).transpose(1, 2), width


def _image(d: Draw, c: int) -> tuple[Part, int]:
    layer = d.keep(nn.Conv2d(1, 2, (3, 1), padding=(1, 0)))
    d.words.append("Conv2d")
    return lambda x, n: layer(x.unsqueeze(1)).mean(1), c


def _norm(d: Draw, c: int) -> tuple[Part, int]:
    kind = d.of(["layer", "root mean square", "group", "batch"])
    d.words.append(f"{kind} norm")
    if kind in ("layer", "root mean square"):
        layer = d.keep(nn.LayerNorm(c) if kind == "layer" else nn.RMSNorm(c))
        return lambda x, n: layer(x), c
    layer = d.keep(nn.GroupNorm(2 if c % 2 == 0 else 1, c) if kind == "group" else nn.BatchNorm1d(c))
    return lambda x, n: layer(x.transpose(1, 2)).transpose(1, 2), c


def _pool(d: Draw, c: int) -> tuple[Part, int]:
    f, words = d.of([(functional.max_pool1d, "max"), (functional.avg_pool1d, "mean")])
    d.words.append(f"{words} of 3")
    return lambda x, n: f(x.transpose(1, 2), 3, 1, 1).transpose(1, 2), c


def _heads(d: Draw, c: int) -> tuple[Part, int]:
    causal = d.chance()
    d.words.append(f"attention{' causal' * causal}")

    def part(x: Any, n: Any) -> Any:
        h = x.unflatten(2, (1, c)).transpose(1, 2)
        return functional.scaled_dot_product_attention(h, h, h, is_causal=causal).transpose(1, 2).flatten(2)

    return part, c


def _attention(d: Draw, c: int) -> tuple[Part, int]:
    layer = d.keep(nn.MultiheadAttention(c, 2 if c % 2 == 0 else 1, batch_first=True))
    d.words.append("MultiheadAttention")
    return lambda x, n: layer(x, x, x, need_weights=False)[0], c


def _cell(d: Draw, c: int) -> tuple[Part, int]:
    """A cell of its own, over time or against it."""
    u, backwards = d.keep(nn.Linear(c, c)), d.chance()
    d.words.append(f"scan{' backwards' * backwards}")

    def part(x: Any, n: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = torch.tanh(u(h) + row)
            return h, h * 2

        return _Loops.scan(step, x.new_zeros(x.shape[0], c), x, dim=1, reverse=backwards)[1]

    return part, c


def _counted(d: Draw, c: int) -> tuple[Part, int]:
    """A GRU cell over all steps, whose last state is added to each row."""
    gru = d.keep(nn.GRUCell(c, c))
    d.words.append("while_loop")

    def part(x: Any, n: Any) -> Any:
        def going(i: Any, h: Any) -> Any:
            return i < x.shape[1]

        def body(i: Any, h: Any) -> Any:
            return i + 1, gru(x.index_select(1, i.reshape(1)).squeeze(1), h)

        begin = torch.zeros((), dtype=torch.int64), x.new_zeros(x.shape[0], c)
        return x + _Loops.run(going, body, begin)[1][:, None]

    return part, c


PLAIN: dict[str, Part] = {
    "flip": lambda x, n: x.flip(1),
    "softmax": lambda x, n: torch.softmax(x, -1) * x,
    "over time": lambda x, n: x * torch.log_softmax(x, 1),
    "cumsum": lambda x, n: torch.cumsum(x, 1) * 0.2,
    "mean": lambda x, n: x - x.mean(1, keepdim=True),
    "where": lambda x, n: torch.where(x > 0.1, x, x * 0.3 - 1),
    "clamp": lambda x, n: x.clamp(-0.8, 0.9) + x.abs().sqrt().nan_to_num(),
    "shifted": lambda x, n: x + functional.pad(x, (0, 0, 1, 0))[:, :-1],
    "roll": lambda x, n: torch.roll(x, 1, 2),
    "einsum": lambda x, n: x + torch.einsum("btc,bsc->btc", x, x) * 0.1,
    "halves": lambda x, n: torch.cat(x.chunk(2, 2)[::-1], 2),
    "norm": lambda x, n: x / (1 + x.norm(dim=2, keepdim=True)),
    "masked": lambda x, n: x.masked_fill(torch.arange(x.shape[1])[None, :, None] >= n[:, None, None], 0.25),
    "stacked": lambda x, n: torch.stack([x, x.tanh(), x * x], 0).amax(0),
    "variance": lambda x, n: (x - x.mean(-1, keepdim=True)) / (0.5 + x.var(-1, keepdim=True, unbiased=False)),
}


def _plain(d: Draw, c: int) -> tuple[Part, int]:
    name = d.of([n for n in PLAIN if d.lengths or n != "masked"])
    d.words.append(name)
    return PLAIN[name], c


MAKERS = (
    _recurrent,
    _recurrent,
    _recurrent,
    _linear,
    _convolution,
    _image,
    _norm,
    _pool,
    _heads,
    _attention,
    _cell,
    _counted,
    _plain,
    _plain,
    _plain,
)


class Random(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Parts one after another, some of them added to what they read; a share of the modules gives a dict."""

    def __init__(self, d: Draw, width: int) -> None:
        super().__init__()
        self.steps: list[tuple[Part, bool]] = []
        for _ in range(int(d.rng.integers(1, 6))):
            part, after = d.of(MAKERS)(d, width)
            added = after == width and d.chance(0.3)
            d.words[-1] += " added" * added
            self.steps.append((part, added))
            if after == width and d.chance(0.1):  # one layer twice
                self.steps.append((part, False))
                d.words[-1] += " twice"
            width = after
        self.held, self.named = d.held, d.chance(0.3)

    def forward(self, x: Any, lengths: Any = None) -> Any:
        for part, added in self.steps:
            y = part(x, lengths)
            x = x + y if added else y
        return {"rows": x, "whole": x.mean(1)} if self.named else x


def drawn(rng: np.random.Generator) -> tuple[Any, Draw, int]:
    """The module in evaluation, what was drawn, and the width of its rows."""
    torch.manual_seed(int(rng.integers(2**31)))
    d, width = Draw(rng), int(rng.choice([2, 3, 4]))
    module = Random(d, width).eval()
    for name, buffer in module.named_buffers():
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 2)
        elif name.endswith("running_mean"):
            buffer.normal_(0, 0.3)
    return module, d, width


def call(d: Draw, width: int, rows: int, steps: int) -> tuple[Any, ...]:
    """Arguments of one call; of lengths one is the whole row."""
    x = torch.randn(rows, steps, width)
    if not d.lengths:
        return (x,)
    lengths = torch.from_numpy(d.rng.integers(1, steps + 1, rows))
    lengths[int(d.rng.integers(rows))] = steps
    return x, lengths
