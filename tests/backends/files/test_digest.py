"""SHA-256 of a package's members: by OpenSSL, or by the interpreter alone."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.files import digest

SIZES = (0, 1, 63, 64, 65, digest.SMALL, digest.SMALL + 1)


@pytest.mark.parametrize("openssl", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_both_ways_give_the_hash(size: int, openssl: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of bytes and of a view of them."""
    data = np.random.default_rng(size).bytes(size)
    wanted = hashlib.sha256(data).hexdigest()
    if not openssl:
        monkeypatch.delitem(sys.modules, "hashlib")
    assert digest.sha256(data) == wanted
    assert digest.sha256(memoryview(data)) == wanted


def test_openssl_hashes_where_the_interpreter_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter may be built without it."""
    monkeypatch.delitem(sys.modules, "hashlib")
    for name in ("_sha2", "_sha256"):
        monkeypatch.setitem(sys.modules, name, None)
    assert digest.sha256(b"abc").startswith("ba7816bf8f01cfea")


def test_a_small_package_is_loaded_without_openssl(tmp_path: Path) -> None:
    x = li.input("x", (2, 3))
    path = tmp_path / "m.lirpkg"
    li.export(li.Graph("g", [x], {"y": x @ li.weight("w", np.eye(3, dtype=np.float32))}), path, targets=["cpu:host"])
    code = (
        f"import sys\nsys.path[:] = {sys.path!r}\nimport numpy, lstm_ir as li\n"
        f"exe = li.load({str(path)!r})\nexe(x=numpy.ones((2, 3), 'f4'))\n"
        "print(sorted({'hashlib', 'hmac', 'ssl'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
