"""Bytes and texts, a little wrong: how files look that are damaged, or made to do damage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Rng = np.random.Generator
_WORDS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def altered(rng: Rng, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """`data` after one to four changes: bits, bytes, numbers, pieces cut, repeated, or taken from `others`."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        _alter(rng, out, others)
    return bytes(out)


def _alter(rng: Rng, out: bytearray, others: Sequence[bytes]) -> None:
    size = len(out)
    a = int(rng.integers(size + 1))
    b = min(size, a + int(2 ** rng.uniform(0, np.log2(size + 2))))
    kind = int(rng.integers(8))
    if kind == 0 and a < size:
        out[a] ^= 1 << int(rng.integers(8))
    elif kind == 1 and a < size:
        out[a] = int(rng.integers(256))
    elif kind == 2:
        number = _WORDS[int(rng.integers(len(_WORDS)))]
        width = int(rng.choice([2, 4, 8]))
        out[a : a + width] = (number % 2 ** (8 * width)).to_bytes(width, "little")
    elif kind == 3:
        del out[a:b]
    elif kind == 4:
        out[a:a] = out[a:b]
    elif kind == 5:
        del out[a:]
    elif kind == 6:
        other = others[int(rng.integers(len(others)))] if others else bytes(out)
        c = int(rng.integers(len(other) + 1))
        out[a:b] = other[c : c + int(rng.integers(64))]
    else:
        out[a:a] = rng.integers(256, size=int(rng.integers(1, 16)), dtype=np.uint8).tobytes()


def reworded(rng: Rng, tokens: list[str], others: Sequence[str]) -> list[str]:
    """A list of tokens after one to four changes: dropped, repeated, exchanged, or taken from `others`."""
    out = list(tokens)
    for _ in range(int(rng.integers(1, 5))):
        a, b = sorted(int(n) for n in rng.integers(len(out) + 1, size=2))
        b = min(b, a + int(rng.integers(1, 8)))
        kind = int(rng.integers(5))
        if kind == 0:
            del out[a:b]
        elif kind == 1:
            out[a:a] = out[a:b]
        elif kind == 2 and len(out) > 1:
            c, d = (int(n) for n in rng.integers(len(out), size=2))
            out[c], out[d] = out[d], out[c]
        elif kind == 3 and a < len(out):
            out[a] = str(rng.choice(np.array(others, object)))
        else:
            out[a:a] = [str(rng.choice(np.array(others, object)))]
    return out
