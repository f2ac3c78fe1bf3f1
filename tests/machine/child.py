"""Processes of their own, where the files of tests/ import one another by bare names.

As a script it is one: `python tests/machine/child.py tests/oracles/make_vectors.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from paths import ROOT, rooms


def environment() -> dict[str, str]:
    """This process's, where `import lstm_ir` and the bare names of the tests' files work."""
    given = filter(None, [os.environ.get("PYTHONPATH")])
    path = os.pathsep.join([str(ROOT), *map(str, rooms()), *given])
    return {**os.environ, "PYTHONPATH": path}


def python(*words: object, timeout: int = 300, silent: bool = False) -> str:
    """What Python prints with these words; `silent` if it must write nothing to stderr."""
    done = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, timeout=timeout,
        check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr[-2000:]}"
    assert not silent or done.stderr == ""
    return done.stdout


def script(name: str, *words: object, timeout: int = 300, silent: bool = False) -> str:
    """What a script of this folder prints."""
    return python(Path(__file__).with_name(name), *words, timeout=timeout, silent=silent)


if __name__ == "__main__":
    sys.exit(subprocess.run([sys.executable, *sys.argv[1:]], env=environment()).returncode)
