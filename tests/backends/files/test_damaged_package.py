"""Packages that are damaged, or made by somebody who wants harm."""

from __future__ import annotations

import errno
import hashlib
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import WEIGHTS, module
from small_packages import members, packed, rebuild, rezip, small, written

import lstm_ir as li
from lstm_ir.backends import bindings
from lstm_ir.backends.run.devices import resolve
from lstm_ir.backends.run.package import open_package, read_package, write_package
from lstm_ir.ir.errors import DeviceError, PackageError

W = WEIGHTS["enc/w"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path)


@pytest.mark.parametrize("part", [0.01, 0.3, 0.6, 0.9, 0.999])
def test_truncated(path: Path, part: float) -> None:
    """At 0.999 the module is whole. It is a zip archive too, so zipfile finds a list of members: the module's."""
    data = path.read_bytes()
    path.write_bytes(data[: int(part * len(data))])
    with pytest.raises(PackageError, match=r"m\.lirpkg: the package is cut off or damaged: .*download it again"):
        open_package(path)
    path.write_bytes(b"")
    with pytest.raises(PackageError, match=r"m\.lirpkg: the file is empty\. Copy"):
        open_package(path)


def test_every_altered_region_is_seen(path: Path) -> None:
    data = bytearray(path.read_bytes())
    opened = 0
    for at in range(0, len(data), max(1, len(data) // 150)):
        changed = bytearray(data)
        changed[at] ^= 0x40
        path.write_bytes(changed)
        try:
            found = read_package(path)
        except PackageError:
            continue
        opened += 1  # a byte that means nothing, such as a time stamp: all content is as written
        np.testing.assert_array_equal(found.weights["enc/w"], W)
        assert found.blobs == {"module-0.vmfb": packed("cpu")[1]}
        assert found.signature == small()
    assert opened < 8


def test_not_a_package(tmp_path: Path) -> None:
    for data in (b"", b"PK", b"text" * 1000):
        (tmp_path / "x").write_bytes(data)
        with pytest.raises(PackageError):
            open_package(tmp_path / "x")
    with pytest.raises(PackageError, match="No such file"):
        open_package(tmp_path / "none")
    with pytest.raises(PackageError):
        open_package(tmp_path)
    rezip(tmp_path / "x", [("module-0.vmfb", b"x")])
    with pytest.raises(PackageError, match=r"it has no manifest\.json"):
        open_package(tmp_path / "x")


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/b", "module-0.vmfb/..", "readme.txt"])
def test_foreign_members(path: Path, name: str) -> None:
    rezip(path, [*members(path).items(), (name, b"x")])
    with pytest.raises(PackageError, match="a package has no member"):
        read_package(path)
    assert sorted(p.name for p in path.parent.iterdir()) == ["m.lirpkg"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_members(path: Path) -> None:
    rezip(path, [*members(path).items(), ("module-0.vmfb", b"evil")])
    with pytest.raises(PackageError, match=r"two members are called module-0\.vmfb"):
        read_package(path)


def crowded(path: Path, times: int, long: bool) -> None:
    """The archive's list of members so many times, where `long` with the records of zip64."""
    data = path.read_bytes()
    end = data.rindex(b"PK\5\6")
    count, _, start = struct.unpack("<HLL", data[end + 10 : end + 20])
    entries, count = data[start:end] * times, count * times
    n, size, place = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF) if long else (count % 0x10000, len(entries), start)
    records = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, n, n, size, place, 0)
    if long:
        more = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(entries), start)
        records = more + struct.pack("<4sLQL", b"PK\6\7", 0, start + len(entries), 1) + records
    path.write_bytes(data[:start] + entries + records)


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("key", [None, b"k"])
def test_a_list_of_very_many_members_is_not_read(
    path: Path, long: bool, key: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = path.with_name("other.lirpkg")
    other.write_bytes(path.read_bytes())
    crowded(other, 1, long)
    read_package(other)  # such records are read
    crowded(path, 20_000, long)

    def made(*_: object) -> None:
        raise AssertionError("an object for a member")

    monkeypatch.setattr(zipfile, "ZipInfo", made)
    with pytest.raises(PackageError, match=r"m\.lirpkg: the list of its members has \d+ bytes; at most 1030144 are"):
        read_package(path, require_key=key)


def test_modules_have_one_name_each(path: Path) -> None:
    """So there are at most a thousand."""
    rezip(path, [*members(path).items(), ("module-00.vmfb", b"x")])
    with pytest.raises(PackageError, match=r"a package has no member 'module-00\.vmfb'"):
        read_package(path)


def test_members_longer_than_what_the_program_has_in_them_are_not_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = bytes((16 << 20) + 100)
    files = members(path) | {"weights.safetensors": long}
    rezip(path, [*files.items()])
    digest = hashlib.sha256(long).hexdigest()
    rebuild(path, lambda d: d["members"].update({"weights.safetensors": [len(long), digest]}))
    seen: list[str] = []
    read = zipfile.ZipFile.read

    def reading(self: zipfile.ZipFile, name: str, pwd: bytes | None = None) -> bytes:
        seen.append(name)
        return read(self, name, pwd)

    monkeypatch.setattr(zipfile.ZipFile, "read", reading)
    for mapped in (False, True):
        with pytest.raises(PackageError, match=r"weights\.safetensors has \d+ bytes; what the program has there takes"):
            read_package(path, mapped=mapped)
    assert set(seen) == {"manifest.json"}


def test_packed_members(path: Path) -> None:
    rezip(path, list(members(path).items()), zipfile.ZIP_DEFLATED)
    with pytest.raises(PackageError, match="is packed"):
        read_package(path)


def test_oversized_member(path: Path) -> None:
    data = path.read_bytes()
    at = data.rindex(b"PK\x01\x02")  # the last entry of the directory: sizes at offset 20 and 24
    huge = struct.pack("<II", 0xFFFFFF00, 0xFFFFFF00)
    path.write_bytes(data[: at + 20] + huge + data[at + 28 :])
    with pytest.raises(PackageError):
        read_package(path)


def test_exchanged_members(path: Path, tmp_path: Path) -> None:
    files = members(path)
    evil = bytearray(files["module-0.vmfb"])
    evil[500] ^= 1
    rezip(path, [*{**files, "module-0.vmfb": bytes(evil)}.items()])
    with pytest.raises(PackageError, match="is not the file that the manifest describes"):
        read_package(path)
    rezip(path, [*{**files, "module-0.vmfb": b"short"}.items()])
    with pytest.raises(PackageError, match="has 5 bytes"):
        read_package(path)
    rezip(path, [(n, d) for n, d in files.items() if n != "module-0.vmfb"])
    with pytest.raises(PackageError, match="listed or present"):
        read_package(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(format=3),
        lambda m: m.update(format=5),
        lambda m: m.update(format=2),
        lambda m: m.update(format=4.0),
        lambda m: m.update(more=1),
        lambda m: m.pop("extra"),
        lambda m: m.update(targets=[]),
        lambda m: m["targets"][0].update(kind="tpu"),
        lambda m: m["targets"][0].update(file="module-9.vmfb"),
        lambda m: m["targets"][0].update(file="../../x"),
        lambda m: m["targets"][0].update(file="weights.safetensors"),
        lambda m: m["targets"][0].update(file="manifest.json"),
        lambda m: m["targets"][0].update(features="avx2"),
        lambda m: m["targets"][0].pop("triple"),
        lambda m: m["targets"][0].update(work=[]),
        lambda m: m["targets"][0].update(work={"main": [1, 1]}),
        lambda m: m["targets"][0].update(work={"main": [None, 1, 1]}),
        lambda m: m["targets"][0].update(work={"main": ["T*", 1, 1]}),
        lambda m: m["targets"][0].update(work={"main": [1, -1, 1]}),
        lambda m: m["members"].pop("weights.safetensors"),
        lambda m: m["members"].update({"weights.safetensors": [-1, "0" * 64]}),
        lambda m: m["members"].update({"weights.safetensors": [1, "xyz"]}),
        lambda m: m["signature"].pop("weights"),
        lambda m: m["signature"]["weights"].append(["enc/v", "f32[5]"]),
        lambda m: m["signature"]["weights"].__setitem__(0, ["enc/w", "f32[6]"]),
        lambda m: m["signature"]["weights"].__setitem__(0, ["enc/w", "f32[N]"]),
        lambda m: m["signature"]["entries"][0].update(name="nobody"),
    ],
)
def test_manifests_that_lie(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    rebuild(path, change)
    with pytest.raises(PackageError):
        open_package(path)


def test_manifest_bombs(path: Path) -> None:
    files = members(path)
    for text in (b"[" * 200_000, b"{}", b"null", b'{"format": 2, "format": 2}', b"\xff\xfe", b"1" * 9000):
        rezip(path, [*{**files, "manifest.json": text}.items()])
        with pytest.raises(PackageError):
            read_package(path)


def test_a_module_that_the_runtime_refuses(path: Path) -> None:
    _, blob = module("cpu")
    for bad in (b"", blob[: len(blob) // 2], blob[:100], bytes(4096)):
        write_package(path, small(), {"cpu": (resolve("cpu"), bad)}, WEIGHTS)
        with pytest.raises(PackageError, match="not a module"):
            open_package(path)


def test_what_the_system_refuses_while_loading(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(bindings, "native", none_left)
    with pytest.raises(DeviceError, match=r"^load: Too many open files: .*ulimit -n"):
        li.load(path)
