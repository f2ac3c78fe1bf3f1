"""A node replaced by what its op expands into."""

from __future__ import annotations

from lstm_ir.ir.errors import LstmIrError, message
from lstm_ir.ir.graph import Arg, Node, Value, make, operand_types
from lstm_ir.ir.location import at, here
from lstm_ir.ir.opdef import OPS, Range


def expansion(node: Node, rule: str) -> tuple[Value, ...]:
    """The results of `node`, built by its op's `expand` at the node's line; `rule` is noted in the
    location."""
    expand = node.op.expand
    if expand is None:
        problem = "has no expansion"
        raise LstmIrError(message(node.op.name, problem, operand_types(node.op, node.args), node.loc))
    with at(node.loc.through(rule)):
        out = expand(*_held(node), **node.attrs)
    if isinstance(out, Value):
        return (out,)
    values: list[Value] = []
    for name, _ in node.results:
        part = out[name]
        values.extend(part if isinstance(part, tuple) else (part,))
    return tuple(values)


def _held(node: Node) -> tuple[Arg, ...]:
    """The operands; what is computed and has a range is held in it, at a place that says for which
    operand of which op. What is given is checked under the op's own name before anything runs."""
    args = list(node.args)
    for r in node.ranges:
        k = node.op.operand_index(r.operand)
        v = args[k]
        if isinstance(v, Value) and v.op not in ("parameter", "constant"):
            with at(here().through(f"{r.operand} of {node.op.name}")):
                args[k] = _in_range(v, r)
    return tuple(args)


def _in_range(v: Value, r: Range) -> Value:
    """v held in the range, unless it is already."""
    if v.op == "in_range" and v.node.attrs == {"low": r.low, "high": r.high}:
        return v
    return make(OPS["in_range"], v, low=r.low, high=r.high).values[0]
