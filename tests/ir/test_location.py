"""Lines of the user's program in errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import child
import pytest

import lstm_ir as li

SCRIPT = "import lstm_ir as li\nx = li.input('x', (3, 4))\nli.sum(x, 5)\n"


@pytest.mark.parametrize("way", ["file", "pipe", "argument"])
def test_the_line_of_the_users_program(way: str, tmp_path: Path) -> None:
    """Of a file, and of what is typed at a prompt or read from a pipe."""
    path = tmp_path / "model.py"
    path.write_text(SCRIPT)
    words: dict[str, list[str]] = {"file": [str(path)], "pipe": [], "argument": ["-c", SCRIPT]}
    place = {"file": "model.py", "pipe": "<stdin>", "argument": "<string>"}[way]
    done = subprocess.run(
        [sys.executable, *words[way]], input=SCRIPT, capture_output=True, text=True, check=False,
        env=child.environment(), timeout=60,
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == f"  at {place}:3"


def test_code_that_was_made_is_passed_over() -> None:
    """Of code that a library wrote and ran, the line that called it."""
    names = {"__name__": "made", "li": li}
    exec("def cell(x):\n    return li.sum(x, 5)\n", names)
    with pytest.raises(li.IRError) as e:
        names["cell"](li.input("x", (3, 4)))  # type: ignore[operator]
    assert "at test_location.py:" in str(e.value)
