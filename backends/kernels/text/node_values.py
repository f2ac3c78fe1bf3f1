"""Elementwise nodes of a graph in a kernel: the vector of each, operands first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lstm_ir.backends.kernels.body.atoms import Atom
from lstm_ir.backends.kernels.text.elementwise import Ops
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.literals import splat


def computed(
    ops: Ops, nodes: Iterable[Node], known: dict[Value, TextOperand], read: Callable[[Value], TextOperand]
) -> dict[Value, TextOperand]:
    """The values of `nodes` beside those that are known; one that is neither is read, or a literal number."""
    for n in nodes:
        args = [known[v] if v in known else _given(ops, v, read) for v in n.inputs]
        known[n.values[0]] = ops.emit(_atom(n), args, True)
    return known


def _given(ops: Ops, v: Value, read: Callable[[Value], TextOperand]) -> TextOperand:
    number = splat(v)
    return read(v) if number is None else ops.t.number(number, v.dtype, True)


def _atom(n: Node) -> Atom:
    return Atom(n.op.name, n.types[0].dtype, tuple(Atom("load", v.dtype) for v in n.inputs), node=n)
