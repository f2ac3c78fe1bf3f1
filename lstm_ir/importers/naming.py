"""Names of a foreign model as names of a graph, and its results as tensors."""

from __future__ import annotations

import re

from lstm_ir.importers.sizes import SizeArray
from lstm_ir.ir.graph import Value


def word(text: str) -> str:
    """The text as a name of a size or a graph."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return found if re.match("[A-Za-z_]", found) else f"_{found}"


def graph_name(text: str | None) -> str:
    """The text as a name of a graph."""
    found = word(text or "model")
    return found if found.isidentifier() else "model"


def tensor(result: Value | SizeArray) -> Value:
    """A result as a tensor."""
    return result.value() if isinstance(result, SizeArray) else result
