"""What changes of ONNX's and TensorFlow's messages share: odd numbers, how many changes, and lengths as bytes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from mutation import Rng

REALS = (0.0, -0.0, 1.0, -1.0, 1e-30, 3e38, float("inf"), float("-inf"), float("nan"), 0.5)


def some_changes(rng: Rng, change: Callable[[], None]) -> None:
    """One to three; what protobuf does not let into a field is left out."""
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        with suppress(ValueError, TypeError, UnicodeError):
            change()


def varint(n: int) -> bytes:
    """A number as the format writes it."""
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])
