"""What importers need: `.keras` and `.h5` files no Keras, TensorFlow's no TensorFlow; absent libraries are named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from paths import DATA, DOCS
from tensorflow_graph import written

KERAS = DATA / "keras2"
TF1 = DOCS / "tutorial" / "data" / "tf1"
# A name that is None in sys.modules cannot be imported: as if the library were not there.
CHILD = """
import json, sys
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None
import lstm_ir as li
try:
    exec(sys.argv[2])
except Exception as e:
    print(type(e).__name__, e)
"""


def without(names: list[str], code: str) -> str:
    """What code prints in a process where these libraries cannot be imported."""
    command = [sys.executable, "-c", CHILD, json.dumps(names), code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.parametrize("form", ["h5", "keras"])
def test_files_of_keras_need_no_keras(form: str) -> None:
    pytest.importorskip("h5py")
    code = (
        f"import numpy as np; g = li.from_keras({str(KERAS / f'sequential.{form}')!r}); "
        f"z = np.load({str(KERAS / 'sequential.npz')!r}); n = g.input_names[0]; "
        "(y,) = li.interpret(g, {n: z['in/' + n]}).values(); print(float(abs(y - z['out/0']).max()))"
    )
    assert float(without(["keras", "tensorflow", "torch", "tf_keras"], code)) < 2e-6


def test_files_of_tensorflow_need_no_tensorflow(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf.message")
    written(tmp_path / "g.pb", np.ones((3, 5), np.float32))
    code = f"print(*li.from_tf({str(tmp_path / 'g.pb')!r}).output_names)"
    assert without(["keras", "tensorflow", "torch"], code) == "y"
    code = (
        f"at = {str(TF1)!r}; "
        "g = li.from_tf(at + '/graph.pb', checkpoint=at + '/model.ckpt-400', outputs=['following']); "
        "print(len(g.weights))"
    )
    assert without(["keras", "tensorflow", "torch"], code) == "7"


@pytest.mark.parametrize(
    ("names", "code", "said"),
    [
        (["google.protobuf"], "li.from_tf('{}/g.pb')", "ModelError from_tf needs protobuf: pip install 'lstm-ir[tf]'"),
        (["torch"], "li.from_torch(None, ())", "MissingLibraryError from_torch needs torch: pip install torch"),
        (["torch"], "li.to_torch(dict(), None)", "MissingLibraryError to_torch needs torch: pip install torch"),
        (
            ["tensorflow"], "from lstm_ir.importers.tensorflow.reference import TensorFlow as T; T('{}/g.pb')",
            "ModelError to compare with a TensorFlow model needs TensorFlow: pip install tensorflow",
        ),
        (
            ["keras"], f"from lstm_ir.importers.keras.reference import Keras as K; K({str(KERAS / 'sequential.h5')!r})",
            "ModelError to compare with a Keras model needs Keras: pip install keras",
        ),
    ],
    ids=["protobuf", "torch", "to_torch", "tensorflow", "keras"],
)  # fmt: skip
def test_what_is_absent_is_named(names: list[str], code: str, said: str, tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf.message")
    written(tmp_path / "g.pb", np.ones((3, 5), np.float32))
    assert without(names, code.replace("{}", str(tmp_path))) == said


def test_absent_h5py_is_named() -> None:
    """HDF5 is read by a process of its own, which a Python without h5py stands for here."""
    code = (
        "import sys, tempfile, os; from pathlib import Path; import lstm_ir.importers.keras.hdf5 as m; "
        "text = m._CHILD.read_text().replace('import h5py', 'import h5py_that_is_not_here as h5py'); "
        "f = Path(tempfile.mkdtemp()) / 'child.py'; f.write_text(text); m._CHILD = f; "
        f"li.from_keras({str(KERAS / 'sequential.h5')!r})"
    )
    assert without([], code) == "ModelError to read HDF5 needs h5py: pip install 'lstm-ir[keras]'"
