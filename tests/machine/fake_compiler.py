"""Modules that iree-compile takes and refuses, and a script in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from lstm_ir.backends.compile import compiler

ADD = """module @m { func.func @main(%a: tensor<7xf32>) -> tensor<7xf32> {
  %0 = stablehlo.add %a, %a : tensor<7xf32>
  return %0 : tensor<7xf32> } }"""
REFUSED = """module @m { func.func @main(%a: tensor<7xf32>) -> tensor<7xf32> {
  %0 = stablehlo.custom_call @nobody(%a) : (tensor<7xf32>) -> tensor<7xf32> loc("model.py":78:3)
  return %0 : tensor<7xf32> } }"""


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a shell script in the compiler's place."""
    path = tmp_path / "iree-compile"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    monkeypatch.setattr(compiler, "executable", lambda: str(path))
