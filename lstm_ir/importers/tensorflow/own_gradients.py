"""Gradients that stand in place of an op's own: of `tf.custom_gradient`, and of `gradient_override_map`.

A file names them, and may have functions for them that read what other functions computed on the way. They are not
read: results are right, and a gradient is refused where it would be one of these.
"""

from __future__ import annotations

from typing import Any

from lstm_ir.importers.tensorflow.bodies import FunctionNode, text_attr
from lstm_ir.ir.graph import Value
from lstm_ir.ops.primitive.custom_gradient import unknown_gradient

_NAME = "_gradient_op_type"


def marked(node: FunctionNode, results: list[Any]) -> list[Any]:
    """The results of a node; those whose gradient the file replaces refuse to be differentiated."""
    if _NAME not in node.attrs or _is_silu(results):
        return results
    why = (
        f"{node.name} ({node.op}) has a gradient of its own in TensorFlow, {text_attr(node, _NAME)}, which is not read"
    )
    return [unknown_gradient(v, why) if isinstance(v, Value) else v for v in results]


def _is_silu(results: list[Any]) -> bool:
    """Whether it is x * sigmoid(b * x), x, ...: `tf.nn.silu`, whose gradient is written by hand and is the same."""
    if len(results) < 2 or not all(isinstance(v, Value) for v in results[:2]):
        return False
    y, x = results[:2]
    factors = y.node.inputs if y.op == "multiply" else ()
    inner = [v.node.inputs[0] for v in factors if v.op == "logistic"]
    scaled = [v is x or (v.op == "multiply" and x in v.node.inputs) for v in inner]
    return x in factors and scaled == [True]
