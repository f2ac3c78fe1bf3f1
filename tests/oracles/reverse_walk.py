"""The chain rule over the ops' own gradient rules, as short as it can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lstm_ir.ir.expansion import expansion
from lstm_ir.ir.graph import Value, topological


def pull_back(cotangents: Mapping[Value, Value], wrt: Sequence[Value]) -> list[Value | None]:
    """Gradients for `wrt` of sum(<output, cotangent>)."""
    nodes = list(topological([v.node for v in cotangents]))
    active = set(wrt)
    for n in nodes:
        if any(v in active for v in n.inputs):
            active.update(n.values)
    total: dict[Value, Value] = {}

    def arrive(v: Value, ct: Value | None) -> None:
        if ct is not None and v in active:
            assert ct.type == v.type, f"{v.op}: gradient {ct.type} for a value of {v.type}"
            total[v] = total[v] + ct if v in total else ct

    for v, ct in cotangents.items():
        arrive(v, ct)
    for n in reversed(nodes):
        cts = tuple(total.get(v) for v in n.values)
        if not n.inputs or not any(v in active for v in n.inputs) or all(c is None for c in cts):
            continue
        if n.op.vjp is None:  # the same walk over what it expands into
            results = dict(zip(expansion(n, "grad"), cts, strict=True))
            there = {v: ct for v, ct in results.items() if ct is not None}
            for v, g in zip(n.inputs, pull_back(there, n.inputs), strict=True):
                arrive(v, g)
            continue
        grads = n.op.vjp(n, cts)
        assert len(grads) == len(n.args), f"{n.op.name}: {len(grads)} gradients, {len(n.args)} operands"
        for arg, grad in zip(n.args, grads, strict=True):
            if isinstance(arg, tuple):
                for v, g in zip(arg, grad if grad is not None else (None,) * len(arg), strict=True):
                    arrive(v, g)
            elif arg is not None:
                arrive(arg, grad)
    return [total.get(v) for v in wrt]
