"""Places in a user's program, as MLIR keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath

from iree.compiler import ir

from lstm_ir.ir.graph import Node
from lstm_ir.ir.location import Loc


@contextmanager
def location(n: Node) -> Iterator[None]:
    """MLIR ops made inside carry the node's line."""
    with mlir_loc(n.loc, n.op.name):
        yield


def mlir_loc(loc: Loc, op: str) -> ir.Location:
    """loc("op"("model.py":78:0)), or loc("op"("model.onnx:lstm_4")) of a file without lines.

    The file's name alone, so that texts and cache keys are the same everywhere.
    """
    if loc.node:
        return ir.Location.name(op, ir.Location.name(loc.place))
    return ir.Location.name(op, ir.Location.file(PurePath(loc.file).name, loc.line, 0))
