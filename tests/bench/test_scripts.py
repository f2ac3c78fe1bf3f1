"""Scripts of benchmarks/ judge results before they time anything, and keep what they measure."""

from __future__ import annotations

import ast
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from device import need
from paths import ROOT

from lstm_ir.bench.measure import DifferentError
from lstm_ir.cli.files import OutputFile


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """benchmarks/cells.py as a module."""
    need("torch")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    path = list(sys.path)
    yield importlib.import_module("cells")
    sys.path[:] = path


WRITERS = ("cells", "cudnn_rnn", "generation", "neighbours", "onnx_streams", "precision", "tf_block_ops")


@pytest.mark.parametrize("script", WRITERS)
def test_figures_in_no_folder_are_refused_before_anything_is_measured(script: str, tmp_path: Path) -> None:
    tree = ast.parse((ROOT / "benchmarks" / f"{script}.py").read_text(encoding="utf-8"))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "click.option"]
    kinds = {a.value: k.value for n in calls for a in n.args for k in n.keywords
             if isinstance(a, ast.Constant) and k.arg == "type"}  # fmt: skip
    assert "OutputFile" in ast.unparse(kinds["-o"])
    for path_type in (None, Path):
        with pytest.raises(click.BadParameter, match="No such file or directory"):
            OutputFile(path_type).convert(str(tmp_path / "none" / "f.json"), None, None)
    with pytest.raises(click.BadParameter, match="Not a directory"):
        OutputFile().convert(str(Path(__file__) / "f.json"), None, None)
    assert OutputFile(Path).convert(str(tmp_path / "f.json"), None, None) == tmp_path / "f.json"


def test_cells_with_other_results_are_not_timed(cells: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def gives(**arrays: float) -> Any:
        return lambda point: cells.Runner(lambda call: None, lambda out: {n: np.full(2, a) for n, a in arrays.items()})

    def calls(point: Any) -> list[Any]:
        return [None]

    monkeypatch.setattr(cells.Point, "calls", calls)
    point = cells.Point("min_gru", 2, 1, 4, False)
    monkeypatch.setattr(cells, "MAKERS", {"lstm-ir": gives(y=1, z=1), "torch": gives(y=1, z=1 + 1e-6)})
    assert 0 < cells.measure(point, ("torch",), 0.0, 1, 60)["errors"]["torch"] < 1e-5
    for z in (1.1, np.nan):
        monkeypatch.setattr(cells, "MAKERS", {"lstm-ir": gives(y=1, z=1), "torch": gives(y=1, z=z)})
        with pytest.raises(DifferentError, match="min_gru 2,1,4 inference: results differ"):
            cells.measure(point, ("torch",), 0.0, 1, 60)


def test_points_of_earlier_runs_keep_their_versions(
    cells: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    file = tmp_path / "m.json"

    def point(mode: str) -> dict[str, Any]:
        return {"cell": "min_gru", "T": 200, "B": 8, "H": 128, "mode": mode}

    old = {
        "machine": cells.machine(),
        "device": "cpu",
        "versions": {"jax": "1"},
        "points": list(map(point, cells.MODES)),
    }
    file.write_text(json.dumps(old))
    for number in ("2", "3"):
        monkeypatch.setattr(cells, "version", lambda name, number=number: number)
        cells.save(file, "cpu", [point(cells.MODES[1])])
        found = {p["mode"]: p["versions"]["jax"] for p in json.loads(file.read_text())["points"]}
        assert found == {cells.MODES[0]: "1", cells.MODES[1]: number}
    with pytest.raises(click.ClickException, match="is of cpu; this is cuda"):
        cells.save(file, "cuda", [])
