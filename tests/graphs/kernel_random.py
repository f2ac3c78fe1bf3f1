"""Loops whose bodies are random ops over aligned rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from kernel_bodies import Body, Loop, rows

import lstm_ir as li


def random_body(seed: int) -> Body:
    """A body of random ops over aligned rows; tanh keeps it tame."""

    def make(s: Loop) -> dict[str, li.Value]:
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 4))
        first = tuple(s.h0(f"h{i}") for i in range(n))
        weights = tuple(s.weight(int(k) * s.H, s.H) for k in rng.integers(1, 4, 3))
        wide, column, lengths = s.weight(s.H, s.I), s.weight(s.H), s.input("n", s.B, dtype="i32")
        x = s.x

        def cell(state: Any, x: Any, ws: Any, wide: Any, column: Any, lengths: Any, step: Any) -> Any:
            pool = [*state]

            def pick() -> Any:
                return pool[int(rng.integers(len(pool)))]

            alive = li.broadcast_in_dim(
                li.less(li.broadcast_in_dim(step, lengths.shape, ()), lengths), pool[0].shape, (0,)
            )
            for _ in range(int(rng.integers(4, 11))):
                pool.append(_step(int(rng.integers(11)), pick, s, x, ws, wide, column, alive, rng))
            new = tuple(li.tanh(pool[-1 - i % 3] + 0.5 * h) for i, h in enumerate(state))
            return new, (pool[-1], li.concat([pick(), pick()], 1))

        flags = bool(rng.integers(2))
        finals, ys = li.scan(cell, first, x, (weights, wide, column, lengths), with_step=True, reverse=flags)
        return {f"f{i}": v for i, v in enumerate(finals)} | {f"y{i}": v for i, v in enumerate(ys)}

    return make


def _step(
    kind: int, pick: Callable[[], Any], s: Loop, x: Any, ws: Any, wide: Any, column: Any,
    alive: Any, rng: np.random.Generator,
) -> Any:  # fmt: skip
    match kind:
        case 0:
            return li.tanh(pick() + pick())
        case 1:
            return pick() * 0.5 - pick() * column
        case 2:
            return li.logistic(pick()) * pick()
        case 3 | 4 | 5:
            w = ws[int(rng.integers(len(ws)))]
            k = int(rng.integers(w.shape[0] // s.H))
            a = rows(pick(), w)[:, k * s.H : (k + 1) * s.H]
            return a if kind == 3 else li.tanh(a + pick())
        case 6:
            return rows(x, wide) + pick()
        case 7:
            return li.select(alive, pick(), pick())
        case 8:
            v = pick()
            return v - li.sum(v, 1, keepdims=True) / float(s.H)
        case 9:
            row, parts = pick(), [ws[int(rng.integers(len(ws)))][: s.H] for _ in range(2)]
            return li.tanh(rows(row, parts[0]) + rows(row, parts[1]) + pick())
        case _:
            return li.select(li.greater(pick(), 0.0), pick(), pick() * 0.1)
