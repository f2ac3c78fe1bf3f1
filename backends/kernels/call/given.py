"""Values that a call brings, apart from those that a module has from its load on."""

from __future__ import annotations

from iree.compiler import ir


def given(v: ir.Value) -> bool:
    """Whether a call brings it, or what it is made of; else IREE computes it when it loads the module."""
    todo, seen = [v], set()
    while todo:
        owner = todo.pop().owner
        if isinstance(owner, ir.Block):
            return True
        if owner not in seen:
            seen.add(owner)
            todo += owner.operands
    return False
