"""The letters of the sonnets as numbers: what models are trained on that say which letter comes next."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from paths import EXAMPLES

Array = np.ndarray[Any, Any]
SURE = 1e-3  # roundings decide between two letters that are closer


@cache
def places() -> tuple[int, Array]:
    """How many letters there are, and the whole text in their numbers."""
    text = (EXAMPLES / "data" / "sonnets.txt").read_text(encoding="ascii").lower()
    letters = sorted(set(text))
    return len(letters), np.array([letters.index(c) for c in text], np.int32)


def chunks(seed: int, count: int, steps: int) -> Array:
    """Drawn pieces [count,steps+1] of the first nine tenths."""
    _, text = places()
    begins = np.random.default_rng(seed).integers(0, len(text) * 9 // 10 - steps - 1, (count, 1))
    found: Array = text[begins + np.arange(steps + 1)]
    return found


def held_out(rows: int, steps: int) -> Array:
    """Pieces [rows,steps] of the last tenth."""
    _, text = places()
    return text[len(text) * 9 // 10 :][: rows * steps].reshape(rows, steps)


def sure_of_one(got: Array, want: Array) -> None:
    """The most likely letter is the same wherever it is sure."""
    top = np.sort(want, -1)
    sure = top[..., -1] - top[..., -2] > SURE
    assert sure.mean() > 0.5
    assert (got.argmax(-1) == want.argmax(-1))[sure].all()
