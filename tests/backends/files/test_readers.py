"""Readers of files that may come from anybody: what is refused, by which class, and before memory is taken."""

from __future__ import annotations

import io
import json
import os
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.backends.files import npy, npz, state_file
from lstm_ir.backends.files.parameters import read_weights
from lstm_ir.backends.memory import ARRAYS
from lstm_ir.backends.run.package import read_package, write_package
from lstm_ir.cli import files as cli_files
from lstm_ir.ir.errors import PackageError, ParseError


def header(text: str, data: int = 8) -> bytes:
    packed = text.encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(packed)) + packed + bytes(data)


def fields(descr: str = "'<f4'", shape: str = "(2,)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


# NumPy's reader ends in TokenError, TypeError, OverflowError, … for these, or reads them.
HEADERS = {
    "an open bracket": "{'descr': ('",
    "no text": "\0",
    "nested": "(" * 4000,
    "a list": "[1]",
    "a key too many": fields()[:-1] + "'more': 1}",
    "a key too few": "{'descr': '<f4', 'shape': (2,)}",
    "a number as type": fields("5"),
    "a type of types": fields("('<f4', '<f4')"),
    "a record": fields("[('a', '<f4')]"),
    "a size of text": fields(shape="('2',)"),
    "a size that is true": fields(shape="(True, 2)"),
    "a shape of a number": fields(shape="2"),
    "a negative size": fields(shape="(-1, -2)"),
    "a huge size": fields(shape=f"({2**64},)"),
    "nothing of a huge size": fields(shape=f"(0, {2**61})"),
    "40 axes": fields(shape=f"({'1, ' * 40}2)"),
    "order by number": fields(order="0"),
    "objects": fields("'|O'"),
    "texts": fields("'<U0'"),
    "bytes of no size": fields("'|S0'", "(2, 9)"),
    "raw memory of no size": fields("'|V0'"),
    "complex": fields("'<c8'", "(1,)"),
    "times": fields("'<M8[ns]'", "(1,)"),
    "a long double": fields("'<f16'", "(1,)"),
}


@pytest.mark.parametrize("blank", [b"\xa0", b"\x0b", b"\x1c", b"\x85"])
def test_blanks_that_are_none(blank: bytes, tmp_path: Path) -> None:
    """Python's `strip` takes them for blanks, NumPy's reader does not."""
    text = fields().encode() + blank + b"\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + bytes(8))
    with pytest.raises((ValueError, SyntaxError)):
        np.load(tmp_path / "x.npy")
    with pytest.raises(PackageError, match="a damaged header"):
        npy.read(tmp_path / "x.npy")


def test_an_archive_begins_as_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", a=np.zeros(3))
    (tmp_path / "w.npz").write_bytes(b"text" + (tmp_path / "w.npz").read_bytes())
    with pytest.raises(PackageError, match=r"not a \.npz file"):
        read_weights(tmp_path / "w.npz")


@pytest.mark.parametrize("name", HEADERS)
def test_headers_of_arrays_that_are_refused(name: str, tmp_path: Path) -> None:
    data = header(HEADERS[name])
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(PackageError, match=r"x\.npy: "):
        cli_files.read_inputs([f"x={tmp_path / 'x.npy'}"])
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as z:
        z.writestr("x.npy", data)
    with pytest.raises(PackageError, match=r"x\.npz: x: "):
        read_weights(tmp_path / "x.npz")


@pytest.mark.parametrize("a", [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3)),
                               np.zeros((0, 3), "f2"), np.array(True), np.array([[2**63]], "u8")])  # fmt: skip
