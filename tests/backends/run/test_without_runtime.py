"""A process without iree-base-runtime: the package is imported, and what needs the runtime says what to install."""

from __future__ import annotations

from pathlib import Path

import child
import numpy as np
import pytest

import lstm_ir as li

PROGRAM = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "iree":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
import lstm_ir as li

path = sys.argv[1]
try:
    %s
except li.LstmIrError as e:
    print(type(e).__name__, e)
"""


@pytest.mark.parametrize(("call", "library"), [
    ("li.load(path)", "iree-base-runtime"), ("li.load(path, device='local-sync')(x=[1.0])", "iree-base-runtime"),
    ("li.compile(li.source(path), 'vulkan')", "iree-base"),
])  # fmt: skip
def test_what_is_missing_is_named(call: str, library: str, tmp_path: Path) -> None:
    x = li.input("x", (1,))
    path = tmp_path / "m.lirpkg"
    li.export(li.Graph("g", [x], {"y": x * 2.0}), path, targets=["cpu"])
    np.testing.assert_array_equal(li.load(path)(x=np.ones(1, np.float32))["y"], [2])
    said = child.python("-c", PROGRAM % call, path)
    assert f"is not installed: pip install {library}" in said
