"""The character language model's text, batches, first weights and budget, for this project and PyTorch alike.

The text is William Shakespeare's sonnets (1609, in the public domain; see data/sonnets.md). The first
140 are learned from, the last 14 are held out.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

SEED, EMBED, HIDDEN = 1609, 32, 128
T, B, STEPS = 64, 32, 900
PEAK, CLIP = 8e-3, 1.0
GOAL = 1.8  # nats per character on the held-out sonnets; a uniform guess has log(61) = 4.11
CURVE = Path(__file__).parent / "data" / "char_lm.npz"
Arrays = dict[str, np.ndarray]

SONNETS = (Path(__file__).parent / "data" / "sonnets.txt").read_text(encoding="ascii")
CHARACTERS = sorted(set(SONNETS))


def encoded(text: str) -> np.ndarray:
    return np.array([CHARACTERS.index(c) for c in text], np.int32)


def decoded(ids: list[int]) -> str:
    return "".join(CHARACTERS[i] for i in ids)


def parts() -> tuple[np.ndarray, np.ndarray]:
    """The sonnets that are learned from, and those that are held out."""
    each = SONNETS.split("\n\n")
    return encoded("\n\n".join(each[:140]) + "\n\n"), encoded("\n\n".join(each[140:]))


def batches() -> Iterator[Arrays]:
    """Windows of T characters, [T, B], and the characters after each; the same on every machine."""
    text, rng = parts()[0], np.random.default_rng(SEED)
    for _ in range(STEPS):
        at = rng.integers(0, len(text) - T, B) + np.arange(T)[:, None]
        yield {"ids": text[at], "labels": text[at + 1]}


def held_out() -> Arrays:
    """The held-out sonnets as one sequence, [T', 1]."""
    text = parts()[1]
    return {"ids": text[:-1, None], "labels": text[1:, None]}


def rate(step: int) -> float:
    """The learning rate of a step: up over the first tenth, then down in a straight line."""
    share = (step + 1) / STEPS
    return PEAK * min(share / 0.1, (1 - share) / 0.9 + 1e-3)


def fresh() -> Arrays:
    """Weights before training."""
    rng = np.random.default_rng(SEED)
    shapes = {
        "embedding": (len(CHARACTERS), EMBED), "lstm/w_ih": (4 * HIDDEN, EMBED),
        "lstm/w_hh": (4 * HIDDEN, HIDDEN), "lstm/b": (4 * HIDDEN,),
        "out/w": (len(CHARACTERS), HIDDEN), "out/b": (len(CHARACTERS),),
    }  # fmt: skip
    bound = HIDDEN**-0.5
    return {n: rng.uniform(-bound, bound, s).astype(np.float32) for n, s in shapes.items()}
