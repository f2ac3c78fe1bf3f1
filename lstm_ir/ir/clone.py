"""Values over other operands."""

from __future__ import annotations

from collections.abc import Container, Sequence

from lstm_ir.ir.graph import Node, Value, map_arg, topological


def clone(values: Sequence[Value], env: dict[Value, Value]) -> list[Value]:
    """The values, where what `env` has is replaced wherever it is read; `env` gains every value on the way."""
    for n in needed([v.node for v in values], env):
        new = n.with_args(tuple(map_arg(a, env) for a in n.args))
        for old, made in zip(n.values, new.values, strict=True):
            env.setdefault(old, made)
    return [env[v] for v in values]


def needed(roots: Sequence[Node], env: Container[Value]) -> list[Node]:
    """Nodes that the roots need beyond what `env` gives; inputs first."""
    found: set[Node] = set()
    todo = list(roots)
    while todo:
        n = todo.pop()
        if n in found or all(v in env for v in n.values):
            continue
        found.add(n)
        todo.extend(v.node for v in n.inputs if v not in env)
    return [n for n in topological(roots) if n in found]
