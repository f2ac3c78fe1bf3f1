"""Weights that stay in the package's file: where they lie, what is checked, and whose memory they are."""

from __future__ import annotations

import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child import environment
from memory_maps import kilobytes
from paths import ROOT
from small_packages import members, rebuild, rezip

import lstm_ir as li
from lstm_ir.backends.files import safetensors
from lstm_ir.backends.files.archive import read_package
from lstm_ir.backends.targets import cpus

RNG = np.random.default_rng(20261203)
ROWS, WIDTH = 60_000, 100  # 24 MB
MAPPED = {"map_weights": True}
TWO = ROOT / "tests" / "data" / "packages" / "format-2.lirpkg"


def graph() -> tuple[li.Graph, dict[str, np.ndarray]]:
    """A large table that calls read where it lies, and arrays of an odd number of bytes between others."""
    arrays: dict[str, np.ndarray] = {
        "odd": RNG.standard_normal((7, 3)).astype(np.float32),
        "table": RNG.standard_normal((ROWS, WIDTH)).astype(np.float32),
        "w": RNG.standard_normal((WIDTH, 7)).astype(np.float32),
    }
    ids = li.input("ids", ("N",), "i32")
    rows = li.embedding(li.weight("table", arrays["table"]), ids)
    y = rows @ li.weight("w", arrays["w"]) @ li.weight("odd", arrays["odd"])
    return li.Graph("table", [ids], {"rows": rows, "y": y}), arrays


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    made, arrays = graph()
    return li.export(made, tmp_path_factory.mktemp("mapped") / "m.lirpkg", ["cpu:host"]), arrays


def places(path: Path) -> dict[str, int]:
    """Where each member's data begins, from the local headers."""
    data = path.read_bytes()
    with zipfile.ZipFile(path) as z:
        out = {}
        for info in z.infolist():
            name, extra = struct.unpack_from("<HH", data, info.header_offset + 26)
            out[info.filename] = info.header_offset + 30 + name + extra
            assert data[out[info.filename] :][: info.file_size] == z.read(info)
        return out


def test_every_member_begins_at_a_multiple_of_64_bytes(made: tuple[Path, Any]) -> None:
    found = places(made[0])
    assert len(found) >= 4
    assert {n: p % 64 for n, p in found.items()} == dict.fromkeys(found, 0)


def test_members_of_many_gigabytes_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Their headers are longer: zipfile decides it by a limit, here a low one."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1000)
    x = li.input("x", ("B", 30))
    w = RNG.standard_normal((30, 20)).astype(np.float32)
    path = li.export(li.Graph("g", [x], {"y": x @ li.weight("w", w)}), tmp_path / "m.lirpkg", ["cpu:host"])
    monkeypatch.undo()
    assert {p % 64 for p in places(path).values()} == {0}
    np.testing.assert_array_equal(li.load(path, options=MAPPED).weights["w"], w)


def test_results_are_those_of_weights_that_are_read(made: tuple[Path, dict[str, np.ndarray]]) -> None:
    path, arrays = made
    ids = np.array([5, ROWS - 1, 0, 5], np.int32)
    read, mapped = li.load(path), li.load(path, options=MAPPED)
    for exe in (read, mapped):
        np.testing.assert_array_equal(exe(ids=ids)["rows"], arrays["table"][ids])
        want = arrays["table"][ids].astype(np.float64) @ arrays["w"] @ arrays["odd"]
        np.testing.assert_allclose(exe(ids=ids)["y"], want, rtol=1e-4, atol=1e-4)
    assert list(mapped.weights) == list(read.weights)
    for name, a in mapped.weights.items():
        np.testing.assert_array_equal(a, arrays[name])
        assert not a.flags.writeable


def test_aligned_arrays_lie_in_the_file_and_others_are_copied(made: tuple[Path, Any]) -> None:
    found = read_package(made[0], mapped=True)
    assert {n: a.nbytes % 64 for n, a in found.weights.items()} == {"table": 0, "w": 48, "odd": 20}
    kinds = {n: type(_root(a)).__name__ for n, a in found.weights.items()}
    assert kinds == {"table": "mmap", "w": "mmap", "odd": "ndarray"}  # of those that fill no 64 bytes the first
    assert not any(a.ctypes.data % 64 for a in found.weights.values())


def _root(a: Any) -> Any:
    """What an array's memory belongs to."""
    while isinstance(a, np.ndarray) and a.base is not None:
        a = a.base
    return a.obj if isinstance(a, memoryview) else a


@pytest.mark.skipif(cpus.machine() != "x86_64", reason="the module is for x86-64")
def test_a_package_of_an_older_format_whose_members_lie_anywhere() -> None:
    x = (np.arange(24, dtype=np.float32).reshape(4, 3, 2) - 11) / 7
    np.testing.assert_array_equal(li.load(TWO, options=MAPPED)(x=x)["h"], li.load(TWO)(x=x)["h"])


