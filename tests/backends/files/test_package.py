"""Packages and weight files: round trips, and what a hostile or damaged file may hold."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need
from handmade import WEIGHTS, dtypes, module, signature

import lstm_ir as li
from lstm_ir.backends.files import safetensors
from lstm_ir.backends.files.parameters import read_weights, write_irpa
from lstm_ir.backends.run import runtime
from lstm_ir.backends.run.package import ModuleFile, open_package, read_package, write_package
from lstm_ir.backends.targets import cpus
from lstm_ir.backends.targets.targets import resolve
from lstm_ir.ir.errors import DeviceError, PackageError, TargetError

W = WEIGHTS["enc/w"]
Z = np.zeros((2, 5), np.float32)


def packed(word: str) -> ModuleFile:
    """The handmade module for a target."""
    return ModuleFile(*module(word))


def small() -> Any:
    """The signature that every target's module has."""
    return signature(dtypes(resolve("vulkan")))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "m.lirpkg"
    write_package(file, small(), {"cpu": packed("cpu")}, WEIGHTS, {"report": "kernel"})
    return file


def test_round_trip(path: Path) -> None:
    found = read_package(path)
    assert found.signature == small()
    assert found.extra == {"report": "kernel"}
    assert [t.info.name for t in found.targets] == [resolve("cpu").info.name]
    np.testing.assert_array_equal(found.weights["enc/w"], W)
    exe = open_package(path)
    np.testing.assert_array_equal(exe({"input.1": Z})["y"], Z + W)
    assert exe.report == "kernel"
    assert [p.name for p in path.parent.iterdir()] == ["m.lirpkg"]
    names = zipfile.ZipFile(path).namelist()
    assert sorted(names) == ["manifest.json", "module-0.vmfb", "weights.safetensors"]
    for device, name in (("cpu", "local-task"), ("local-sync", "local-sync")):
        assert open_package(path, device).device == name


