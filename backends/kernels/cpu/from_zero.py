"""Passes that add nothing in the first step: their row is a carry that starts at zero, or is made of such alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from lstm_ir.backends.kernels.body.atoms import WHOLE, Atom, MemorySource
from lstm_ir.backends.kernels.body.plan import KLoop, LoopPlan
from lstm_ir.backends.kernels.text.evaluate import order
from lstm_ir.ir.literals import finite
from lstm_ir.ir.opdef import OPS


def from_zero(plan: LoopPlan, zero: Iterable[MemorySource]) -> frozenset[KLoop]:
    """Those passes; `zero` are the carries that start at zero. 0 times an infinite weight is NaN, and is made."""
    starts, made = set(zero), {t.index: t.atom for t in plan.temps}
    outside = dict(zip(plan.loop.const_params, plan.loop.consts, strict=True))

    def nothing(k: KLoop) -> bool:
        if k.row.source in starts:
            return all(finite(v, outside) for v in {m.value for _, m in k.gates})
        return k.in_words and all(_byte(row, starts, made) == k.offset for row in k.rows)

    return frozenset(k for c in plan.components for s in c.sweeps for k in s.loops if nothing(k))


def _byte(row: Atom, starts: set[MemorySource], made: Mapping[int, Atom]) -> int | None:
    """The byte, without a sign, that every element of a computed row is in the first step; None: it is not known."""

    def needs(a: Atom) -> tuple[Atom, ...]:
        return (made[a.source.index],) if a.source is not None and a.source.kind == "temp" else a.args

    known: dict[Atom, Any] = {}
    for a in order(row, needs):
        below = [known[x] for x in needs(a)]
        known[a] = None if any(v is None for v in below) else _at_start(a, below, starts)
    return None if known[row] is None else int(known[row]) % 256


def _at_start(a: Atom, below: list[Any], starts: set[MemorySource]) -> Any:
    """One element, from those that it is made of."""
    kind = a.dtype.numpy
    if a.op == "load":
        return below[0] if below else kind.type(0) if a.source in starts else None
    if a.op == "splat":
        return kind.type(a.number)
    if a.op == "reduce":
        return None if a.kind == "reduce_sum" and below[0] != 0 else below[0]
    if not below or a.op in (*WHOLE, "pick"):
        return None
    with np.errstate(all="ignore"):
        return kind.type(OPS[a.op].numpy(*below, **({} if a.node is None else a.node.attrs)))
