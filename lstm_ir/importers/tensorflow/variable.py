"""What flows along the edges of a TensorFlow graph beside tensors and lists of them: variables."""

from __future__ import annotations

from dataclasses import dataclass

from lstm_ir.importers.tensorflow.bodies import FunctionNode, text_attr
from lstm_ir.importers.tensorflow.tensors import shape_of

VARIABLES = ("VariableV2", "Variable", "VarHandleOp")


@dataclass(frozen=True)
class Variable:
    """a variable: the node that declares it, its name, element type and shape as far as they are stated."""

    node: str
    name: str
    dtype: int
    shape: tuple[int | None, ...] | None
    reference: bool = False  # of TensorFlow 1: what reads it reads its value


def declared(node: FunctionNode) -> Variable:
    """The variable that a node declares."""
    dtype, shape = node.attrs["dtype"].type, shape_of(node.attrs["shape"].shape)
    return Variable(node.name, text_attr(node, "shared_name") or node.name, dtype, shape, node.op != "VarHandleOp")