def test_arrays_are_read_as_they_were_written(a: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", a)
    got = npy.read(tmp_path / "a.npy")
    assert (got.shape, got.dtype.kind, got.dtype.isnative) == (a.shape, a.dtype.kind, True)
    np.testing.assert_array_equal(got, a)


def test_a_boolean_has_one_bit(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(header(fields("'|b1'"), 0) + b"\1\2")
    with pytest.raises(PackageError, match="neither 0 nor 1"):
        npy.read(tmp_path / "a.npy")


# -- sizes ----------------------------------------------------------------------------------------


def test_what_a_packed_file_inflates_to_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "w.npz"
    np.savez_compressed(file, a=np.zeros(npz.ANY + 1, "i1"))
    assert file.stat().st_size < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(PackageError, match=r"w\.npz: .* bytes that inflate to .*; at most 67108864 are read"):
            read_weights(file)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    np.savez_compressed(file, a=np.zeros(1 << 20, "i1"))
    assert read_weights(file)["a"].shape == (1 << 20,)


def test_no_member_gives_more_than_it_claims(tmp_path: Path) -> None:
    """The directory says 128 bytes, deflate has a million."""
    file = tmp_path / "w.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a.npy", header(fields(shape="(0,)"), 0) + bytes(1 << 20))
    data = bytearray(file.read_bytes())
    at = data.rindex(b"PK\1\2")
    data[at + 24 : at + 28] = struct.pack("<I", len(header(fields(shape="(0,)"), 0)))
    file.write_bytes(data)
    with pytest.raises(PackageError, match=r"w\.npz"):
        read_weights(file)


@pytest.mark.parametrize("how", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_packers_are_refused(how: int, tmp_path: Path) -> None:
    good = io.BytesIO()
    np.save(good, np.zeros(3, "f4"))
    with zipfile.ZipFile(tmp_path / "w.npz", "w", how) as z:
        z.writestr("a.npy", good.getvalue())
    with pytest.raises(PackageError, match=f"packed by method {how}"):
        read_weights(tmp_path / "w.npz")


def tensors(path: Path, entries: Any, data: bytes = b"", how: str = "utf-8") -> Path:
    text = (entries if isinstance(entries, str) else json.dumps(entries)).encode(how)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_many_tensors_are_read_in_linear_time_and_more_are_refused(tmp_path: Path) -> None:
    """Sixteen times as many may take eighty times as long; where each looked at all others, it would be 256.

    The caches make it 24 times here: four times as many once took 8.1 times as long beside other work.
    """
    none = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}

    def least(count: int) -> float:
        file = tensors(tmp_path / f"{count}.safetensors", {str(i): none for i in range(count)})
        times = []
        for _ in range(3):
            start = time.process_time()
            assert len(read_weights(file)) == count
            times.append(time.process_time() - start)
        return min(times)

    assert least(40_000) < 80 * least(2_500)
    file = tensors(tmp_path / "w.safetensors", {str(i): none for i in range(ARRAYS + 1)})
    with pytest.raises(PackageError, match="100001 tensors; at most 100000 are read"):
        read_weights(file)


ONE = '"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
REFUSED_BY_BOTH = {
    "UTF-16": ("{" + ONE + "}", "utf-16"),
    "a byte order mark": ("{" + ONE + "}", "utf-8-sig"),
    "half of a surrogate pair": ("{" + ONE.replace('"a"', '"\\ud800"') + "}", "utf-8"),
    "metadata with half of a pair": ('{"__metadata__":{"a":"\\udfff"},' + ONE + "}", "utf-8"),
    "metadata of a number": ('{"__metadata__":5,' + ONE + "}", "utf-8"),
    "metadata that hold a number": ('{"__metadata__":{"a":5},' + ONE + "}", "utf-8"),
    "metadata in a list": ('{"__metadata__":["a"],' + ONE + "}", "utf-8"),
}


@pytest.mark.parametrize("name", REFUSED_BY_BOTH)
def test_headers_that_the_library_refuses(name: str, tmp_path: Path) -> None:
    need("safetensors")
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    text, how = REFUSED_BY_BOTH[name]
    file = tensors(tmp_path / "w.safetensors", text, bytes(8), how)
    with pytest.raises(SafetensorError):
        load_file(file)
    with pytest.raises(PackageError, match=r"w\.safetensors"):
        read_weights(file)


@pytest.mark.parametrize(
    "text", ["{" + ONE + "," + ONE + "}", '{"a":{"dtype":"F32","shape":[0,2305843009213693952],"data_offsets":[0,0]}}']
)
def test_headers_that_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match=r"w\.safetensors"):
        read_weights(tensors(tmp_path / "w.safetensors", text, bytes(8)))


