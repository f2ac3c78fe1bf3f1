"""Files that `lstm-ir run -o` and `show --weights-to` write: what they cannot hold is refused before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.files import npz, safetensors
from lstm_ir.cli import group, run

Capture = pytest.CaptureFixture[str]
X = np.arange(6, dtype=np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """g.lir, whose outputs have names of arguments of `np.savez`; half.lir, whose output and weight are bf16."""
    x = li.input("x", (6,))
    outputs = {"file": x + 1.0, "allow_pickle": -x, "a/b": x * 2.0}
    (tmp_path / "g.lir").write_text(str(li.Graph("g", [x], outputs)))
    w = li.weight("w", np.full(6, 0.5, li.DType.bf16.numpy))
    half = li.Graph("half", [x], {"y": li.convert(x, "bf16") + w})
    (tmp_path / "half.lir").write_text(str(half))
    safetensors_file = tmp_path / "w.safetensors"
    with safetensors_file.open("wb") as f:
        safetensors.write(f, {"w": half.weights["w"].node.attrs["value"].array})
    np.save(tmp_path / "x.npy", X)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("how", [["--interpret"], []])
@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_names_of_outputs_are_any(folder: Path, kind: str, how: list[str]) -> None:
    assert group.run(["run", "g.lir", "-i", "x=x.npy", "-o", f"y.{kind}", *how]) == 0
    found = (npz if kind == "npz" else safetensors).read(folder / f"y.{kind}")
    want = {"file": X + 1, "allow_pickle": -X, "a/b": X * 2}
    assert set(found) == set(want)
    for name, a in want.items():
        np.testing.assert_array_equal(found[name], a)
    if kind == "npz":
        with np.load(folder / "y.npz") as other:
            assert set(other.files) == set(want)


def test_bf16_keeps_its_type(folder: Path) -> None:
    given = ["-i", "x=x.npy", "-w", "w.safetensors"]
    assert group.run(["run", "half.lir", *given, "-o", "y.safetensors"]) == 0
    y = safetensors.read(folder / "y.safetensors")["y"]
    assert y.dtype == li.DType.bf16.numpy
    np.testing.assert_array_equal(y.astype(np.float32), X + 0.5)
    for kind in ("safetensors", "irpa"):
        assert group.run(["show", "half.lir", "-w", "w.safetensors", "--weights-to", f"v.{kind}", "-o", "h.lir"]) == 0
    assert safetensors.read(folder / "v.safetensors")["w"].dtype == li.DType.bf16.numpy


@pytest.mark.parametrize(
    "words",
    [
        ["-s", "scheduled", "-t", "quantum", "--weights-to", "v.safetensors"],
        ["-s", "module", "-o", "h.vmfb", "--weights-to", "v.npz"],
        ["-o", "h.lir", "--weights-to", "none/v.safetensors"],
        ["-o", "none/h.lir", "--weights-to", "v.safetensors"],
    ],
    ids=["no target", "bf16 in .npz", "no folder for the weights", "no folder for the text"],
)
def test_a_text_and_its_weights_are_written_together_or_not_at_all(folder: Path, words: list[str]) -> None:
    before = sorted(p.name for p in folder.iterdir())
    assert group.run(["show", "half.lir", "-w", "w.safetensors", *words]) == 1
    assert sorted(p.name for p in folder.iterdir()) == before


HALF = ["half.lir", "-i", "x=x.npy", "-w", "w.safetensors"]
REFUSED: dict[str, tuple[list[str], int, str]] = {
    "bf16 in .npz": (["run", *HALF, "-o", "y.npz"], 1, "y.npz: 'y' is bf16, which .npz and .npy files do not have"),
    "bf16 in .npy": (["run", *HALF, "-o", "y.npy"], 1, "y.npy: 'y' is bf16, which .npz and .npy files do not have"),
    "bf16, interpreted": (["run", *HALF, "-o", "y.npz", "--interpret"], 1, "; .safetensors files do"),
    "no folder": (["run", *HALF, "-o", "none/y.safetensors"], 1, "none/y.safetensors: No such file or directory"),
    "a file for a folder": (["run", *HALF, "-o", "x.npy/y.npz"], 1, "x.npy/y.npz: Not a directory"),
    "several outputs": (["run", "g.lir", "-i", "x=x.npy", "-o", "y.npy"], 2, "3 outputs need a .npz or .safetensors"),
    "unknown kind": (["run", *HALF, "-o", "y.txt"], 2, "arrays are written to .npz, .npy or .safetensors"),
    "unknown entry": (["run", *HALF, "-e", "step"], 1, "no entry is called 'step'; there are main"),
    "bf16 weights": (
        ["show", "half.lir", "-w", "w.safetensors", "--weights-to", "w.npz"], 1,
        "w.npz: 'w' is bf16, which .npz and .npy files do not have; .safetensors files do",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_file_cannot_hold(case: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """Before the graph is compiled."""

    def never(*given: Any, **more: Any) -> Any:
        raise AssertionError("compiled or interpreted")

    monkeypatch.setattr(run, "compile", never)
    monkeypatch.setattr(run, "interpret", never)
    words, code, said = REFUSED[case]
    before = sorted(p.name for p in folder.iterdir())
    assert group.run(words) == code
    assert said in capsys.readouterr().err
    assert sorted(p.name for p in folder.iterdir()) == before


def test_a_package_is_asked_before_it_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert group.run(["compile", "g.lir", "-t", "cpu:host"]) == 0
    capsys.readouterr()
    assert group.run(["run", "g.lirpkg", "-o", "y.npy"]) == 2  # the call would miss its input
    assert "3 outputs need a .npz" in capsys.readouterr().err
