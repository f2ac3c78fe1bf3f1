"""Rows that are joined before all but the last steps: the same graph with the last ones cut off behind the join.

`concat(rows, x[:-k])` is `concat(rows, x)[:-k]`. A call keeps the steps that it cuts off, so the join has to see them.
"""

from __future__ import annotations

from lstm_ir.ir import dims
from lstm_ir.ir.graph import Graph, Node, Value, make_node, map_arg
from lstm_ir.ir.location import at
from lstm_ir.ir.opdef import Trait
from lstm_ir.ops.primitive.window import slice_axis


def cut_behind(graph: Graph) -> Graph:
    """The graph, with such joins rewritten; the graph itself where it has none."""
    env: dict[Value, Value] = {}
    for old in graph.nodes:
        with at(old.loc):
            new = _joined(old, env) if old.op.name == "concatenate" else None
            if new is None and any(v in env for v in old.inputs):
                new = old.with_args(tuple(map_arg(a, env) for a in old.args))
        if new is not None:
            env |= dict(zip(old.values, new.values, strict=True))
    if not env:
        return graph
    outputs = zip(graph.output_names, graph.outputs, strict=True)
    return Graph(graph.name, graph.params, {n: env.get(v, v) for n, v in outputs})


def _joined(old: Node, env: dict[Value, Value]) -> Node | None:
    """The join of whole values, cut behind; None where its last operand is not cut."""
    axis, (*before, last) = old.attrs["dimension"], (env.get(v, v) for v in old.inputs)
    found = _uncut(last, axis)
    if not before or found is None:
        return None
    whole, cut = found
    (joined,) = make_node(old.op, ((*before, whole),), old.attrs, old.loc).values
    return slice_axis(joined, axis, 0, dims.add(joined.shape[axis], -cut)).node


def _uncut(v: Value, axis: int) -> tuple[Value, int] | None:
    """The value with the rows that were cut off at the end of an open axis, and how many they are."""
    n = v.node
    if n.op.name == "slice":
        x, a = n.inputs[0], n.attrs
        low, high, stride = a["start_indices"], a["limit_indices"], a["strides"]
        others = [i for i in range(v.rank) if i != axis]
        cut = dims.add(x.shape[axis], dims.mul(high[axis], -1))
        if any((low[i], high[i]) != (0, x.shape[i]) for i in others) or any(s != 1 for s in stride):
            return None
        if not isinstance(cut, int) or cut <= 0 or low[axis] != 0 or isinstance(x.shape[axis], int):
            return None
        return x, cut
    alone = len(n.inputs) == len(n.values) == 1
    if not alone or not (n.op.name == "transpose" or Trait.elementwise in n.op.traits):
        return None
    found = _uncut(n.inputs[0], n.attrs["permutation"][axis] if n.op.name == "transpose" else axis)
    return None if found is None else (n.with_args((found[0],)).values[0], found[1])
