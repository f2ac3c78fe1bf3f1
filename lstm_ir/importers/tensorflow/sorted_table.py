"""LevelDB's sorted table, as a checkpoint's index is one: keys with values, in blocks, without compression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lstm_ir.importers.tensorflow.checksum import masked_crc32c
from lstm_ir.ir.errors import ModelError

_MAGIC = bytes.fromhex("57fb808b247547db")
_FOOTER = 48
_TRAILER = 5  # bytes after a block: its compression, and a checksum
MAX_BYTES = 2**28  # of an index
MAX_KEYS = 1_000_000


def entries(data: bytes, file: str) -> dict[bytes, bytes]:
    """Keys and values of a table. ModelError where a block is damaged, compressed, or outside the file."""
    if len(data) > MAX_BYTES:
        raise ModelError(f"{file}: the index has {len(data)} bytes, more than {MAX_BYTES}")
    if len(data) < _FOOTER or not data.endswith(_MAGIC):
        raise ModelError(f"{file}: is not the index of a checkpoint: its end is not that of a table")
    found: dict[bytes, bytes] = {}
    try:
        footer = len(data) - _FOOTER
        _, at = _handle(data, footer)
        index, _ = _handle(data, at)
        for _, handle in _block(data, index, file):
            for key, value in _block(data, _handle(handle, 0)[0], file):
                found[key] = value
                if len(found) > MAX_KEYS:
                    raise ModelError(f"{file}: the index has more than {MAX_KEYS} keys")
    except (IndexError, ValueError) as e:
        raise ModelError(f"{file}: the index is damaged: {e}") from e
    return found


def _block(data: bytes, handle: tuple[int, int], file: str) -> list[tuple[bytes, bytes]]:
    """Keys and values of one block; of a key only what differs from the one before is written."""
    start, size = handle
    end = start + size
    if end + _TRAILER > len(data):
        raise ValueError("a block lies outside the file")
    if data[end] != 0:
        raise ModelError(f"{file}: the index is compressed (kind {data[end]}), which is not taken")
    if masked_crc32c(data[start : end + 1]) != int.from_bytes(data[end + 1 : end + _TRAILER], "little"):
        raise ValueError("the checksum of a block is wrong")
    if size < 4:
        raise ValueError("a block is shorter than its end")
    restarts = int.from_bytes(data[end - 4 : end], "little")
    stop = end - 4 - 4 * restarts
    if stop < start:
        raise ValueError("a block is shorter than its restarts")
    out: list[tuple[bytes, bytes]] = []
    key, at = b"", start
    while at < stop:
        shared, at = varint(data, at)
        more, at = varint(data, at)
        length, at = varint(data, at)
        if shared > len(key) or at + more + length > stop:
            raise ValueError("an entry lies outside its block")
        key = key[:shared] + data[at : at + more]
        at += more
        out.append((key, data[at : at + length]))
        at += length
    return out


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Where a block starts and how long it is, and where the next handle stands."""
    start, at = varint(data, at)
    size, at = varint(data, at)
    return (start, size), at


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the place after it; IndexError or ValueError where there is none."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def table(found: Mapping[bytes, bytes]) -> bytes:
    """A table with these keys and values: one block of them, and the index that leads to it."""
    ordered = sorted(found.items())
    content = _sealed(ordered)
    none = _sealed([])
    index = _sealed([(ordered[-1][0] if ordered else b"", _place(0, content))])
    at = len(content)
    footer = _place(at, none) + _place(at + len(none), index)
    return content + none + index + footer.ljust(_FOOTER - len(_MAGIC), b"\0") + _MAGIC


def _sealed(ordered: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A block with its trailer. Every key is written whole, so that a search may start at each."""
    out, restarts = bytearray(), [0] * (not ordered)
    for key, value in ordered:
        restarts.append(len(out))
        out += b"\0" + number(len(key)) + number(len(value)) + key + value
    for place in (*restarts, len(restarts)):
        out += place.to_bytes(4, "little")
    out += b"\0"  # not compressed
    return bytes(out) + masked_crc32c(bytes(out)).to_bytes(4, "little")


def _place(start: int, sealed: bytes) -> bytes:
    """Where a block stands, and its length without the trailer."""
    return number(start) + number(len(sealed) - _TRAILER)


def number(value: int) -> bytes:
    """A number of seven bits a byte."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
