"""A graph in inference: nothing dropped, nothing kept for a gradient."""

from __future__ import annotations

from collections.abc import Sequence

from lstm_ir.ir.graph import Graph, Node, Value, make_node, map_arg
from lstm_ir.ops.nn.dropout import DROPOUT


def inferring(graph: Graph) -> Graph:
    """The graph in which nothing is drawn at random: no dropout, and every op told that training is
    over, which may change the type of what it keeps for a gradient."""
    env: dict[Value, Value] = {}
    for old in graph.nodes:
        node = old.with_args(tuple(map_arg(a, env) for a in old.args)) if env else old
        for o, v in zip(old.values, _inferring(node), strict=True):
            if v is not o:
                env[o] = v
    return graph.replace([env.get(v, v) for v in graph.outputs])


def _inferring(n: Node) -> Sequence[Value]:
    """The results of a node in inference, in its bodies too."""
    if n.op is DROPOUT:
        return n.inputs[:1]
    new: dict[str, object] = {k: inferring(a) for k, a in n.attrs.items() if isinstance(a, Graph)}
    new = {k: a for k, a in new.items() if a is not n.attrs[k]}
    if n.op.training is not None and n.attrs[n.op.training]:
        new[n.op.training] = False
    return make_node(n.op, n.args, {**n.attrs, **new}, n.loc).values if new else n.values
