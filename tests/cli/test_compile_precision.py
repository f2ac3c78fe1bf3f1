"""`lstm-ir compile --precision`: the package computes what `li.compile` with the same word does, and keeps the word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.cli import group

T, B, I, H = 6, 3, 16, 32
WORDS = ("int8", "bf16", "f16", "int8-dynamic")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, li.Graph, Any]:
    """A folder with g.lir and its weights, the graph, and an input."""
    folder = tmp_path_factory.mktemp("precision")
    rng = np.random.default_rng(20261126)
    weights = {n: rng.uniform(-0.5, 0.5, (4 * H, k)).astype("f4") for n, k in (("w_ih", I), ("w_hh", H))}
    x = li.input("x", ("T", "B", I))
    y = li.lstm(x, li.weight("w_ih", weights["w_ih"]), li.weight("w_hh", weights["w_hh"]))[0]
    graph = li.Graph("narrow", [x], {"y": y})
    (folder / "g.lir").write_text(str(graph))
    np.savez(folder / "w.npz", **weights)  # type: ignore[arg-type]
    return folder, graph, rng.standard_normal((T, B, I)).astype("f4")


def call(*words: str | Path) -> int:
    return group.run([str(w) for w in words])


def result(package: Path, x: Any) -> Any:
    with li.load(package) as exe:
        return exe(x=x)["y"]


@pytest.mark.parametrize("word", [w if w in WORDS[:2] else pytest.param(w, marks=pytest.mark.slow) for w in WORDS])
def test_a_package_of_fewer_bits(
    given: tuple[Path, li.Graph, Any], word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, graph, x = given
    package, again = tmp_path / "g.lirpkg", tmp_path / "again.lirpkg"
    words = ("-w", folder / "w.npz", "-t", "cpu:host", "--precision", word, "--explain", "-o", package)
    assert call("compile", folder / "g.lir", *words) == 0
    said = capsys.readouterr()
    assert "precision: changed" in said.out + said.err
    found = result(package, x)
    with li.compile(graph, "cpu:host", options={"precision": word}) as exe:
        np.testing.assert_array_equal(found, exe(x=x)["y"])
    whole = li.interpret(graph, x=x)["y"]
    assert 1e-4 < np.abs(found - whole).max() < 0.1, "rounded, and no more than that"
    assert call("compile", package, "-o", again) == 0
    np.testing.assert_array_equal(result(again, x), found)
    assert call("compile", package, "--precision", "f16" if word == "bf16" else "bf16", "-o", again) == 0
    other = result(again, x)
    assert 1e-5 < np.abs(other - found).max(), "another word than the one that it was made with"


def test_a_word_that_is_none(given: tuple[Path, li.Graph, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("compile", given[0] / "g.lir", "--precision", "int4") == 2
    assert "'int4' is not one of" in capsys.readouterr().err
