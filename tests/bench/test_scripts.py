"""Scripts of benchmarks/ judge results before they time anything, and keep what they measure."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from device import need
from paths import ROOT

from lstm_ir.bench.measure import DifferentError


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """benchmarks/cells.py as a module."""
    need("torch")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    path = list(sys.path)
    yield importlib.import_module("cells")
    sys.path[:] = path


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
