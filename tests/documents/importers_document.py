"""What the importers take, in their pages, from their own tables.

`python tests/machine/child.py tests/documents/importers_document.py` writes it anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from paths import DOCS

from lstm_ir.importers.keras import handlers as keras_handlers
from lstm_ir.importers.keras.table import LAYERS, OPERATIONS
from lstm_ir.importers.tensorflow import handlers as tensorflow_handlers
from lstm_ir.importers.tensorflow.table import TABLE as TENSORFLOW
from lstm_ir.importers.torch import handlers as torch_handlers
from lstm_ir.importers.torch.table import TABLE as TORCH

assert all((keras_handlers, tensorflow_handlers, torch_handlers))  # importing them registers what is taken
MARK = re.compile(r"<!-- taken: (\w+) -->\n(?:.*?<!-- end -->\n)?", re.S)
PAGES = ("torch", "keras", "tensorflow")


def _names(words: Iterable[str]) -> str:
    return ", ".join(f"`{w}`" for w in sorted(words)) + "."


def _refused(table: Mapping[str, Any]) -> list[str]:
    found = sorted((name, entry.refused) for name, entry in table.items() if entry.refused)
    return ["| | not taken of it |", "|---|---|", *(f"| `{n}` | {text} |" for n, text in found)] if found else []


def taken(page: str) -> str:
    pages: dict[str, list[tuple[str, Mapping[str, Any]]]] = {
        "torch": [("Ops of `torch.ops`", TORCH)],
        "keras": [("Layers", LAYERS), ("Functions of `keras.ops`", OPERATIONS)],
        "tensorflow": [("Ops", TENSORFLOW)],
    }
    parts = []
    for what, table in pages[page]:
        parts += [f"{what}: {_names(table)}", "", *_refused(table), ""]
    return "\n".join(parts).rstrip()


def renewed(text: str) -> str:
    return MARK.sub(lambda m: f"<!-- taken: {m[1]} -->\n\n{taken(m[1])}\n\n<!-- end -->\n", text)


if __name__ == "__main__":
    for word in PAGES:
        path = DOCS / f"{word}.md"
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
