"""Weight files and state files that are damaged, or made to do damage, read: arrays, or PackageError.

What the library `safetensors` refuses is refused here too.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import campaign
import numpy as np
from mutation import altered
from safetensors import SafetensorError
from safetensors.numpy import load

from lstm_ir.backends.files import npy, safetensors, state_file
from lstm_ir.backends.files.parameters import read_weights
from lstm_ir.backends.memory import ARRAYS
from lstm_ir.ir.errors import PackageError

Rng = np.random.Generator
DTYPES = ("<f4", "<f8", "<f2", "<i4", "<i8", "|i1", "|u1", "<u4", "|b1", ">f4", ">i8", "<u2")
ODD: tuple[Any, ...] = (
    0, 1, -1, 2**31, 2**61, 2**62, 2**63, 2**64, 10**30, 1.0, -0.0, 1e400, True, None, "", "F32", "F8_E4M3", "\ud800",
    "é", [], {}, [0, 2**61], [0, 0], [1] * 40, [[1]], {"a": 1}, float("nan"), "f4", "<f4", "O", "|O", "<U5", "|S0",
    "<V8", "(2,)f4", [("a", "<f4")], "1+1", "M8[ns]", "<f16", "<c8",
)  # fmt: skip


def arrays(rng: Rng, dtypes: tuple[str, ...] = DTYPES) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for i in range(int(rng.integers(1, 4))):
        shape = tuple(int(n) for n in rng.integers(0, 4, size=int(rng.integers(0, 4))))
        dtype = np.dtype(dtypes[int(rng.integers(len(dtypes)))])
        out[f"w{i}"] = rng.integers(0, 2, size=shape).astype(dtype)
    return out


@cache
def seeds(kind: str) -> tuple[bytes, ...]:
    """Sound files."""
    rng = np.random.default_rng(5)
    return tuple(sound(rng, kind) for _ in range(12))


def sound(rng: Rng, kind: str) -> bytes:
    f = io.BytesIO()
    if kind == "npy":
        a = next(iter(arrays(rng).values()))
        np.save(f, np.asfortranarray(a) if rng.integers(2) else a)
    elif kind == "npz":
        (np.savez, np.savez_compressed)[int(rng.integers(2))](f, **arrays(rng))
    else:
        safetensors.write(f, arrays(rng, DTYPES[:9]))
    return f.getvalue()


def odd_tensor(rng: Rng) -> bytes:
    """A safetensors file whose header is sound JSON, and wrong somewhere."""
    data = sound(rng, "safetensors")
    (length,) = struct.unpack("<Q", data[:8])
    header: Any = json.loads(data[8 : 8 + length])
    header["__metadata__"] = {"format": "np"}
    path: Any = header
    for _ in range(int(rng.integers(1, 4))):
        keys = list(path) if isinstance(path, dict) else list(range(len(path))) if isinstance(path, list) else []
        if not keys:
            break
        key = keys[int(rng.integers(len(keys)))]
        inner = path[key]
        if not isinstance(inner, (dict, list)) or rng.random() < 0.3:
            path[key] = ODD[int(rng.integers(len(ODD)))]
            break
        path = inner
    text = json.dumps(header, ensure_ascii=bool(rng.integers(2)))
    if rng.random() < 0.1:
        text = text.replace('"w0"', '"w1"', 1)
    how = ("utf-8", "utf-8", "utf-8", "utf-16", "utf-8-sig", "utf-32-le", "latin-1")[int(rng.integers(7))]
    packed = text.encode(how, "surrogatepass" if how[:3] == "utf" else "replace")
    return struct.pack("<Q", len(packed)) + packed + data[8 + length :]


def odd_header(rng: Rng) -> bytes:
    """A .npy file whose header is Python text, and wrong somewhere."""
    fields: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": (2, 3)}
    key = ("descr", "fortran_order", "shape")[int(rng.integers(3))]
    value = ODD[int(rng.integers(len(ODD)))]
    fields[key] = tuple(value) if isinstance(value, list) and rng.integers(2) else value
    text = repr(fields) + ("" if rng.random() < 0.8 else str(rng.choice(["(", "'", "\\", "[" * 200, "0" * 5000, "\0"])))
    packed = text.encode("utf-8", "surrogatepass") + b"\n"
    version = (bytes([1, 0]), bytes([2, 0]), bytes([3, 0]))[int(rng.integers(3))]
    width = 2 if version[0] == 1 else 4
    return b"\x93NUMPY" + version + len(packed).to_bytes(width, "little") + packed + bytes(int(rng.choice([0, 24, 8])))


def odd_archive(rng: Rng) -> bytes:
    """A .npz whose members are wrong .npy files, or packed in other ways."""
    f = io.BytesIO()
    how = (0, 8, 8, 12, 14)[int(rng.integers(5))]
    with zipfile.ZipFile(f, "w", how) as z:
        for i in range(int(rng.integers(1, 3))):
            inner = odd_header(rng) if rng.integers(2) else altered(rng, sound(rng, "npy"))
            z.writestr(f"w{i}" + str(rng.choice([".npy", ".npy", ".npy", "", ".txt"])), inner)
    return f.getvalue()


def made(rng: Rng, kind: str) -> bytes:
    if (way := rng.random()) < 0.1:
        return sound(rng, kind)
    if way < 0.5:
        base = seeds(kind)
        return altered(rng, base[int(rng.integers(len(base)))], base)
    return {"npy": odd_header, "npz": odd_archive, "safetensors": odd_tensor}[kind](rng)


def trial(rng: Rng, number: int) -> str:
    kind = ("npy", "npz", "safetensors")[number % 3]
    data = made(rng, kind)
    file = Path(f"w.{kind}")
    file.write_bytes(data)
    try:
        if kind == "npy":
            found = {"a": npy.read(file)}
        elif number % 2:
            found = read_weights(file)
        else:
            found = state_file.read(file) if kind == "safetensors" else read_weights(file)
    except PackageError as e:
        assert str(e).startswith(str(file)), e
        return f"{kind} refused"
    _bounded(found, data)
    if kind == "safetensors":
        _as_the_library(data, found)
    else:
        _as_numpy(data, found)
    return f"{kind} read"


def _bounded(found: dict[str, Any], data: bytes) -> None:
    assert len(found) <= ARRAYS
    assert sum(a.nbytes for a in found.values()) <= 64 * len(data) + (1 << 20)


def _as_numpy(data: bytes, found: dict[str, Any]) -> None:
    theirs = np.load(io.BytesIO(data), allow_pickle=False)
    for name, a in found.items():
        want = theirs[name] if isinstance(theirs, np.lib.npyio.NpzFile) else theirs
        assert a.dtype.isnative, name
        np.testing.assert_array_equal(a, want.astype(a.dtype), strict=True)


def _as_the_library(data: bytes, found: dict[str, Any]) -> None:
    try:
        theirs = load(data)
    except SafetensorError as e:
        raise AssertionError(f"the library refuses this: {e}") from e
    except KeyError:  # its NumPy has no bf16
        return
    assert set(theirs) == set(found)
    for name, a in theirs.items():
        assert a.shape == found[name].shape, name
        assert a.tobytes() == found[name].tobytes(), name


if __name__ == "__main__":
    campaign.main(trial, seconds=10, memory=4 << 30)
