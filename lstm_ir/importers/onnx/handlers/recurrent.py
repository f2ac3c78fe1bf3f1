"""LSTM, GRU and RNN: ONNX's operands and gate orders as those of `li.lstm`, `li.gru`, `li.rnn`.

Of ONNX's operands X [T,B,I], W [D,G*H,I], R [D,G*H,H], B [D,2*G*H], sequence_lens [B],
initial_h [D,B,H], initial_c [D,B,H], P [D,3*H] the last two are LSTM's. With layout 1 X is
[B,T,I] and states are [B,D,H].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.operands import Result
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.core.sizes import DIRECTIONS
from lstm_ir.ops.primitive.window import slice_axis

NONE = math.nan  # the specification has no operator of that name, so no default
ACTIVATIONS: dict[str, tuple[str, tuple[float, ...]]] = {
    # ONNX's name in small letters: ours, and the defaults of the alpha and beta that it has
    "affine": ("affine", (NONE, NONE)),
    "elu": ("elu", (1.0,)),
    "hardsigmoid": ("hard_sigmoid", (0.2, 0.5)),
    "leakyrelu": ("leaky_relu", (0.01,)),
    "relu": ("relu", ()),
    "scaledtanh": ("scaled_tanh", (NONE, NONE)),
    "sigmoid": ("sigmoid", ()),
    "softplus": ("softplus", ()),
    "softsign": ("softsign", ()),
    "tanh": ("tanh", ()),
    "thresholdedrelu": ("thresholded_relu", (1.0,)),
}


@dataclass(frozen=True)
class Kind:
    """How one op's gates and activations stand beside ours."""

    gates: tuple[int, ...]  # ONNX's place of each of our gates
    defaults: tuple[str, ...]  # ONNX's activations of one direction
    spread: tuple[int, ...]  # which of these each of our activations is


LSTM = Kind((0, 2, 3, 1), ("Sigmoid", "Tanh", "Tanh"), (0, 0, 1, 0, 2))  # i, o, f, c to i, f, g, o
GRU = Kind((1, 0, 2), ("Sigmoid", "Tanh"), (0, 0, 1))  # z, r, h to r, z, n
RNN = Kind((0,), ("Tanh",), (0,))


