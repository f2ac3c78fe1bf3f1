"""benchmarks/neighbours.py: all three parts run, count what they say, and give their tables."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from device import need

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "neighbours.py"


@pytest.mark.slow
def test_all_parts_at_one_point(tmp_path: Path) -> None:
    need("onnxruntime")
    figures, table = tmp_path / "n.json", tmp_path / "n.md"
    words = ["--calls", "20", "--seconds", "0.2", "--rounds", "1", "--long", "320", "--point", "lstm-t20-b1-h64"]
    command = [sys.executable, str(SCRIPT), *words, "-o", str(figures), "--table", str(table)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(figures.read_text())
    assert [f["busy"] for f in found["busy"]] == [0, 2, 4, 6]
    assert [f["processes"] for f in found["processes"]] == [1, 2, 4]
    assert [(f["runner"], f["threads"], f["calls"]) for f in found["long"]] == [
        (who, threads, 320) for who in ("names", "onnxruntime") for threads in (1, 8)
    ]
    for f in found["busy"]:
        assert 0 < f["names"]["median_ms"] <= f["names"]["p95_ms"]
        assert f["names_by_onnxruntime"]["median"] == f["names"]["median_ms"] / f["onnxruntime"]["median_ms"]
    assert table.read_text().count("| lstm-t20-b1-h64 |") == 4 + 3
