"""benchmarks/precision.py at small sizes: all runners are compared, and the tables have all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from device import need
from paths import ROOT


@pytest.mark.slow
def test_the_script(tmp_path: Path) -> None:
    need("torch")
    need("onnxruntime")
    need("onnx")
    words = ["--seconds", "0.01", "--size", "24", "--batch", "2", "--steps", "3", "-o", str(tmp_path / "p.json")]
    command = [sys.executable, "-W", "ignore", str(ROOT / "benchmarks" / "precision.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "p.json").read_text())["rows"]
    assert [(r["kind"], r["sizes"]) for r in rows] == [("lstm", [3, 2, 24]), ("gru", [3, 2, 24])]
    ours = {"f32", "bf16", "int8", "int8-dynamic"}
    assert set(rows[0]["ms"]) == ours | {"onnxruntime f32", "onnxruntime int8", "torch int8"}
    assert set(rows[1]["ms"]) == ours | {"onnxruntime f32", "torch int8"}
    assert set(rows[0]["beside ours"]) == {"onnxruntime int8", "torch int8"}
    assert "geometric mean" in done.stdout
