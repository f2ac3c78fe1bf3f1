"""A `scan` node from its body. The op is found by name: its gradient builds loops too."""

from __future__ import annotations

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node, Value, make
from lstm_ir.ir.opdef import OPS
from lstm_ir.ir.types import DType, TensorType

STEP = TensorType((), DType.i32)
"""The type of the step number."""
STOP = TensorType((), DType.i1)
"""The type of the flag that ends a loop with `until`."""


def scan_node(
    body: Graph, consts: tuple[Value, ...], init: tuple[Value, ...], xs: tuple[Value, ...], *,
    length: Dim, reverse: tuple[bool, ...], count: Value | None = None, until: bool = False,
) -> Node:  # fmt: skip
    """The op itself, for passes; users call `li.scan`."""
    return make(OPS["scan"], consts, init, xs, count, length=length, reverse=reverse, until=until, body=body)
