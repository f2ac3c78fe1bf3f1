"""The table of ops in docs/onnx.md is that of the code."""

from __future__ import annotations

import onnx_document


def test_the_table_is_up_to_date() -> None:
    page = onnx_document.PAGE.read_text(encoding="utf-8")
    command = "python tests/machine/child.py tests/documents/onnx_document.py"
    assert page == onnx_document.renewed(page), f"docs/onnx.md is not up to date: {command}"
