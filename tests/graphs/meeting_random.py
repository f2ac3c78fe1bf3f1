"""Loops whose bodies are random ops over aligned rows, and over all rows: sums, extremes, numbers of the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from meeting_bodies import K, Sizes

import lstm_ir as li


def random_graph(seed: int, s: Sizes, kind: str, pairs: bool = False) -> li.Graph:
    """Carries of rows, of columns and without either; every other graph ends by one flag.

    pairs: some products give each row a sum over all rows, which is no kernel's.
    """
    rng = np.random.default_rng(seed)
    x, h0 = li.input("x", (s.T, s.B, K), kind), li.input("h0", (s.B, s.H), kind)

    def weight(*shape: int) -> li.Value:
        a = rng.standard_normal(shape) / np.sqrt(shape[0])
        return li.weight(f"w{rng.integers(1 << 40)}", a.astype(li.DType[kind].numpy))

    w, u, o, mix = weight(s.H, s.H), weight(K, s.H), weight(s.H, s.H), weight(s.B, s.B) if pairs else None

    def cell(state: Any, x: Any) -> Any:
        h, mean, number = state
        body = _Body(rng, [h, li.tanh(h @ w + x @ u)], [mean], [number], w, o, mix)
        for _ in range(int(rng.integers(4, 12))):
            body.step()
        rows, columns, numbers = body.rows, body.columns, body.numbers
        new = li.tanh(rows[-1] + 0.3 * h), li.tanh(columns[-1] + 0.3 * mean), li.tanh(numbers[-1] + 0.3 * number)
        return new, (rows[int(rng.integers(len(rows)))], columns[-1], numbers[-1])

    init = h0, li.zeros((s.H,), kind), li.constant(0.5, kind)
    ends = {"until": lambda s, y: li.max(s[0]) + s[2] > 1.5} if seed % 2 else {}
    out = li.scan(cell, init, x, **ends)  # type: ignore[arg-type]
    (h, mean, number), (a, b, c) = out[0], out[1]
    results = {"h": h, "mean": mean, "number": number, "a": a, "b": b, "c": c}
    return li.Graph("random", [x, h0], results | ({"steps": out[2]} if ends else {}))


class _Body:
    """What a step has made so far: [B,H], [H] and numbers."""

    def __init__(
        self, rng: np.random.Generator, rows: list[Any], columns: list[Any], numbers: list[Any], w: Any, o: Any,
        mix: Any,
    ) -> None:  # fmt: skip
        self.mix = mix
        self.rng, self.rows, self.columns, self.numbers, self.w, self.o = rng, rows, columns, numbers, w, o

    def _pick(self, pool: list[Any]) -> Any:
        return pool[int(self.rng.integers(len(pool)))]

    def step(self) -> None:
        """One value more."""
        if self.mix is not None and self.rng.integers(5) == 0:
            self.rows.append(li.tanh(li.einsum("bh,bc->ch", self._pick(self.rows), self.mix)))
            return
        row, column, number = self._pick(self.rows), self._pick(self.columns), self._pick(self.numbers)
        match int(self.rng.integers(14)):
            case 0:
                self.rows.append(li.tanh(row + self._pick(self.rows) * number))
            case 1:
                self.rows.append(row * 0.5 - column)
            case 2:
                self.rows.append(li.tanh(row @ self.w + column))
            case 3:
                self.rows.append(li.select(row > number, row, column + 0.0 * row))
            case 4:
                self.rows.append(row - li.mean(row, 1, keepdims=True) * number)
            case 5:
                self.columns.append(li.mean(row, 0))
            case 6:
                self.columns.append(li.tanh(li.max(row, 0) - self._pick(self.columns)))
            case 7:
                self.columns.append(li.tanh(column @ self.o) * number)
            case 8:
                d = row - li.mean(row, 0)
                self.columns.append(li.rsqrt(li.mean(d * d, 0) + 0.1))
            case 9:
                self.numbers.append(li.tanh(li.mean(row) + number))
            case 10:
                self.numbers.append(li.min(li.max(row, 1)) - 0.1 * number)
            case 11:
                self.numbers.append(li.tanh(0.1 * li.sum(column)))
            case 12:
                self.numbers.append(li.mean(li.convert(row[:, 0] > number, str(row.dtype))))
            case _:
                self.columns.append(li.tanh(li.einsum("b,bj->j", row[:, 1], self._pick(self.rows))))
