"""What a notebook shows of graphs and programs. Pictures are asked by name, since nothing here may depend on them."""

from __future__ import annotations

import importlib

PICTURES = "lstm_ir.view.notebook"


def shown_by(way: str, source: object) -> str | None:
    """The text that the function `way` of the pictures gives."""
    found: str | None = getattr(importlib.import_module(PICTURES), way)(source)
    return found