@dataclass(frozen=True)
class Layer:
    """What the three ops share: sizes, operands of ours, and the way back."""

    c: Call
    kind: Kind
    D: int
    H: int
    T: Dim
    B: Dim
    batch_major: bool
    operands: dict[str, Any]

    @classmethod
    def of(cls, c: Call, kind: Kind) -> Layer:
        """The operands and attributes that all three have, checked."""
        x, w, r = c.value(0), c.value(1), c.value(2)
        G = len(kind.gates)
        direction = c.word("direction", "forward")
        if direction not in DIRECTIONS:
            raise NodeRefusedError(f"direction is {direction!r}, not one of {', '.join(DIRECTIONS)}")
        D = len(DIRECTIONS[direction])
        batch_major = c.opset >= 14 and c.flag("layout")
        if x.rank != 3 or w.rank != 3 or r.rank != 3:
            raise NodeRefusedError(f"X is {x.type}, W {w.type}, R {r.type}; all have three axes")
        H = r.shape[2]
        if not isinstance(H, int):
            raise NodeRefusedError(f"R is {r.type}, of an open hidden size")
        if c.integer("hidden_size", H) != H:
            raise NodeRefusedError(f"hidden_size is {c.integer('hidden_size')}, R is {r.type}")
        if c.opset < 7 and c.has_attribute("output_sequence"):
            c.flag("output_sequence")  # whether Y is given, which the node's outputs say again
        T, B = (x.shape[1], x.shape[0]) if batch_major else (x.shape[0], x.shape[1])
        for name, v, shape in (("W", w, (D, G * H, x.shape[2])), ("R", r, (D, G * H, H))):
            for size, want in zip(v.shape, shape, strict=True):
                c.agree(f"{name} is {v.type}, expected [{','.join(map(str, shape))}]", want, size)
        made = cls(c, kind, D, H, T, B, batch_major, {})
        clip = c.real("clip") if c.has_attribute("clip") else None
        if clip is not None and not clip > 0:
            raise NodeRefusedError(f"clip is {clip}; a threshold is positive")
        made.operands.update(
            x=x, w_ih=made.gates(w), w_hh=made.gates(r), direction=direction,
            layout="batch" if batch_major else "time", gate_clip=clip or 0.0,
            activations=made.activations(), lengths=made.lengths(), h0=made.state(5, "initial_h"),
        )  # fmt: skip
        return made

    def gates(self, v: Value) -> Value:
        """Gate blocks of axis 1 in our order."""
        return self.blocks(v, self.kind.gates)

    def blocks(self, v: Value, order: Sequence[int]) -> Value:
        """Blocks of H along axis 1, picked in an order."""
        whole = tuple(order) == tuple(range(len(order))) and v.shape[1] == len(order) * self.H
        return v if whole else li.concat([slice_axis(v, 1, k * self.H, (k + 1) * self.H) for k in order], 1)

    def biases(self) -> tuple[Value, Value] | None:
        """The bias of W and that of R, in our order; None where there is none."""
        b, G = self.c.maybe(3), len(self.kind.gates)
        if b is None:
            return None
        self.fits("B", b, (self.D, 2 * G * self.H))
        return self.gates(b), self.blocks(b, [G + k for k in self.kind.gates])

    def fits(self, name: str, v: Value, shape: tuple[Dim, ...]) -> None:
        """Refuse an operand of another rank; sizes that are names become those expected."""
        what = f"{name} is {v.type}, expected [{','.join(map(str, shape))}]"
        if v.rank != len(shape):
            raise NodeRefusedError(what)
        for size, want in zip(v.shape, shape, strict=True):
            self.c.agree(what, want, size)

    def lengths(self) -> Value | None:
        """sequence_lens; None where every row is known to have all steps."""
        if not self.c.has(4):
            return None
        known = self.c.elements(4)
        v = self.c.value(4)
        self.fits("sequence_lens", v, (self.B,))
        return None if known is not None and known.size and all(n == self.T for n in known.flat) else v

    def state(self, i: int, name: str) -> Value | None:
        """An initial state [D,B,H]; None where it is absent or zero, for however many rows."""
        v = self.c.maybe(i)
        if v is None:
            return None
        if v.rank == 3 and self.batch_major:
            v = li.swapaxes(v, 0, 1)
        if self.c.is_zero(v) and v.rank == 3 and v.shape[1] in (1, self.B):
            self.fits(name, v, (self.D, v.shape[1], self.H))
            return None
        fixed = v.rank == 3 and v.shape[1] == 1 and self.B != 1 and self.c.known(i) is not None
        if fixed:
            raise NodeRefusedError(f"{name} has the values of one row, not all 0, and X has {self.B} rows")
        self.fits(name, v, (self.D, self.B, self.H))
        return v

    def activations(self) -> tuple[str, ...]:
        """Our activations of all directions, with their parameters."""
        default = self.kind.defaults * self.D
        names = self.c.words("activations", default)
        if len(names) != len(default):
            raise NodeRefusedError(f"{len(names)} activations, expected {len(default)}")
        rows = [ACTIVATIONS.get(n.lower()) for n in names]
        if None in rows:
            raise NodeRefusedError(f"the activation {names[rows.index(None)]!r} is not known")
        found = [row for row in rows if row is not None]
        alphas = self._parameters("activation_alpha", [row[1][:1] for row in found])
        betas = self._parameters("activation_beta", [row[1][1:] for row in found])
        dtype = self.c.value(0).dtype
        texts = [_written(row[0], (*a, *b), dtype) for row, a, b in zip(found, alphas, betas, strict=True)]
        step = len(self.kind.defaults)
        return tuple(texts[d * step + k] for d in range(self.D) for k in self.kind.spread)

    def _parameters(self, name: str, defaults: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
        """One parameter for each activation that has it, in their order, then the defaults."""
        given = self.c.reals(name, ())
        users = sum(map(len, defaults))
        if len(given) > users:
            raise NodeRefusedError(f"{name} has {len(given)} numbers for {users} activations that have one")
        left = iter(given)
        return [tuple(next(left, d) for d in row) for row in defaults]

    def results(self, y: Value, *states: Value) -> list[Result]:
        """Y [T,D,B,H], or [B,T,D,H] with layout 1, and the final states."""
        if self.batch_major:
            y = li.reshape(y, (self.B, self.T, self.D, self.H))
            return [y, *(li.swapaxes(s, 0, 1) for s in states)]
        y = li.transpose(li.reshape(y, (self.T, self.B, self.D, self.H)), (0, 2, 1, 3))
        return [y, *states]


def _written(name: str, parameters: tuple[float, ...], dtype: DType) -> str:
    if any(map(math.isnan, parameters)):
        raise NodeRefusedError(f"the activation {name} has no default alpha and beta")
    exact = [float(np.float32(p)) for p in parameters]  # parameters are f32 in ONNX: in f64 0.2 is 0.20000000298
    if name == "thresholded_relu":  # ONNX: x >= alpha; ours: x > alpha
        kind = np.float64 if dtype is DType.f64 else np.float32  # in which the layer computes
        exact = [float(np.nextafter(kind(p), kind(-np.inf))) for p in exact]
    return f"{name}({','.join(map(repr, exact))})" if exact else name


@taken("LSTM", 1, 7, 14, 22)
def lstm(c: Call) -> list[Result]:
    """i, f, o by f, the candidate by g, the cell's output by h; peepholes; f = 1 - i."""
    layer = Layer.of(c, LSTM)
    biases = layer.biases()
    peephole = c.maybe(7)
    if peephole is not None:
        layer.fits("P", peephole, (layer.D, 3 * layer.H))
        peephole = layer.blocks(peephole, (0, 2, 1))
    y, h, cell = li.lstm(
        **layer.operands,
        b=None if biases is None else biases[0] + biases[1],
        c0=layer.state(6, "initial_c"),
        peephole=peephole,
        input_forget=c.flag("input_forget"),
    )
    return layer.results(y, h, cell)


@taken("GRU", 1, 3, 7, 14, 22)
def gru(c: Call) -> list[Result]:
    """z and r by f, the candidate by g; r multiplies the state, or the product with it."""
    layer = Layer.of(c, GRU)
    after = c.opset >= 3 and c.flag("linear_before_reset")
    b = b_hn = None
    biases = layer.biases()
    if biases is not None:
        of_w, of_r = biases
        H = layer.H
        b = of_w + of_r
        if after:
            b_hn = slice_axis(of_r, 1, 2 * H, 3 * H)
            b = li.concat([slice_axis(b, 1, 0, 2 * H), slice_axis(of_w, 1, 2 * H, 3 * H)], 1)
    y, h = li.gru(**layer.operands, b=b, b_hn=b_hn, reset_after=after)
    return layer.results(y, h)


@taken("RNN", 1, 7, 14, 22)
def rnn(c: Call) -> list[Result]:
    """h = f(W x + R h + b)."""
    layer = Layer.of(c, RNN)
    biases = layer.biases()
    y, h = li.rnn(**layer.operands, b=None if biases is None else biases[0] + biases[1])
    return layer.results(y, h)
