"""Packages: round trips, which module runs, signatures, and what runs them without the compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from device import need
from handmade import WEIGHTS
from paths import IREE_RUN_MODULE
from small_packages import members, packed, rebuild, rezip, small, written

from lstm_ir.backends.files.parameters import write_irpa
from lstm_ir.backends.run import runtime
from lstm_ir.backends.run.devices import resolve
from lstm_ir.backends.run.package import open_package, read_package, write_package
from lstm_ir.backends.targets import cpus
from lstm_ir.ir.errors import PackageError, TargetError

W = WEIGHTS["enc/w"]
Z = np.zeros((2, 5), np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path)


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


def test_every_module_that_does_not_run_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what this machine is, and what to do."""
    file = tmp_path / "m.lirpkg"
    other = "cpu:aarch64" if cpus.machine() == "x86_64" else "cpu:x86-64-v3"
    write_package(file, small(), {other: packed(other), "vulkan": packed("vulkan")}, WEIGHTS)
    monkeypatch.setattr(runtime, "devices_of", lambda kind: ((), f"there is no {kind} here"))
    with pytest.raises(TargetError) as caught:
        open_package(file)
    said = str(caught.value)
    architecture = cpus.architecture(resolve(other).info.triple)
    assert said.startswith(
        f"{file}: no module runs here: {other}: made for {architecture}, this is {cpus.machine()}; vulkan: there is no "
        f"vulkan here. This machine is {cpus.here()}. It has no graph: "
    )
    with pytest.raises(TargetError, match=f"no module for device cuda; the package has {other}, vulkan: name one of"):
        open_package(file, "cuda")


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
        "rest = ('lstm_ir.ops', 'lstm_ir.ir.graph', 'lstm_ir.api', 'lstm_ir.passes', 'lstm_ir.backends.compile')\n"
        "assert not [m for m in sys.modules if m.startswith(rest)]\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == W.tolist()


def test_weights_run_in_iree_run_module(path: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(path) as z:
        z.extractall(tmp_path)
    write_irpa(tmp_path / "w.irpa", WEIGHTS)
    for weights in ("weights.safetensors", "w.irpa"):
        out = subprocess.run(
            [str(IREE_RUN_MODULE), "--device=local-sync", "--module=module-0.vmfb", "--function=weight",
             f"--parameters=model={weights}"],
            cwd=tmp_path, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert "5xf32=0.5 1 -2 3 4" in out.stdout, out.stderr
