"""A build of IREE's runtime, against which programs in C are compiled: made outside the tests, as docs/c.md says.

LSTM_IR_IREE_BUILD=FOLDER pytest -n 0 tests/documents/test_c_example.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from paths import EXAMPLES

CONFIG = Path("lib", "cmake", "IREE")
STRICT = "-Wall -Wextra -pedantic -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"


def look() -> tuple[bool, str]:
    """Whether it can be used, and its folder or why not."""
    named = os.environ.get("LSTM_IR_IREE_BUILD")
    if not named:
        return False, "LSTM_IR_IREE_BUILD names no build of IREE's runtime"
    if not (Path(named) / CONFIG / "IREERuntimeConfig.cmake").is_file():
        return False, f"{named} (LSTM_IR_IREE_BUILD) is no build of IREE's runtime"
    if shutil.which("cmake") is None:
        return False, "there is no cmake"
    return True, named


def folder() -> Path:
    return Path(os.environ["LSTM_IR_IREE_BUILD"]).absolute()


def run_entry(header: Path, into: Path) -> Path:
    """The example, compiled with this folder's m.h: no warnings, with checks of memory."""
    for words in (
        ["-S", EXAMPLES / "c", "-B", into, f"-DIREERuntime_DIR={folder() / CONFIG}", f"-DHEADER={header}",
         f"-DCMAKE_C_FLAGS={STRICT}"],
        ["--build", into],
    ):  # fmt: skip
        done = subprocess.run(["cmake", *map(str, words)], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return into / "run_entry"