def test_the_order_in_a_file_of_arrays(tmp_path: Path) -> None:
    """Those whose bytes are a multiple of 64 come first; the header keeps the caller's order."""
    arrays: dict[str, np.ndarray] = {
        "a": np.arange(3, dtype=np.int8), "b": np.ones((4, 4), np.float32), "c": np.zeros((0, 2), np.float64),
        "d": np.arange(16, dtype=np.int32), "e": np.array([True, False]),
    }  # fmt: skip
    with open(tmp_path / "f.safetensors", "wb") as f:
        safetensors.write(f, arrays)
    found = safetensors.read(tmp_path / "f.safetensors")
    assert list(found) == list(arrays)
    for name, a in arrays.items():
        np.testing.assert_array_equal(found[name], a)
        assert found[name].dtype == a.dtype
    data = (tmp_path / "f.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    assert data[start:] == b"".join(arrays[n].tobytes() for n in "bcdae")


def test_damage_is_found_before_anything_is_used(made: tuple[Path, Any], tmp_path: Path) -> None:
    data = bytearray(made[0].read_bytes())
    at = places(made[0])["weights.safetensors"] + 5_000_000
    data[at] ^= 1
    (tmp_path / "x.lirpkg").write_bytes(data)
    with pytest.raises(li.PackageError, match=r"weights\.safetensors is not the file that the manifest describes"):
        li.load(tmp_path / "x.lirpkg", options=MAPPED)


def test_a_member_that_claims_a_place_behind_the_file(tmp_path: Path) -> None:
    """The length of the local header is another than the directory says."""
    x = li.input("x", ("B", 2))
    w = np.ones((2, 2), np.float32)
    path = li.export(li.Graph("g", [x], {"y": x @ li.weight("w", w)}), tmp_path / "m.lirpkg", ["cpu:host"])
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as z:
        head = z.getinfo("weights.safetensors").header_offset
    data[head + 28 : head + 30] = b"\xff\xff"
    path.write_bytes(data)
    with pytest.raises(li.PackageError, match=r"cut off|not the file"):
        li.load(path, options=MAPPED)


def test_a_header_of_weights_that_lies(tmp_path: Path) -> None:
    """Hashes that fit, made by somebody who knows the format."""
    x = li.input("x", ("B", 2))
    made = li.Graph("g", [x], {"y": x @ li.weight("w", np.ones((2, 2), np.float32))})
    path = li.export(made, tmp_path / "m.lirpkg", ["cpu:host"])
    files = members(path)
    for bad in (b"", b"\xff" * 8, b"\x10" + bytes(7) + b"{" + b" " * 15, files["weights.safetensors"][:-4]):
        files["weights.safetensors"] = bad
        rezip(path, list(files.items()))

        def change(manifest: dict[str, Any], bad: bytes = bad) -> None:
            import hashlib

            manifest["members"]["weights.safetensors"] = {"size": len(bad), "sha256": hashlib.sha256(bad).hexdigest()}

        rebuild(path, change)
        with pytest.raises(li.PackageError, match=r"weights\.safetensors"):
            li.load(path, options=MAPPED)


def test_the_key_comes_first(made: tuple[Path, Any]) -> None:
    with pytest.raises(li.PackageError, match="a signature is required"):
        li.load(made[0], require_key=b"key", options=MAPPED)


def test_the_option_is_a_boolean(made: tuple[Path, Any]) -> None:
    with pytest.raises(li.CompileError, match="option map_weights is 1; expected True or False"):
        li.load(made[0], options={"map_weights": 1})


CHILD = """
import sys
import numpy as np
import lstm_ir as li
exe = li.load(sys.argv[1], options={"map_weights": sys.argv[2] == "mapped"})
exe(ids=np.arange(0, 60000, 7, dtype=np.int32))
print("ready", flush=True)
input()
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system has no /proc/PID/smaps")
def test_processes_share_the_memory_of_the_weights(made: tuple[Path, Any]) -> None:
    weights = ROWS * WIDTH * 4 // 1024  # kB
    private = {}
    for how in ("read", "mapped"):
        children = [
            subprocess.Popen([sys.executable, "-c", CHILD, str(made[0]), how], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, env=environment())
            for _ in range(3)
        ]  # fmt: skip
        try:
            for c in children:
                assert c.stdout is not None
                assert c.stdout.readline() == "ready\n"
            private[how] = [kilobytes(c.pid)["Private_Dirty"] for c in children]
            held = [kilobytes(c.pid, made[0].name) for c in children]
        finally:
            for c in children:
                c.communicate("\n", timeout=60)
        if how == "read":
            assert not any(any(h.values()) for h in held)
            continue
        for h in held:  # all pages are here, none is this process's own, a third of each is counted for it
            assert h["Rss"] >= weights
            assert h["Private_Dirty"] == 0
            assert 0.25 * weights < h["Pss"] < 0.45 * weights
    for read, mapped in zip(private["read"], private["mapped"], strict=True):
        assert read - mapped > 0.8 * weights, private
