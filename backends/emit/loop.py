"""A scan node taken apart, as every way of lowering it reads it."""

from __future__ import annotations

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node
from lstm_ir.ir.types import TensorType

CHUNK = 32  # rows that the inner loop fills before the outer one stores them


class Loop:
    """Body, sizes and directions of one scan."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.body: Graph = node.attrs["body"]
        self.length: Dim = node.attrs["length"]
        self.carries = _types(node, "init")
        self.scanned = _types(node, "xs")
        self.stacked = node.types[len(self.carries) :]
        flags = node.attrs["reverse"]
        self.x_reverse, self.y_reverse = flags[: len(self.scanned)], flags[len(self.scanned) :]


def _types(node: Node, operand: str) -> tuple[TensorType, ...]:
    given = node.arg(operand)
    return tuple(v.type for v in given) if isinstance(given, tuple) else ()
