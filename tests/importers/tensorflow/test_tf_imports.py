"""`li.from_tf` beside TensorFlow in one process: imported before, after, or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from device import need

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tensorflow")]

WRITE = """
import sys, numpy as np, tensorflow as tf
v1 = tf.compat.v1
with v1.Graph().as_default() as g:
    x = v1.placeholder(tf.float32, [None, 3], name="x")
    tf.tanh(tf.matmul(x, tf.constant(np.arange(6, dtype="f4").reshape(3, 2) / 8)), name="y")
open(sys.argv[1], "wb").write(g.as_graph_def().SerializeToString())
"""
READ = """
import sys, numpy as np
{before}
import lstm_ir as li
got = li.interpret(li.from_tf(sys.argv[1], outputs=["y"]), x=np.array([[1, 2, 3]], np.float32))["y"]
{after}
if {tensorflow}:
    g = tf.compat.v1.GraphDef.FromString(open(sys.argv[1], "rb").read())
    with tf.compat.v1.Graph().as_default() as graph:
        tf.import_graph_def(g, name="")
    with tf.compat.v1.Session(graph=graph) as s:
        assert np.allclose(s.run("y:0", {{"x:0": np.array([[1, 2, 3]], np.float32)}}), got, atol=1e-6)
    got = li.interpret(li.from_tf(sys.argv[1], outputs=["y"]), x=np.array([[1, 2, 3]], np.float32))["y"]
else:
    assert "tensorflow" not in sys.modules
print(*got[0])
"""


def _ran(text: str, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text, str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("tensorflow")
    found = tmp_path_factory.mktemp("tf") / "g.pb"
    _ran(WRITE, found)
    return found


@pytest.mark.parametrize("when", ["before", "after", "never"])
def test_descriptors_do_not_meet(when: str, path: Path) -> None:
    words = {"before": "", "after": ""} | ({when: "import tensorflow as tf"} if when != "never" else {})
    out = _ran(READ.format(**{k: words[k] for k in ("before", "after")}, tensorflow=when != "never"), path)
    want = np.tanh(np.array([[1, 2, 3]], np.float32) @ (np.arange(6, dtype="f4").reshape(3, 2) / 8))
    assert np.allclose([float(n) for n in out.split()], want, atol=1e-6)
