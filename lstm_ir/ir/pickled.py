"""Graphs and programs as bytes for another process: their text, and the arrays that it names by hash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lstm_ir.ir.data import Data
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.parser import parse
from lstm_ir.ir.printer import named_by_hash
from lstm_ir.ir.program import Program

Array = np.ndarray[Any, Any]
Arrays = tuple[Array, ...]


def reduced(made: Graph | Program) -> tuple[Callable[[str, Arrays], Graph | Program], tuple[str, Arrays]]:
    """What `pickle` keeps."""
    arrays = named_by_hash(Program.of(made)).values()
    return restored, (str(made), tuple(d.array for d in arrays if d.known))


def restored(text: str, arrays: Arrays) -> Graph | Program:
    """What was pickled."""
    return parse(text, {Data.of(a).sha256: a for a in arrays})
