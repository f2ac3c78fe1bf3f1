"""A node replaced by what its op expands into."""

from __future__ import annotations

from lstm_ir.errors import LstmIrError, message
from lstm_ir.graph import Node, Value, operand_types
from lstm_ir.location import at


def expansion(node: Node, rule: str) -> tuple[Value, ...]:
    """The results of `node`, built by its op's `expand` at the node's line; `rule` is noted in the
    location."""
    expand = node.op.expand
    if expand is None:
        problem = "has no expansion"
        raise LstmIrError(
            message(node.op.name, problem, operand_types(node.op, node.args), node.loc)
        )
    with at(node.loc.through(rule)):
        out = expand(*node.args, **node.attrs)
    if isinstance(out, Value):
        return (out,)
    values: list[Value] = []
    for name, _ in node.results:
        part = out[name]
        values.extend(part if isinstance(part, tuple) else (part,))
    return tuple(values)
