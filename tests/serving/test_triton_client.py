"""An existing client of the protocol, in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest
from served import served
from served_models import WEIGHTS, I, encoder, stream
from torch_batches import torch_lstm


@pytest.mark.slow
def test_tritonclient(tmp_path: Path, rng: np.random.Generator) -> None:
    """Bytes and JSON, many requests at once, sequences by number and by text, an error."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "tritonclient[http]>=2.50,<3"]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.skip(f"tritonclient cannot be installed: {done.stderr[-300:]}")
    x, lengths = rng.standard_normal((5, 2, I), np.float32), np.array([5, 3], np.int32)
    np.savez(tmp_path / "in.npz", x=x, lengths=lengths)
    script = Path(__file__).parents[1] / "machine" / "triton_client.py"
    with served(encoder(tmp_path), stream(tmp_path), "--max-delay", 0.01) as server:
        words = [python, script, f"127.0.0.1:{server.port}", tmp_path / "in.npz", tmp_path / "out.npz"]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "out.npz", allow_pickle=False)
    masked, whole = torch_lstm(x, WEIGHTS, lengths), torch_lstm(x, WEIGHTS)["y"]
    for name, a in masked.items():
        for binary in (True, False):
            np.testing.assert_allclose(found[f"{name}_{binary}"], a, rtol=0, atol=2e-5)
    for a in (*found["async"], found["sequence_9"], found["sequence_caller"]):
        np.testing.assert_allclose(a, whole, rtol=0, atol=2e-5)
    assert str(found["error"]) == "session '9' is not open"
