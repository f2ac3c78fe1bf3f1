"""docs/extending.md is a program: its blocks run in order, in a process of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from paths import DOCS

PAGE = (DOCS / "extending.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)


def test_the_blocks_run_outside_the_tree(tmp_path: Path) -> None:
    """What they register would stay in this process."""
    file = tmp_path / "mine.py"
    file.write_text("\n".join(BLOCKS), encoding="utf-8")
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "softsign.lirpkg").is_file()


def test_every_kind_of_extension_has_steps_and_an_example() -> None:
    titles = re.findall(r"^## (.*)$", PAGE, re.M)
    kinds = ["op", "builder", "activation", "optimizer", "lowering rule", "pass", "target", "ONNX op"]
    kinds += ["op of PyTorch or TensorFlow, a layer of Keras", "importer"]
    assert titles == [f"An {k}" if k[0] in "aioO" else f"A {k}" for k in kinds]
    for title, text in zip(titles, re.split(r"^## .*$", PAGE, flags=re.M)[1:], strict=True):
        assert re.search(r"^1\. ", text, re.M), title
        assert text.count("```python\n") == 1, title