# -- what is written ------------------------------------------------------------------------------

UNREADABLE: dict[str, tuple[dict[str, Any], str]] = {
    "metadata": ({"__metadata__": np.ones(2, "f4")}, "has no array called __metadata__"),
    "names": ({"w" * (17 << 20): np.ones(2, "f4")}, "the header has 178[0-9]* bytes"),
    "many": (dict.fromkeys(map(str, range(100_001)), np.ones(0, "f4")), "100001 arrays; at most 100000 are read again"),
}


@pytest.mark.parametrize("name", [*UNREADABLE, "axes"])
def test_what_could_not_be_read_again_is_not_written(name: str, tmp_path: Path) -> None:
    if name == "axes" and np.lib.NumpyVersion(np.__version__) < "2.0.0":
        pytest.skip("NumPy has no array of 33 axes")
    axes = {"axes": ({"w": np.ones((1,) * 33, "f4")}, "w: no array has the shape")} if name == "axes" else {}
    arrays, why = {**UNREADABLE, **axes}[name]
    state_file.write(tmp_path / "s", {"old": np.ones(3, "f4")})
    with pytest.raises(PackageError, match=why):
        state_file.write(tmp_path / "s", arrays)
    assert [p.name for p in tmp_path.iterdir()] == ["s"]
    assert list(state_file.read(tmp_path / "s")) == ["old"]


def test_a_package_of_a_long_name_is_not_written(tmp_path: Path) -> None:
    x = li.input("x" * (17 << 20), (2,))
    with pytest.raises(PackageError, match="at most 16777216 are read again"):
        li.export(li.Graph("g", [x], {"y": x + 1.0}), tmp_path / "p.lirpkg", ["cpu:host"], graph=False)
    assert list(tmp_path.iterdir()) == []


# -- what is no file ------------------------------------------------------------------------------

READERS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "package": (read_package, PackageError, "x.lirpkg"),
    "load": (li.load, PackageError, "x.lirpkg"),
    "state": (state_file.read, PackageError, "x"),
    "npz": (read_weights, PackageError, "x.npz"),
    "safetensors": (read_weights, PackageError, "x.safetensors"),
    "npy": (npy.read, PackageError, "x.npy"),
    "text": (lambda path: cli_files.read_program(str(path)), ParseError, "x.lir"),
}


WHAT = {
    "a device": "not a regular file", "a pipe": "not a regular file", "a folder": "Is a directory",
    "nothing": "No such file", "a null": "null",
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("what", WHAT)
def test_regular_files_only(name: str, what: str, tmp_path: Path) -> None:
    read, error, file = READERS[name]
    place = tmp_path / file
    if what == "a device":
        place.symlink_to("/dev/zero")
    elif what == "a pipe":
        os.mkfifo(place)
    elif what == "a folder":
        place.mkdir()
    elif what == "a null":
        place = tmp_path / f"\0{file}"
    with pytest.raises(error, match=WHAT[what]):
        read(place)


ELSE = "; expected text or bytes"


@pytest.mark.parametrize(
    ("key", "words"),
    [(5, f"an int{ELSE}"), (True, f"a bool{ELSE}"), (1.5, f"a float{ELSE}"), ([1], f"a list{ELSE}"), ("", "empty"),
     (b"", "empty"), ("\ud800", None)],
)  # fmt: skip
def test_keys_are_text_or_bytes(key: Any, words: str | None, tmp_path: Path) -> None:
    """Of another class it is a TypeError, as of any function, and an error of the project."""
    for call in (lambda: read_package(tmp_path / "x", require_key=key),
                 lambda: write_package(tmp_path / "x", None, {"cpu": None}, {}, sign_key=key)):  # type: ignore[arg-type,dict-item] # fmt: skip
        with pytest.raises(PackageError, match=f"the key of a signature is {words}$" if words else "the key") as e:
            call()
        assert isinstance(e.value, TypeError) == (not isinstance(key, (str, bytes)))
