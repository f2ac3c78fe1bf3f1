"""`threefry`: random bits that are the same on every target (Threefry-2x32, 20 rounds).

Element i of the result, counted row by row, is the first word of the block cipher over the counter
(i mod 2^32, 0) under `key`: integer additions, rotations and exclusive ors of 32 bits alone.

    x0, x1 = i + k0, k1                          k2 = 0x1BD11BDA ^ k0 ^ k1
    round:  x0 += x1;  x1 = rotl(x1, R[round]) ^ x0
    after every 4 rounds, s = 1 .. 5:            x0 += k[s mod 3];  x1 += k[(s+1) mod 3] + s

Source: Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.graph import Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.opdef import Attr, Level, define, need
from lstm_ir.ir.types import DimLike, DType, Shape, TensorType
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.fill import arange, full
from lstm_ir.ops.primitive.indexing import index
from lstm_ir.ops.primitive.shape import reshape

Array = np.ndarray[Any, Any]
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA
ROUNDS = 20


def cipher(k0: Any, k1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    """The two words of the block (x0, x1) under the key; u32 arrays or values alike."""
    keys = (k0, k1, k0 ^ k1 ^ _word(PARITY, k0))
    x0, x1 = x0 + k0, x1 + k1
    for n in range(ROUNDS):
        x0 = x0 + x1
        x1 = _rotated(x1, ROTATIONS[n % 8]) ^ x0
        if n % 4 == 3:
            s = n // 4 + 1
            x0 = x0 + keys[s % 3]
            x1 = x1 + (keys[(s + 1) % 3] + _word(s, k0))
    return x0, x1


def _word(number: int, like: Any) -> Any:
    return constant(number, DType.u32) if isinstance(like, Value) else np.uint32(number)


def _rotated(x: Any, by: int) -> Any:
    if isinstance(x, Value):
        return e.shift_left(x, by) | e.shift_right_logical(x, 32 - by)
    return (x << np.uint32(by)) | (x >> np.uint32(32 - by))


def folded(key: Array, low: int, high: int) -> Array:
    """A new key u32[2]: the block (low, high) under `key`."""
    with np.errstate(over="ignore"):
        words = cipher(key[0], key[1], np.uint32(low), np.uint32(high))
    return np.array(words, np.uint32)


def fold_in(key: Value, number: Value) -> Value:
    """A new key u32[2]: the block of the low and the high half of an i64 scalar under `key`."""
    low = e.convert(number, DType.u32)
    high = e.convert(e.shift_right_logical(number, constant(32, DType.i64)), DType.u32)
    first, second = cipher(index(key, 0), index(key, 1), low, high)
    return e.select(e.equal(arange(2), 0), first, second)


def number_key(*numbers: int) -> Array:
    """The key u32[2] of one or two 64-bit integers: the second is folded into the first."""
    first, *rest = (n % 2**64 for n in numbers)
    key = np.array([first % 2**32, first >> 32], np.uint32)
    for n in rest:
        key = folded(key, n % 2**32, n >> 32)
    return key


def _types(key: TensorType, *, shape: Shape) -> TensorType:
    need(key == TensorType((2,), DType.u32), f"key is {key}, expected u32[2]")
    return TensorType(shape, DType.u32)


def _numpy(key: Array, *, shape: tuple[int, ...]) -> Array:
    count = np.arange(math.prod(shape), dtype=np.uint64).astype(np.uint32)
    with np.errstate(over="ignore"):
        return np.asarray(cipher(key[0], key[1], count, np.zeros_like(count))[0]).reshape(shape)


def _expand(key: Value, *, shape: Shape) -> Value:
    n = dims.product(shape)
    k0, k1 = index(key, 0), index(key, 1)
    bits, _ = cipher(k0, k1, arange(n, DType.u32), full((n,), 0, DType.u32))
    return reshape(bits, shape)


THREEFRY = define(
    "threefry",
    "key",
    attrs={"shape": Attr("dims")},
    types=_types,
    numpy=_numpy,
    vjp=lambda node, cts: (None,),
    expand=_expand,
    level=Level.composite,
)


def random_bits(key: Value, shape: tuple[DimLike, ...]) -> Value:
    """u32 bits of `shape` from a key u32[2]."""
    return make(THREEFRY, key, shape=shape).values[0]


def drawn(bits: Any, p: float) -> Any:
    """True with probability 1 - p, to 2^-32: bits at or above p * 2^32. u32 arrays or values."""
    threshold = math.ceil(p * 2**32)
    if threshold >= 2**32:
        return full(bits.shape, False) if isinstance(bits, Value) else np.zeros(bits.shape, bool)
    if isinstance(bits, Value):
        return e.greater_equal(bits, constant(threshold, DType.u32))
    return bits >= np.uint32(threshold)
