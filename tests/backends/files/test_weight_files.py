"""Weight files: round trips of .safetensors and .npz, and what hostile ones may hold."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need
from small_packages import rezip

from lstm_ir.backends.files import safetensors
from lstm_ir.backends.files.parameters import read_weights
from lstm_ir.ir.errors import PackageError


def test_safetensors_round_trip(tmp_path: Path) -> None:
    from ml_dtypes import bfloat16

    arrays: dict[str, Any] = {
        "a/b": np.arange(15, dtype=np.float32).reshape(3, 5), "s": np.array(2.5),
        "none": np.zeros((0, 3), np.float16), "flags": np.array([True, False, True]),
        "u": np.array([1, 2**32 - 1], np.uint32), "h": np.array([1, -2, 3], bfloat16),
        "i": np.array([-(2**63)], np.int64), "odd": np.arange(3, dtype=np.int8),
    }  # fmt: skip
    file = tmp_path / "w.safetensors"
    with file.open("wb") as f:
        safetensors.write(f, arrays)
    again = read_weights(file)
    assert list(again) == list(arrays)
    for name, a in arrays.items():
        assert again[name].dtype == a.dtype
        assert again[name].shape == a.shape
        np.testing.assert_array_equal(again[name], a)


@pytest.mark.parametrize("where", ["name", "metadata name", "metadata"])
@pytest.mark.parametrize("text", ["a\ud800", "\udc00", "\ud83d\ude00"])
def test_safetensors_with_half_of_a_surrogate_pair_are_not_written(text: str, where: str) -> None:
    """As they are not read; two halves are one letter in the file, which is another name."""
    out, a = io.BytesIO(), np.zeros(2, np.float32)
    metadata = {text: "b"} if where == "metadata name" else {"b": text} if where == "metadata" else {"b": "c"}
    with pytest.raises(PackageError, match="has half of a surrogate pair"):
        safetensors.write(out, {text if where == "name" else "a": a}, metadata)
    assert not out.getvalue()
    safetensors.write(out, {"\U0001f600": a}, {"\U0001f600": "\U0001f600"})
    assert safetensors.read_from(io.BytesIO(out.getvalue()), len(out.getvalue()), "w").keys() == {"\U0001f600"}


def test_safetensors_of_the_library(tmp_path: Path) -> None:
    need("safetensors")
    from safetensors.numpy import load_file, save_file

    arrays: dict[str, Any] = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.float16)}
    save_file(arrays, tmp_path / "theirs.safetensors", metadata={"format": "np"})
    for name, a in read_weights(tmp_path / "theirs.safetensors").items():
        np.testing.assert_array_equal(a, arrays[name])
    with (tmp_path / "ours.safetensors").open("wb") as f:
        safetensors.write(f, arrays)
    for name, a in load_file(tmp_path / "ours.safetensors").items():
        np.testing.assert_array_equal(a, arrays[name])


def tensor(**change: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **change}


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ({"a": tensor()}, 7),
        ({"a": tensor()}, 9),
        ({"a": tensor(data_offsets=[0, 4])}, 8),
        ({"a": tensor(data_offsets=[4, 12])}, 12),
        ({"a": tensor(data_offsets=[8, 0])}, 8),
        ({"a": tensor(data_offsets=[-8, 0])}, 8),
        ({"a": tensor(shape=[2**61])}, 8),
        ({"a": tensor(shape=[2**40, 2**40])}, 8),
        ({"a": tensor(shape=[-1, -2])}, 8),
        ({"a": tensor(shape=[True, 2])}, 8),
        ({"a": tensor(shape=[1] * 40 + [2])}, 8),
        ({"a": tensor(dtype="F8_E4M3")}, 8),
        ({"a": tensor(dtype=["F32"])}, 8),
        ({"a": tensor(more=1)}, 8),
        ({"a": tensor(), "b": tensor()}, 8),  # overlap
        ({"a": tensor(), "b": tensor(data_offsets=[12, 20])}, 20),  # a gap
        ({"a": "x"}, 8),
        ([], 0),
    ],
)
def test_safetensors_refuses(tmp_path: Path, header: Any, data: int) -> None:
    text = json.dumps(header).encode()
    file = tmp_path / "w.safetensors"
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))
    with pytest.raises(PackageError, match=r"w\.safetensors"):
        read_weights(file)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\1" * 7,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 100) + b"{}",
        struct.pack("<Q", 4) + b"nope",
        struct.pack("<Q", 300_000) + b"[" * 300_000,
        struct.pack("<Q", 17) + b'{"a": 1, "a": 1 }',
        pickle.dumps({"a": 1}),
    ],
)
def test_safetensors_headers(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "w.safetensors").write_bytes(data)
    with pytest.raises(PackageError):
        read_weights(tmp_path / "w.safetensors")


def test_boolean_bytes(tmp_path: Path) -> None:
    text = json.dumps({"a": tensor(dtype="BOOL", data_offsets=[0, 2])}).encode()
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"\1\2")
    with pytest.raises(PackageError, match="neither 0 nor 1"):
        read_weights(tmp_path / "w.safetensors")


def test_npz_round_trip(tmp_path: Path) -> None:
    arrays = {
        "enc/w": np.arange(15, dtype=np.float32).reshape(3, 5), "s": np.array(7, np.int32),
        "f": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "big": np.arange(3, dtype=">i4"),
        "none": np.zeros((0, 4), np.float32), "flags": np.array([True, False]),
    }  # fmt: skip
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "w.npz", **arrays)  # type: ignore[arg-type]
        again = read_weights(tmp_path / "w.npz")
        assert set(again) == set(arrays)
        for name, a in arrays.items():
            np.testing.assert_array_equal(again[name], a)
            assert again[name].dtype.isnative
            assert again[name].flags.c_contiguous


class _Evil:
    def __reduce__(self) -> Any:
        return (os.system, ("touch pickled",))


def test_npz_refuses_pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "w.npz", a=np.array([_Evil()], object))
    with pytest.raises(PackageError, match="pickled Python objects are refused"):
        read_weights(tmp_path / "w.npz")
    assert not (tmp_path / "pickled").exists()


def test_npz_refuses(tmp_path: Path) -> None:
    file = tmp_path / "w.npz"
    good = io.BytesIO()
    np.save(good, np.arange(4, dtype=np.float32))
    huge = good.getvalue().replace(b"'shape': (4,), }", b"'shape': (4**9,)")
    cases: list[list[tuple[str, bytes]]] = [
        [("a.npy", good.getvalue()[:-1])],
        [("a.npy", good.getvalue() + b"x")],
        [("a.npy", b"")],
        [("a.npy", huge)],
        [("a.txt", b"x")],
        [("a.npy", good.getvalue().replace(b"(4,)", b"(5,)"))],
    ]
    for files in cases:
        rezip(file, files)
        with pytest.raises(PackageError, match=r"w\.npz"):
            read_weights(file)
    file.write_bytes(b"PK text")
    with pytest.raises(PackageError):
        read_weights(file)
    with pytest.raises(PackageError, match=r"expected a \.npz or \.safetensors"):
        read_weights(tmp_path / "w.pt")
    with pytest.raises(PackageError, match="No such file"):
        read_weights(tmp_path / "none.npz")


def test_npz_claims_are_checked_before_memory(tmp_path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }"
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    rezip(tmp_path / "w.npz", [("a.npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header)])
    with pytest.raises(PackageError, match="does not fit"):
        read_weights(tmp_path / "w.npz")
