"""Gradients of MPSGraph's forward ops by its gradient ops.

Apple's gradient ops have an operand for what arrives at h alone, and give no gradient of the mask.
Where something arrives at c or z, or the mask's gradient is asked for, the op is differentiated
through its expansion, which has them all.
"""

from __future__ import annotations

from typing import Any

from lstm_ir.ir.expansion import expansion
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.opdef import OPS
from lstm_ir.ir.pullback import Cts, session, through

KEPT = {"zState": "z", "cellOutputFwd": "c", "outputFwd": "h"}
"""Operands of the gradient ops that are results of the forward op."""


def by_gradients(node: Node, cts: Cts) -> Any:
    """One gradient per operand, by the op `NAMEGradients` where it can say it."""
    arrived = dict(zip(node.by_name, cts, strict=True))
    active = session()
    elsewhere = any(ct is not None for name, ct in arrived.items() if name != "h")
    mask = node.arg("mask")
    if elsewhere or active.remat is not None or (isinstance(mask, Value) and active.wants(mask)):
        return through(node, expansion(node, "grad"), cts, active.remat)
    attrs = {**node.attrs, "training": True}
    kept = node
    if not node.attrs["training"]:
        kept = make(node.op, *node.args, **attrs)
        active.twin(node, kept)
    given = {o.name: a for o, a in zip(node.op.operands, node.args, strict=True)}
    given |= {operand: kept.result(result) for operand, result in KEPT.items()}
    given["sourceGradient"] = arrived["h"]
    gradients = OPS[f"{node.op.name}Gradients"]
    out = make(gradients, *(given.get(o.name) for o in gradients.operands), **attrs)
    return tuple(out.result(o.name) for o in node.op.operands)
