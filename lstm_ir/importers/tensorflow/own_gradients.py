"""Gradients that stand in place of an op's own: of `tf.custom_gradient`, and of `gradient_override_map`.

A file names them, and may have functions for them that read what other functions computed on the way. One is known:
that of `tf.nn.silu`, by its function, which has to stand in the file as TensorFlow writes it. Of all others results are
right, and a gradient is refused where it would be one of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.tensorflow.bodies import Body, FunctionNode, Ref, text_attr
from lstm_ir.importers.tensorflow.reading import Source
from lstm_ir.importers.tensorflow.table import TABLE, place
from lstm_ir.importers.tensorflow.tensors import read_tensor
from lstm_ir.ir.graph import Value
from lstm_ir.ops.primitive.custom_gradient import unknown_gradient

_NAME = "_gradient_op_type"
_MOST = 64  # nodes of a formula that is looked at
_WORDS = {"Mul": "*", "AddV2": "+", "Add": "+", "Sub": "-", "Sigmoid": "sigmoid", "Square": "square", "Sum": "sum"}
Places = Mapping[tuple[str, int], str]  # by node and number of a result what a formula calls it


def marked(node: FunctionNode, results: list[Any], body: Body, source: Source) -> list[Any]:
    """The results of a node; those whose gradient the file replaces refuse to be differentiated."""
    if _NAME not in node.attrs or _is_silu(node, results, body, source):
        return results
    why = (
        f"{node.name} ({node.op}) has a gradient of its own in TensorFlow, {text_attr(node, _NAME)}, which is not read"
    )
    return [unknown_gradient(v, why) if isinstance(v, Value) else v for v in results]


def _is_silu(node: FunctionNode, results: list[Any], body: Body, source: Source) -> bool:
    """Whether it gives x * sigmoid(b * x), x, b, and its gradient in the file is the derivative of that."""
    own = source.gradients.get(text_attr(node, _NAME))
    gradient = None if own is None else source.function(own.function)
    if own is None or gradient is None or len(node.inputs) != 3 or len(results) != 3:
        return False
    y, x, b = node.inputs
    names = {_at(body, x): "x", _at(body, b): "b"}
    if len(names) != 2 or _formula(body, y, names) != _SILU:
        return False
    arguments = list(gradient.arguments)
    if len(arguments) != 3 + len(own.bound):  # the gradients of the three results, and what it reads
        return False
    inside: dict[tuple[str, int], str] = {(arguments[0], 0): "dy"}
    for argument, (function, result) in zip(arguments[3:], own.bound, strict=True):
        name, _, index = result.rpartition(":")
        if function != body.name or not index.isdecimal() or (name, int(index)) not in names:
            return False
        inside[argument, 0] = names[name, int(index)]
    found = [_formula(gradient, r, inside) for r in gradient.results]
    scalar = isinstance(results[2], Value) and not results[2].rank  # TensorFlow sums over all elements
    return found[:1] == [_OF_X] and (found[1:] == [_OF_B] and scalar)


def _at(body: Body, ref: Ref) -> tuple[str, int]:
    """Which result of which node, whether a graph or a function writes it."""
    node = body.nodes.get(ref.node)
    return ref.node, ref.index if node is None else place(TABLE.get(node.op), ref.output, ref.index)


def _formula(body: Body, ref: Ref, names: Places) -> str:
    """A result in words, factors and terms in one order whichever way they were written; "?" for what has others."""
    left = _MOST

    def of(r: Ref) -> str:
        nonlocal left
        left -= 1
        if _at(body, r) in names:
            return names[_at(body, r)]
        node = body.nodes.get(r.node)
        if node is None or left < 0:
            return "?"
        if node.op == "Identity" and len(node.inputs) == 1:
            return of(node.inputs[0])
        if node.op == "Const" and "value" in node.attrs:
            return _number(node)
        if node.op not in _WORDS or _NAME in node.attrs:
            return "?"
        parts = [of(i) for i in (node.inputs[:1] if node.op == "Sum" else node.inputs)]
        return _joined(_WORDS[node.op], *parts)

    return of(ref)


def _number(node: FunctionNode) -> str:
    try:
        array = read_tensor(node.attrs["value"].tensor).array
    except NodeRefusedError:
        return "?"
    return f"{float(array.item()):.17g}" if array.size == 1 else "?"


def _joined(word: str, *parts: str) -> str:
    if "?" in parts:
        return "?"
    return f"({word} {' '.join(parts if word == '-' else sorted(parts))})"


def _product(*parts: str) -> str:
    """Factors in the order in which TensorFlow multiplies."""
    first, *rest = parts
    for part in rest:
        first = _joined("*", first, part)
    return first


_INNER = _joined("sigmoid", _product("b", "x"))
_BENT = _joined("-", "1", _INNER)
_SILU = _product("x", _INNER)
_OF_X = _product("dy", _product(_INNER, _joined("+", "1", _product(_product("b", "x"), _BENT))))
_OF_B = _joined("sum", _product("dy", _joined("square", "x"), _INNER, _BENT))
