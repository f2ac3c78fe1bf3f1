"""A small GraphDef, made without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def written(path: Path, w: Any, more: Callable[[Any], None] | None = None) -> None:
    """y = tanh(x @ w), and what `more` adds to the message."""
    from lstm_ir.importers.tensorflow.messages import message

    graph = message("GraphDef")
    x = graph.node.add(name="x", op="Placeholder")
    x.attr["dtype"].type = 1
    x.attr["shape"].shape.dim.add(size=-1)
    x.attr["shape"].shape.dim.add(size=3)
    held = graph.node.add(name="w", op="Const")
    held.attr["dtype"].type = 1
    tensor = held.attr["value"].tensor
    tensor.dtype, tensor.tensor_content = 1, w.tobytes()
    for d in w.shape:
        tensor.tensor_shape.dim.add(size=d)
    product = graph.node.add(name="xw", op="MatMul", input=["x", "w"])
    result = graph.node.add(name="y", op="Tanh", input=["xw"])
    for n in (product, result):
        n.attr["T"].type = 1
    if more is not None:
        more(graph)
    path.write_bytes(graph.SerializeToString())
