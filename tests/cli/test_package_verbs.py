"""What verbs say of a package: what it holds, and whether its modules compute what its graph means."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from small_packages import members, rezip

import lstm_ir as li
from lstm_ir.backends import bindings
from lstm_ir.backends.files.archive import ModuleFile, read_package, write_package
from lstm_ir.backends.targets import cpus
from lstm_ir.backends.targets.target import Target
from lstm_ir.cli.group import run

RNG = np.random.default_rng(20261125)
W, R = RNG.standard_normal((28, 5), np.float32), RNG.standard_normal((28, 7), np.float32)
Capture = pytest.CaptureFixture[str]
FOREIGN = "cpu:aarch64" if cpus.machine() == "x86_64" else "cpu:x86-64-v2"


def layer(scale: float = 1.0) -> li.Graph:
    x, h0, c0 = li.input("x", ("T", "B", 5)), li.input("h0", (1, "B", 7)), li.input("c0", (1, "B", 7))
    y, h, c = li.lstm(x, li.weight("w", W), li.weight("r", R), h0=h0, c0=c0)
    return li.Graph("layer", [x, h0, c0], {"y": y * scale, "h": h, "c": c})


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = li.stateful(layer(), {"h0": "h", "c0": "c"})
    return li.export(program, tmp_path_factory.mktemp("verbs") / "m.lirpkg", ["cpu:host", FOREIGN], sign_key="k")


def test_contents(package: Path, tmp_path: Path, capsys: Capture) -> None:
    """Sizes are those of the archive's members."""
    assert run(["show", str(package), "--contents"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{package}: layer, ")
    assert lines[0].endswith(", with a signature that was not checked (--key-file checks it)")
    assert lines[1] == "format 4, by lstm-ir 0.1.0 and IREE 3.13.0"
    with zipfile.ZipFile(package) as archive:
        sizes = [f"{archive.getinfo(f'module-{k}.vmfb').file_size / 1024:.1f} KiB" for k in range(2)]
    mine, other = (next(text for text in lines if size in text) for size in sizes)
    assert mine.startswith(str(li.load(package).target))
    assert mine.endswith("runs here, taken where no device is asked for")
    assert other.startswith(FOREIGN)
    assert "does not run here: made for " in other
    assert "entry step(x: f32[T,B,5]) -> (y: f32[T,B,7]); reads h0, c0; writes h0, c0" in lines
    assert f"weights 2, {(W.nbytes + R.nbytes) / 1024:.1f} KiB" in lines
    assert "state h0: f32[1,B,7]" in lines
    assert lines[-1] == f"graph compiled for cpu:host, {FOREIGN}"
    (tmp_path / "key").write_text("k")
    assert run(["show", str(package), "--contents", "--key-file", str(tmp_path / "key")]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(", signed with this key")
    forged = tmp_path / "forged.lirpkg"
    rezip(forged, [*(members(package) | {"manifest.hmac": b"garbage"}).items()])
    assert run(["show", str(forged), "--contents"]) == 0
    assert "a signature that was not checked" in capsys.readouterr().out
    assert run(["show", str(forged), "--contents", "--key-file", str(tmp_path / "key")]) == 1
    assert "not made with this key" in capsys.readouterr().err
    bare = li.export(layer(), tmp_path / "bare.lirpkg", [FOREIGN], graph=False)
    assert run(["show", str(bare), "--contents", "-o", str(tmp_path / "bare.txt")]) == 0
    text = (tmp_path / "bare.txt").read_text()
    assert "not signed" in text
    assert "taken where" not in text
    assert text.splitlines()[-1].startswith("graph none")


def test_contents_for_another_release(package: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(bindings, "version", lambda: "3.14.0")
    assert run(["show", str(package), "--contents"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("made with IREE 3.13.0, the runtime here is 3.14.0; install that release of iree-base-")
    assert sum("does not run here: another IREE" in text for text in lines) == 2


def test_a_package_is_verified_by_its_graph(package: Path, capsys: Capture) -> None:
    (tmp := package.with_name("key")).write_text("k")
    assert run(["verify", str(package), "--try", "T=1,9", "--key-file", str(tmp), "--json"]) == 0
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert found["ok"] is True
    assert [c["sizes"]["T"] for c in found["cases"]] == [1, 9, 1, 9]
    assert {o["name"] for o in found["outputs"]} == {"y", "h", "c"}
    assert f"{package}: its module for {li.load(package).target}" in told.err
    tmp.write_text("other")
    assert run(["verify", str(package), "--key-file", str(tmp)]) == 1
    assert "the signature was not made with this key" in capsys.readouterr().err


def test_a_module_that_computes_something_else_is_found(tmp_path: Path, capsys: Capture) -> None:
    """The module of another graph of the same signature."""
    good = read_package(li.export(layer(), tmp_path / "good.lirpkg", ["cpu:host"]))
    bad = read_package(li.export(layer(1.25), tmp_path / "bad.lirpkg", ["cpu:host"]))
    t = bad.targets[0]
    made = ModuleFile(Target(t.info, (), ()), bad.blobs[t.file], t.work)
    write_package(tmp_path / "m.lirpkg", good.signature, {"cpu": made}, good.weights, graph=good.graph)
    assert run(["verify", str(tmp_path / "m.lirpkg"), "--calls", "1"]) == 1
    out = capsys.readouterr().out
    assert "layer: NOT equal to interpreter" in out
    assert "BEYOND" in out


def test_a_package_of_rounded_weights_says_why_it_differs(tmp_path: Path, capsys: Capture) -> None:
    package = li.export(layer(), tmp_path / "int8.lirpkg", ["cpu:host"], options={"precision": "int8"})
    assert run(["verify", str(package), "--calls", "1"]) == 1
    assert "precision int8 makes differences of its own" in capsys.readouterr().err
    assert run(["verify", str(package), "--calls", "1", "--absolute", "0.1"]) == 0
    assert "precision" not in capsys.readouterr().err


WRONG = {
    "contents of a graph": (["show", "g.lir", "--contents"], 2, "--contents says what a package holds; g.lir is no"),
    "contents at a stage": (
        ["show", "m.lirpkg", "--contents", "-s", "core"],
        2,
        "of the others it takes -o, --key-file",
    ),
    "import": (["import", "m.lirpkg"], 2, "m.lirpkg is a package already: `lstm-ir show m.lirpkg --contents` says"),
    "options of importers": (
        ["verify", "m.lirpkg", "--constant", "a=1"],
        2,
        "is a package, and its constants are chosen",
    ),
    "a text": (["verify", "g.lir"], 2, "g.lir is a graph's text: `lstm-ir compile`, `lstm-ir run` and"),
    "a text to import": (["import", "g.lir"], 2, "g.lir is a graph's text"),
    "a key": (["verify", "g.onnx", "--key-file", "k"], 2, "g.onnx is no package, and has no signature"),
    "none of its modules": (
        ["verify", "m.lirpkg", "-t", "cuda"],
        1,
        "m.lirpkg: no module for device cuda; the package",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_asked_wrongly(package: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, case: str) -> None:
    monkeypatch.chdir(package.parent)
    words, code, text = WRONG[case]
    assert run(words) == code
    assert text in capsys.readouterr().err


def test_a_package_without_its_graph_is_not_verified(tmp_path: Path, capsys: Capture) -> None:
    bare = li.export(layer(), tmp_path / "bare.lirpkg", ["cpu:host"], graph=False)
    assert run(["verify", str(bare)]) == 1
    assert "the package has no graph: its writer left it out" in capsys.readouterr().err
