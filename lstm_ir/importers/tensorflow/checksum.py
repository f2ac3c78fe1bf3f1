"""CRC-32C (Castagnoli), the checksum of TensorFlow's checkpoints, by NumPy: many parts of the data side by side."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_POLYNOMIAL = 0x82F63B78  # reflected
_MASK = 0xA282EAD8  # what TensorFlow and LevelDB add, so that a checksum of checksums is not weak
_PART = 1024  # bytes of one part


def masked_crc32c(data: Any) -> int:
    """The checksum as the files hold it: turned by 15 bits, and a number added. `data` is a buffer of bytes."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def crc32c(data: Any) -> int:
    """The checksum of a buffer."""
    found = np.frombuffer(data, np.uint8)
    parts = len(found) // _PART
    crc = np.uint32(0xFFFFFFFF)
    if parts > 1:
        crc = _joined(_side_by_side(found[: parts * _PART].reshape(parts, _PART), crc))
        found = found[parts * _PART :]
    table = _table()
    for byte in found.tolist():
        crc = table[(int(crc) ^ byte) & 0xFF] ^ (crc >> np.uint32(8))
    return int(crc) ^ 0xFFFFFFFF


def _side_by_side(rows: Array, first: np.uint32) -> Array:
    """The register after each row; the first row starts with `first`, the others with 0."""
    table, eight = _table(), np.uint32(8)
    crc = np.zeros(len(rows), np.uint32)
    crc[0] = first
    for column in np.ascontiguousarray(rows.T):
        crc = table[(crc ^ column) & np.uint32(0xFF)] ^ (crc >> eight)
    return crc


def _joined(crc: Array) -> np.uint32:
    """The register after all rows: that of the left is moved over what stands on its right, pair by pair."""
    level = 0
    if len(crc) & (len(crc) - 1):  # zeros in front change nothing where the register is 0
        whole = 1 << (len(crc) - 1).bit_length()
        crc = np.concatenate([np.zeros(whole - len(crc), np.uint32), crc])
    while len(crc) > 1:
        crc = _moved(crc[0::2], level) ^ crc[1::2]
        level += 1
    return np.uint32(crc[0])


def _moved(crc: Array, level: int) -> Array:
    """The register after 2**level parts of zeros, by a table for each of its four bytes."""
    tables = _move(level)
    out = np.zeros_like(crc)
    for k in range(4):
        out ^= tables[k][(crc >> np.uint32(8 * k)) & np.uint32(0xFF)]
    return out


@cache
def _table() -> Array:
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, crc >> np.uint32(1) ^ np.uint32(_POLYNOMIAL), crc >> np.uint32(1))
    return crc.astype(np.uint32)


@cache
def _move(level: int) -> Array:
    each = (np.arange(256, dtype=np.uint32)[None, :] << (8 * np.arange(4, dtype=np.uint32))[:, None]).astype(np.uint32)
    if level == 0:
        table = _table()
        for _ in range(_PART):
            each = table[each & np.uint32(0xFF)] ^ (each >> np.uint32(8))
        return each
    half = _moved(each.reshape(-1), level - 1)
    return _moved(half, level - 1).reshape(4, 256)
