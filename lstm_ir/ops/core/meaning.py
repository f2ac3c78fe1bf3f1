"""The NumPy meanings of `lstm`, `gru` and `rnn`: one step at a time, one direction at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lstm_ir.ops.core.activations import Act
from lstm_ir.ops.core.sizes import DIRECTIONS

Array = np.ndarray[Any, Any]
State = tuple[Array, ...]
Step = Callable[[int, Array, State], tuple[State, State]]


def clip(a: Array, limit: float) -> Array:
    """a held inside ±limit, 0 is off; NaN stays."""
    return np.minimum(np.maximum(a, a.dtype.type(-limit)), a.dtype.type(limit)) if limit > 0 else a


class LayerMeaning:
    """One direction after the other over x [T,B,I]; collects y and saved rows [T,B,D*width], finals
    [D,B,width]."""

    def __init__(
        self, x: Array, lengths: Array | None, count: Array | None, *, direction: str, layout: str, padding: str
    ) -> None:
        self.batch_major = layout == "batch"
        self.x = np.swapaxes(x, 0, 1) if self.batch_major else x
        self.lengths, self.hold = lengths, padding == "hold"
        self.T, self.B = self.x.shape[:2]
        self.n = self.T if count is None else int(count)
        self.reverse = DIRECTIONS[direction]
        self.finals: list[State] = []
        self.rows: list[list[Array]] = []

    def inputs(self, d: int, w_ih: Array | None, width: int) -> Callable[[int, Array], Array]:
        """Input part of the gates at a step, [B,width]; what x holds in rows that do not exist is
        not read."""
        if w_ih is None:
            part = self.x[:, :, d * width : (d + 1) * width]
            return lambda t, alive: np.where(alive[:, None], part[t], 0)
        matrix = w_ih[d].T
        return lambda t, alive: np.where(alive[:, None], self.x[t], 0) @ matrix

    def run(self, d: int, state: State, widths: tuple[int, ...], step: Step) -> None:
        """All steps of direction d; `step(t, alive, state)` gives the new state and the rows, y
        first."""
        kind = state[0].dtype
        rows = [np.zeros((self.T, self.B, w), kind) for w in widths]
        if self.hold:
            rows[0][:] = state[0]
        for s in range(self.n):
            t = self.n - 1 - s if self.reverse[d] else s
            alive = np.ones(self.B, bool) if self.lengths is None else t < self.lengths
            new, out = step(t, alive, state)
            state = tuple(np.where(alive[:, None], a, b) for a, b in zip(new, state, strict=True))
            for row, o in zip(rows, out, strict=True):
                row[t] = np.where(alive[:, None], o, 0)
            if self.hold:
                rows[0][t] = state[0]
        if self.hold and not self.reverse[d]:
            rows[0][self.n :] = state[0]
        self.finals.append(state)
        self.rows.append(rows)

    def results(self, saved: bool) -> list[Array]:
        """y, the final states, and what was saved."""
        joined = [np.concatenate(parts, axis=2) for parts in zip(*self.rows, strict=True)]
        if self.batch_major:
            joined = [np.swapaxes(a, 0, 1) for a in joined]
        finals = [np.stack(parts) for parts in zip(*self.finals, strict=True)]
        return [joined[0], *finals, *(joined[1:] if saved else [])]


def start(h: Array | None, d: int, B: int, width: int, kind: Any) -> Array:
    """The first state of direction d, [B,width]; zeros where it is absent."""
    return np.zeros((B, width), kind) if h is None else h[d]


def gate_values(pre: tuple[Array, ...], acts: tuple[Act, ...], limit: float) -> list[Array]:
    """Gates from their pre-activations."""
    return [f.numpy(clip(a, limit)) for f, a in zip(acts, pre, strict=False)]
