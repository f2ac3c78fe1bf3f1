"""The table of ops in docs/onnx.md, from the importer's own.

`python tests/machine/child.py tests/documents/onnx_document.py` writes it anew.
"""

from __future__ import annotations

import re

from paths import DOCS

from lstm_ir.importers.onnx import handlers
from lstm_ir.importers.onnx.table import TABLE

PAGE = DOCS / "onnx.md"
MARK = re.compile(r"<!-- onnx ops -->\n(?:\|.*\n)*")
assert handlers


def rows() -> str:
    head = "| op | versions | refused |\n|---|---|---|\n"
    lines = (
        f"| {e.domain + '.' if e.domain else ''}{e.name} | {', '.join(map(str, e.versions))} | {e.refused} |\n"
        for _, e in sorted(TABLE.items())
    )
    return head + "".join(lines)


def renewed(page: str) -> str:
    return MARK.sub(lambda _: f"<!-- onnx ops -->\n{rows()}", page)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
