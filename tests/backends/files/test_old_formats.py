"""Packages that the code of older formats wrote: they run, and say how they are compiled again."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT
from plain_lstm import plain_lstm
from small_packages import rebuild

import lstm_ir as li
from lstm_ir.backends import bindings
from lstm_ir.backends.files.archive import read_package
from lstm_ir.backends.targets import cpus
from lstm_ir.cli.group import run

PACKAGES = ROOT / "tests" / "data" / "packages"
TWO, THREE = PACKAGES / "format-2.lirpkg", PACKAGES / "format-3.lirpkg"
FOUR = PACKAGES / "format-4-iree-3.12.lirpkg"  # momentum of a product [3,2], by iree-base-compiler 3.12.0
X2 = (np.arange(24, dtype=np.float32).reshape(4, 3, 2) - 11) / 7
here = pytest.mark.skipif(cpus.machine() != "x86_64", reason="the modules are for x86-64")


def classified(w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """The last row of the LSTM times w_out, by the equations in f64."""
    return np.asarray(plain_lstm(x, w["w_ih"], w["w_hh"], w["b"])[-1] @ w["w_out"])


@pytest.mark.parametrize(("file", "number"), [(TWO, 2), (THREE, 3)])
def test_they_are_of_that_format(file: Path, number: int) -> None:
    with zipfile.ZipFile(file) as z:
        assert json.loads(z.read("manifest.json"))["format"] == number
    found = read_package(file)
    assert found.manifest.version == number
    assert found.graph is None


@here
def test_format_2_runs() -> None:
    exe = li.load(TWO)
    want = classified(read_package(TWO).weights, X2)
    np.testing.assert_allclose(exe(x=X2)["h"], want, rtol=1e-5, atol=1e-6)


@here
def test_format_3_trains_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    exe = li.load(THREE)
    w, v = np.array([[0.5, -1.25], [2.0, 0.75], [-0.5, 1.5]]), np.zeros((3, 2))
    for _ in range(5):
        x, want = (rng.standard_normal(s).astype(np.float32) for s in ((7, 3), (7, 2)))
        error = x @ w - want
        loss = exe.entries["train"](x=x, want=want)["loss"]
        np.testing.assert_allclose(loss, np.square(error).mean(), rtol=1e-5)
        v = 0.5 * v + 2 / 14 * x.T @ error
        w = w - 0.125 * v
    np.testing.assert_allclose(exe.state["w"], w, rtol=1e-5, atol=1e-6)
    exe.save_state(tmp_path / "s.safetensors")
    again = li.load(THREE)
    again.load_state(tmp_path / "s.safetensors")
    np.testing.assert_array_equal(again.state["w"], exe.state["w"])


@pytest.mark.parametrize(("file", "number"), [(TWO, 2), (THREE, 3)])
def test_without_a_graph_the_command_with_one_is_named(
    file: Path, number: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    want = (
        f"{file}: the package has no graph: format {number} had none. From the graph's text and this package's arrays: "
        f"lstm-ir compile GRAPH.lir --weights {file} -o NEW.lirpkg"
    )
    with pytest.raises(li.PackageError) as e:
        li.source(file)
    assert str(e.value) == want
    assert run(["compile", str(file), "-o", str(tmp_path / "new.lirpkg")]) == 1
    assert capsys.readouterr().err.strip() == f"lstm-ir: {want}"
    assert not list(tmp_path.iterdir())


def test_the_command_that_is_named_makes_a_package_of_the_graphs_text(tmp_path: Path) -> None:
    held = read_package(TWO).weights
    x = li.input("x", ("T", "B", 2))
    _, h, _ = li.lstm(x, *(li.weight(n, held[n]) for n in ("w_ih", "w_hh", "b")))
    graph = li.Graph("old", [x], {"h": h[0] @ li.weight("w_out", held["w_out"])})
    (tmp_path / "old.lir").write_text(str(graph))
    assert "sha256(" in str(graph)
    new = tmp_path / "new.lirpkg"
    assert run(["compile", str(tmp_path / "old.lir"), "--weights", str(TWO), "-t", "cpu:host", "-o", str(new)]) == 0
    np.testing.assert_allclose(li.load(new)(x=X2)["h"], classified(held, X2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("number", [0, 1, 5, 99])
def test_formats_that_are_not_read_are_refused_by_their_number(number: int, tmp_path: Path) -> None:
    file = tmp_path / "m.lirpkg"
    file.write_bytes(THREE.read_bytes())
    rebuild(file, lambda m: m.update(format=number))
    with pytest.raises(li.PackageError, match=rf"format {number}; this version reads 2, 3, 4"):
        li.load(file)


@pytest.mark.parametrize(
    ("number", "said"), [(1, "lstm-ir compile GRAPH.lir --weights"), (5, "A newer lstm-ir reads it")]
)
def test_a_format_that_is_not_read_says_what_to_do(number: int, said: str, tmp_path: Path) -> None:
    file = tmp_path / "m.lirpkg"
    file.write_bytes(THREE.read_bytes())
    rebuild(file, lambda m: m.update(format=number))
    with pytest.raises(li.PackageError, match=said):
        li.load(file)


def test_another_release_of_iree_names_the_command_for_a_package_without_a_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bindings, "version", lambda: "9.1.0")
    with pytest.raises(li.PackageError) as e:
        li.load(THREE)
    assert str(e.value) == (
        f"{THREE}: made with IREE 3.13.0, the runtime here is 9.1.0; install that release of iree-base-runtime. It has "
        f"no graph: where the compiler is, `lstm-ir compile GRAPH.lir --weights {THREE} -o NEW.lirpkg` makes it "
        "again, of the graph's text"
    )


def test_a_package_of_an_older_iree_names_the_command() -> None:
    found = read_package(FOUR)
    assert (found.manifest.version, found.manifest.iree) == (4, "3.12.0")
    with pytest.raises(li.PackageError) as e:
        li.load(FOUR)
    assert str(e.value) == (
        f"{FOUR}: made with IREE 3.12.0, the runtime here is {bindings.version()}; install that release of "
        f"iree-base-runtime. Where the compiler is, `lstm-ir compile {FOUR} -t TARGET -o NEW.lirpkg` makes it "
        "again"
    )


@here
def test_a_package_of_an_older_iree_is_compiled_again(tmp_path: Path) -> None:
    """With what it was made with: the target it names, its weights and its state."""
    new = tmp_path / "new.lirpkg"
    assert run(["compile", str(FOUR), "-o", str(new)]) == 0
    made = read_package(new).manifest
    assert made.iree.split(".")[:2] == bindings.version().split(".")[:2]
    assert [t.info.name for t in made.targets] == ["cpu:x86-64-v2"]
    rng = np.random.default_rng(4)
    with li.load(new) as exe:
        assert set(exe.entries) == {"train"}
        w, v = np.array([[0.7, -0.73], [1.1, 0.11], [-0.52, 0.01]]), np.zeros((3, 2))
        np.testing.assert_allclose(exe.state["w"], w, rtol=1e-6)
        for _ in range(4):
            x, want = (rng.standard_normal(s).astype(np.float32) for s in ((5, 3), (5, 2)))
            error = x @ w - want
            found = exe.entries["train"](x=x, want=want)
            np.testing.assert_allclose(found["loss"], np.square(error).mean(), rtol=1e-5)
            v = 0.5 * v + 2 / 10 * x.T @ error
            w = w - 0.125 * v
        np.testing.assert_allclose(exe.state["w"], w, rtol=1e-5, atol=1e-6)
