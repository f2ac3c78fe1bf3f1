"""benchmarks/serving.py: requests that failed are in no figure, so a run with any is none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from loaded_file import loaded
from paths import ROOT

GOOD = "    50%    1.50ms\n    99%    2.00ms\nRequests/sec:    100.00\n"


def test_failed_requests_end_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = loaded(ROOT / "benchmarks" / "serving.py")
    said = [GOOD]

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, 0, said[0], "")

    monkeypatch.setattr(script.subprocess, "run", run)
    assert script.load("", tmp_path, 2, 3, 1, 1.0) == (100.0, 1.5, 2.0)
    for failed in ("  Non-2xx or 3xx responses: 7\n", "  Socket errors: connect 0, read 3, write 0, timeout 0\n"):
        said[0] = failed + GOOD
        with pytest.raises(AssertionError, match=failed.split(":")[0].strip()):
            script.load("", tmp_path, 2, 3, 1, 1.0)
