"""How many tensors the dispatches of a module have, for drivers that take few of them."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = "sources"  # of what the compiler writes, beside its module
FLAG = f"--iree-hal-dump-executable-sources-to={FOLDER}"
_LAYOUT = re.compile(r"bindings = \[([^\]]*)\]")


def most_bindings(work: Path) -> int:
    """Of one dispatch of the module that was compiled in `work` with FLAG."""
    texts = (p.read_text(encoding="utf-8", errors="replace") for p in (work / FOLDER).glob("*.mlir"))
    found = (m[1].count("#hal.pipeline.binding<") for t in texts for m in _LAYOUT.finditer(t))
    return max(found, default=0)
