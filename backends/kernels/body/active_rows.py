"""Rows whose products a step needs: of a batch with lengths, those that have not ended.

A body picks by a number of the row between what products make and what was there before: select(step < length, new,
old). Where the condition says old, nothing reads the sums.
"""

from __future__ import annotations

from typing import NamedTuple

from lstm_ir.backends.kernels.body.atoms import WHOLE, Atom
from lstm_ir.backends.kernels.body.plan import Component, Sweep, below, walk

_GIVEN = ("scan", "value")  # what is there before the loop: members read it without waiting for each other


class Condition(NamedTuple):
    """A boolean of each row, and what it is where products are needed."""

    atom: Atom
    holds: bool


class ActiveRows(NamedTuple):
    """Sweeps of a component whose sums are needed under one condition."""

    condition: Condition
    sweeps: frozenset[Sweep]


def active_rows(c: Component) -> ActiveRows | None:
    """None where sums are always needed."""
    found: dict[Condition, set[Sweep]] = {}
    for s in c.sweeps:
        if s.dots and not s.common:
            for condition in _of_sweep(s):
                found.setdefault(condition, set()).add(s)
    if not found:
        return None
    most = max(found, key=lambda k: len(found[k]))
    return ActiveRows(most, frozenset(found[most]))


def _of_sweep(s: Sweep) -> dict[Condition, None]:
    """Conditions without which no result of the sweep reads a sum."""
    known: dict[Atom, dict[Condition, None] | None] = {}
    found = None
    for r in s.roots:
        found = _both(found, _needed(r.atom, known))
    return {k: None for k in found or () if _of_a_row(k.atom)}


def _of_a_row(a: Atom) -> bool:
    """Whether a number of the row alone decides it, which is there before the loop."""
    if a.cols or not a.rows or a.loops:
        return False
    inside = list(walk(a))
    loads = [x.source for x in inside if x.source is not None]
    return not any(x.op in WHOLE for x in inside) and all(m.kind in _GIVEN for m in loads)


def _needed(a: Atom, known: dict[Atom, dict[Condition, None] | None]) -> dict[Condition, None] | None:
    """Conditions under each of which alone `a` reads a sum; None where it reads none."""
    if a not in known:
        known[a] = _computed(a, known)
    return known[a]


def _computed(a: Atom, known: dict[Atom, dict[Condition, None] | None]) -> dict[Condition, None] | None:
    if a.op == "dot":
        return {}
    inside = [_needed(x, known) for x in below(a)]
    if a.op == "select":
        flag, one, other = inside
        found = other if one is None else one
        if flag is None and found is not None and None in (one, other):
            return {Condition(a.args[0], one is not None): None, **found}
    out = None
    for found in inside:
        out = _both(out, found)
    return out


def _both(one: dict[Condition, None] | None, other: dict[Condition, None] | None) -> dict[Condition, None] | None:
    """What is needed for either is needed under the conditions of both."""
    if one is None or other is None:
        return other if one is None else one
    return {k: None for k in one if k in other}