def test_equal_input_equal_file(path: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.lirpkg"
    write_package(again, small(), {"cpu": packed("cpu")}, WEIGHTS, {"report": "kernel"})
    assert again.read_bytes() == path.read_bytes()


def test_write_is_atomic(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PackageError, match="No space left"):
        write_package(path, small(), {"cpu": packed("cpu")}, WEIGHTS)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["m.lirpkg"]
    with pytest.raises(PackageError, match="Not a directory"):
        write_package(path / "no" / "folder", small(), {"cpu": packed("cpu")}, WEIGHTS)
    with pytest.raises(PackageError, match="at least one target"):
        write_package(path, small(), {}, WEIGHTS)


@pytest.mark.vulkan
def test_several_targets(tmp_path: Path) -> None:
    need("vulkan")
    file = tmp_path / "m.lirpkg"
    both = {w: packed(w) for w in ("cpu", "vulkan")}
    write_package(file, small(), both, WEIGHTS)
    assert zipfile.ZipFile(file).namelist().count("weights.safetensors") == 1
    assert open_package(file).target.info.kind == "cpu"  # the first that runs here
    for device in ("vulkan", "vulkan:0"):
        exe = open_package(file, device)
        assert exe.target.info.kind == "vulkan"
        np.testing.assert_array_equal(exe({"input.1": Z})["y"], Z + W)
    write_package(file, small(), dict(reversed(both.items())), WEIGHTS)
    assert open_package(file).target.info.kind == "vulkan"
    with pytest.raises(TargetError, match="no module for device metal; the package has vulkan, cpu"):
        open_package(file, "metal")


def test_other_processors_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.lirpkg"
    other = "cpu:aarch64" if cpus.machine() == "x86_64" else "cpu:x86-64-v3"
    write_package(file, small(), {other: packed(other)}, WEIGHTS)
    with pytest.raises(TargetError, match=f"made for {cpus.architecture(resolve(other).info.triple)}"):
        open_package(file)
    write_package(file, small(), {other: packed(other), "cpu": packed("cpu")}, WEIGHTS)
    assert open_package(file).target.info.name == resolve("cpu").info.name
    lost = resolve("cpu").info.features
    needed = cpus.needed(lost)
    if needed:
        monkeypatch.setattr(cpus, "flags", frozenset)
        monkeypatch.setattr(cpus, "_confirmed", set())
        with pytest.raises(TargetError, match="this processor lacks"):
            open_package(file)


def test_best_of_several_cpu_modules(tmp_path: Path) -> None:
    if cpus.machine() != "x86_64" or cpus.missing(resolve("cpu:x86-64-v3").info.features):
        pytest.skip("needs a processor with AVX2")
    file = tmp_path / "m.lirpkg"
    words = ("cpu:x86-64", "cpu:x86-64-v3")
    write_package(file, small(), {w: packed(w) for w in words}, WEIGHTS)
    assert open_package(file).target.info.name == "cpu:x86-64-v3"


def test_another_release_of_iree(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rebuild(path, lambda m: m.update(iree="3.12.0"))
    with pytest.raises(PackageError, match=r"made with IREE 3\.12\.0, the runtime here is 3\."):
        open_package(path)


# -- damage and malice ----------------------------------------------------------------------------


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as z:
        return {n: z.read(n) for n in z.namelist()}


def rezip(path: Path, files: list[tuple[str, bytes]], how: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", how) as z:
        for name, data in files:
            z.writestr(zipfile.ZipInfo(name), data, compress_type=how)


def rebuild(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest, as somebody who knows the format would."""
    files = members(path)
    data = json.loads(files["manifest.json"])
    change(data)
    files["manifest.json"] = json.dumps(data).encode()
    rezip(path, list(files.items()))


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.6, 0.9, 0.999])
def test_truncated(path: Path, part: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(part * len(data))])
    with pytest.raises(PackageError):
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
        lambda m: m.update(format=4),
        lambda m: m.update(format=2),
        lambda m: m.update(format=3.0),
        lambda m: m.update(more=1),
        lambda m: m.pop("extra"),
        lambda m: m.update(targets=[]),
        lambda m: m["targets"][0].update(kind="tpu"),
        lambda m: m["targets"][0].update(file="module-9.vmfb"),
        lambda m: m["targets"][0].update(file="../../x"),
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

    monkeypatch.setattr(runtime, "native", none_left)
    with pytest.raises(DeviceError, match=r"^load: Too many open files: .*ulimit -n"):
        li.load(path)


def test_signed(tmp_path: Path) -> None:
    file = tmp_path / "m.lirpkg"
    write_package(file, small(), {"cpu": packed("cpu")}, WEIGHTS, sign_key="secret")
    assert read_package(file, require_key=b"secret").signed
    assert not read_package(file).signed
    np.testing.assert_array_equal(open_package(file, require_key="secret")({"input.1": Z})["y"], Z + W)
    with pytest.raises(PackageError, match="not made with this key"):
        open_package(file, require_key="Secret")
    rebuild(file, lambda m: m["extra"].update(report="better"))
    assert read_package(file).extra == {"report": "better"}
    with pytest.raises(PackageError, match="not made with this key"):
        open_package(file, require_key="secret")
    files = members(file)
    del files["manifest.hmac"]
    rezip(file, list(files.items()))
    with pytest.raises(PackageError, match="a signature is required"):
        open_package(file, require_key="secret")
    for empty in ("", b""):
        with pytest.raises(PackageError, match="empty"):
            read_package(file, require_key=empty)


def test_loading_runs_without_the_compiler(path: Path) -> None:
    script = (
        "import sys\n"
        "for m in ('networkx', 'lark', 'iree.compiler', 'ml_dtypes', 'rich', 'click'):\n"
        "    sys.modules[m] = None\n"  # importing any of them fails
        "import numpy as np\n"
        "from lstm_ir.backends.run.package import ModuleFile, open_package\n"
        f"exe = open_package({str(path)!r})\n"
        "print(exe({'input.1': np.zeros((2, 5), np.float32)})['y'][1].tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == W.tolist()


def test_weights_run_in_iree_run_module(path: Path, tmp_path: Path) -> None:
    tool = Path(sys.executable).parent / "iree-run-module"
    if not tool.exists():
        pytest.skip("iree-run-module is not beside this Python")
    with zipfile.ZipFile(path) as z:
        z.extractall(tmp_path)
    write_irpa(tmp_path / "w.irpa", WEIGHTS)
    for weights in ("weights.safetensors", "w.irpa"):
        out = subprocess.run(
            [str(tool), "--device=local-sync", "--module=module-0.vmfb", "--function=weight",
             f"--parameters=model={weights}"],
            cwd=tmp_path, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert "5xf32=0.5 1 -2 3 4" in out.stdout, out.stderr


# -- weight files ---------------------------------------------------------------------------------


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
