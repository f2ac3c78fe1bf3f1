"""The flat parameter vector of the CudnnRNN ops ("flat-v1") and its regions.

    params = M(0) .. M(L*D-1)  V(0) .. V(L*D-1)          p = layer * D + direction
    M(p)   = W_0 .. W_{G-1}  R_0 .. R_{G-1}  [P]         W [H,in]  R [H,Q]  P [Q,H]
    V(p)   = bW_0 .. bW_{G-1}  bR_0 .. bR_{G-1}          each [H]

Matrices are row by row, rows = output units; nothing lies between regions. Gates: r, z, n of a gru,
i, f, g, o of an lstm. Evidence and examples: docs/cudnn-rnn.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from lstm_ir.ir.cached import cached_property

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "gru": 3, "lstm": 4}
"""Gates per cell, by rnn_mode."""


class WeightRegion(NamedTuple):
    """One array inside the vector: its kind, pseudo-layer p, gate, start and shape."""

    kind: str
    p: int
    gate: int
    offset: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class Blocks(NamedTuple):
    """The regions of one pseudo-layer, all gates together (b_in = bW, b_rec = bR)."""

    W: WeightRegion | None
    R: WeightRegion
    P: WeightRegion | None
    b_in: WeightRegion
    b_rec: WeightRegion


@dataclass(frozen=True)
class Network:
    """L layers of D directions: I inputs, H units, Q columns of h (H without a projection)."""

    mode: str
    L: int
    D: int
    I: int
    H: int
    Q: int
    skip: bool
    projected: bool

    @property
    def G(self) -> int:  # noqa: N802
        """Gates per cell."""
        return GATES[self.mode]

    @property
    def lstm(self) -> bool:
        """Whether there is a cell state."""
        return self.mode == "lstm"

    @property
    def width(self) -> int:
        """Columns of a layer's output, D*Q."""
        return self.D * self.Q

    def fan_in(self, layer: int) -> int:
        """Columns of a layer's input."""
        return self.I if layer == 0 else self.width

    def feeds(self, layer: int) -> bool:
        """Whether a layer has input weights (skip_input: not the first)."""
        return not (self.skip and layer == 0)

    @cached_property
    def blocks(self) -> tuple[Blocks, ...]:
        """Per pseudo-layer, all gates together: W [G*H,in], R [G*H,Q], P [Q,H], bW and bR [G*H]."""
        at, GH = 0, self.G * self.H
        matrices = []
        for p in range(self.L * self.D):
            w = r = proj = None
            if self.feeds(p // self.D):
                w = WeightRegion("W", p, 0, at, (GH, self.fan_in(p // self.D)))
                at += w.size
            r = WeightRegion("R", p, 0, at, (GH, self.Q))
            at += r.size
            if self.projected:
                proj = WeightRegion("P", p, 0, at, (self.Q, self.H))
                at += proj.size
            matrices.append((w, r, proj))
        out = []
        for p, parts in enumerate(matrices):
            biases = WeightRegion("bW", p, 0, at, (GH,)), WeightRegion("bR", p, 0, at + GH, (GH,))
            out.append(Blocks(*parts, *biases))
            at += 2 * GH
        return tuple(out)

    @property
    def size(self) -> int:
        """Length of the vector; of any number of layers, so without listing them."""
        first = 0 if self.skip else self.I
        inputs = first + (self.L - 1) * self.width
        proj = self.L * self.Q * self.H if self.projected else 0
        return self.D * (self.G * self.H * (inputs + self.L * (self.Q + 2)) + proj)

    def weights(self) -> list[WeightRegion]:
        """The canonical matrices: per p, W of every gate, R of every gate, P.

        W of the first layer under skip_input is listed as [H,0].
        """
        out = []
        for p, b in enumerate(self.blocks):
            absent = WeightRegion("W", p, 0, b.R.offset, (self.G * self.H, 0))
            out += [*self._by_gate(absent if b.W is None else b.W), *self._by_gate(b.R)]
            out += [] if b.P is None else [b.P._replace(gate=2 * self.G)]
        return out

    def biases(self) -> list[WeightRegion]:
        """The canonical biases: per p, bW of every gate, bR of every gate."""
        return [r for b in self.blocks for part in (b.b_in, b.b_rec) for r in self._by_gate(part)]

    def _by_gate(self, r: WeightRegion) -> Iterator[WeightRegion]:
        size = r.size // self.G
        for k in range(self.G):
            yield WeightRegion(r.kind, r.p, k, r.offset + k * size, (self.H, *r.shape[1:]))
