"""Bytes and texts, a little wrong: how files look that are damaged, or made to do damage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def reworded(rng: Rng, tokens: Sequence[str], others: Mapping[str, Sequence[str]]) -> list[str]:
    """Tokens after one to three changes: dropped, repeated, exchanged, or one of `others` by its kind or by any."""
    out = list(tokens)
    kinds = list(others)
    for _ in range(int(rng.integers(1, 4))):
        a = int(rng.integers(len(out) + 1))
        b = a + int(rng.integers(1, 8))
        way = rng.random()
        if way < 0.5:
            places = [i for i, t in enumerate(out) if kind_of(t)]
            if places:
                a = places[int(rng.integers(len(places)))]
                same = others[kind_of(out[a])]
                out[a] = same[int(rng.integers(len(same)))]
        elif way < 0.6:
            del out[a:b]
        elif way < 0.7:
            out[a:a] = out[a:b]
        elif way < 0.85 and len(out) > 1:
            c, d = (int(n) for n in rng.integers(len(out), size=2))
            out[c], out[d] = out[d], out[c]
        else:
            some = others[kinds[int(rng.integers(len(kinds)))]]
            out[a:a] = [some[int(rng.integers(len(some)))]]
    return out


def kind_of(token: str) -> str:
    """What may stand where it stands: a value, a text, a number, a type, a word; empty for signs and blanks."""
    if token[0] in '%"':
        return token[0]
    if token[0].isdigit() or token[:1] == "-":
        return "number"
    return "" if not token[0].isalpha() else "type" if "[" in token else "word"
