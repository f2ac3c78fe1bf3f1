"""An exported program in ops that the table has: without writes in place, the rest decomposed by PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from lstm_ir.importers.messages import silenced
from lstm_ir.importers.torch import handlers
from lstm_ir.importers.torch.interception import intercepted
from lstm_ir.importers.torch.table import TABLE
from lstm_ir.importers.torch.whole_ops import ATEN

assert handlers.__doc__  # importing them registers every op
_ROUNDS = 3  # of decompositions, which may bring ops that decompose further
NO_GRADIENT = "higher_order.wrap_with_set_grad_enabled"


def functional(ep: Any) -> Any:
    """The program itself where all of its ops are in the table, else one of other ops."""
    for _ in range(_ROUNDS):
        writes, unknown = _wanting(ep)
        if not writes and not unknown:
            return ep
        ep = _decomposed(ep, unknown)
    return ep


def op_name(target: Any) -> str:
    """`aten.add.Tensor`, `higher_order.scan`; the name of a Python function where it is one."""
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    return str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))


def nodes_of(module: Any) -> Iterator[Any]:
    """All nodes of a graph module and of the bodies of its loops and branches."""
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            yield from part.graph.nodes


def _wanting(ep: Any) -> tuple[bool, dict[Any, Any]]:
    """Whether an op writes in place, and the decompositions of ops that the table does not have."""
    table: Any = None
    found: dict[Any, Any] = {}
    writes = False
    for n in nodes_of(ep.graph_module):
        if n.op != "call_function" or not isinstance(n.target, torch._ops.OpOverload):
            continue
        writes = writes or n.target._schema.is_mutable
        if op_name(n.target) in TABLE or n.target._schema.is_mutable or isinstance(n.meta.get("val"), torch.SymInt):
            continue
        table = torch.export.default_decompositions() if table is None else table
        if n.target in table:
            found[n.target] = table[n.target]
    return writes, found


def _decomposed(ep: Any, table: dict[Any, Any]) -> Any:
    """The program run through PyTorch's own rewriting, with the recurrent layers as our ops, which stay whole."""
    kept = [(n, n.target) for n in nodes_of(ep.graph_module) if op_name(n.target) in ATEN]
    for n, target in kept:
        n.target = ATEN[op_name(target)]
    try:
        with silenced("torch"), intercepted():
            return ep.run_decompositions(table)
    finally:
        for n, target in kept:
            n.target = target
