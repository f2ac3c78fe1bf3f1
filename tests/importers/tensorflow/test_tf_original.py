"""TensorFlow as an original: which signature, results and checkpoint `lstm-ir import --check` and `verify` run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import tensorflow_models as tm
from child import environment
from device import need
from paths import DOCS
from tensorflow_environment import SETTINGS
from tensorflow_saved_cases import CASES

pytestmark = [pytest.mark.xdist_group("tensorflow"), pytest.mark.one_day("said")]
TF1 = DOCS / "tutorial" / "data" / "tf1"
# `{}` is the models' folder. Values differ from signature to signature, from result to result, and between checkpoints.
COMMANDS = (
    "import {}/two --check --signature double",
    "import {}/two --check --signature half",
    "import {}/two/saved_model.pb --check --signature half",
    "import {}/two --check --signature half --checkpoint {}/two/later",
    "import {}/two --check --result StatefulPartitionedCall:0",
    "import {}/one --check --checkpoint {}/one/later --result y",
    "import {}/graph.pb --check --checkpoint {}/graph --result y",
    "import {}/graph.pb --check --checkpoint {}/graph --result z",
    "import {}/graph.meta --check --checkpoint {}/graph.index --result z",
    "import {}/resources.meta --check --checkpoint {}/resources --result y",
    "import {}/resources.pb --check --checkpoint {}/resources --result y",
    "verify {}/two --signature half --seconds 0 --no-cold",
    f"verify {TF1}/graph.pb --checkpoint {TF1}/model.ckpt-400 --result following --seconds 0 --no-cold",
)
CHILD = """
import json, sys
from lstm_ir.cli import group
for command in json.loads(sys.argv[1]):
    code = group.run(command)
    print("\\0", code, end="\\0", flush=True)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, int]]:
    """By command what it prints and its exit code; all of them in one process, where TensorFlow is alone."""
    need("tensorflow")
    folder = tmp_path_factory.mktemp("saved")
    tm.made(folder, 7, "tensorflow_saved_cases", list(CASES))
    commands = [c.format(*[folder] * 2).split() for c in COMMANDS]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(commands)],
        env=environment() | SETTINGS, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    parts = done.stdout.split("\0")[:-1]
    assert len(parts) == 2 * len(COMMANDS), done.stderr[-3000:]
    return {c: (parts[2 * k], int(parts[2 * k + 1])) for k, c in enumerate(COMMANDS)}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_chosen_is_run(command: str, said: dict[str, tuple[str, int]]) -> None:
    text, code = said[command]
    assert code == 0, text
    assert "by TensorFlow" in text
    assert "equal to" in text
