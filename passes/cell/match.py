"""The equations of LSTM, GRU and plain RNN cells, found among primitives.

lstm  h' = o * act(c'),  c' = f * c + i * g                           any order of factors and terms
gru   h' = z * h + (1 - z) * n = n + z * (h - n),  n = tanh(.. + r * k) or n = tanh(.. + R (r * h))
      or with z and 1 - z exchanged
rnn   h' = tanh(..) or relu(..)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.literals import splat
from lstm_ir.passes.cell.activation import activation
from lstm_ir.passes.cell.terms import NoCellError, Terms

Pair = tuple[Value, Value]


@dataclass(frozen=True)
class CellMatch:
    """A cell: op, new states, old states where the equations tell them, gates before activation."""

    op: str
    new: tuple[Value, ...]
    old: tuple[Value | None, ...]
    gates: tuple[Value, ...]
    acts: tuple[str, ...]
    terms: Terms
    flip_z: bool = False
    reset: Value | None = None  # r of a GRU, which the terms of n mention

    @property
    def width(self) -> int:
        """H."""
        width = self.new[0].shape[-1] if self.new[0].rank else "none"
        if not isinstance(width, int):
            raise NoCellError("the hidden size is a name, not a number", self.new[0])
        return width


def factors(v: Value, terms: Terms) -> Iterator[Pair]:
    """Both orders of a product."""
    yield from _both(v, "multiply", terms)


def _both(v: Value, op: str, terms: Terms) -> Iterator[Pair]:
    v = terms.peel(v)
    if v.op == op:
        a, b = v.node.inputs
        terms.inner.add(v.node)
        yield a, b
        if a is not b:
            yield b, a


def lstm_cells(h: Value, fixed: Terms, near: list[NoCellError]) -> Iterator[CellMatch]:
    """Ways to read h as o * act(c') with c' = f * c + i * g; `near` gains why almost."""
    for o, outer in factors(h, fixed.fresh()):
        squashed = activation(outer, fixed.fresh())
        if squashed is None:
            continue
        cell = fixed.fresh().peel(squashed[1])
        if cell.op == "add":
            yield from _lstm_over(h, o, outer, cell, fixed, near)


def _lstm_over(
    h: Value, o: Value, outer: Value, cell: Value, fixed: Terms, near: list[NoCellError]
) -> Iterator[CellMatch]:
    for kept, added in _both(cell, "add", fixed.fresh()):
        for f, c in factors(kept, fixed.fresh()):
            for i, g in factors(added, fixed.fresh()):
                found = _lstm(h, (i, f, g, o), outer, cell, kept, added, c, fixed, near)
                if found is not None:
                    yield found


def _lstm(
    h: Value, gates: tuple[Value, ...], outer: Value, cell: Value, retained: Value, added: Value,
    c: Value, fixed: Terms, near: list[NoCellError],
) -> CellMatch | None:  # fmt: skip
    terms = fixed.fresh()
    for v in (h, retained, added):
        terms.inner.add(terms.peel(v).node)
    squashed = (activation(outer, terms) or ("", outer))[0]
    terms.inner.add(cell.node)
    activations = [activation(v, terms) for v in gates]
    names = [a[0] for a in activations if a is not None]
    if len(names) == 3:
        odd = next(v for v, a in zip(gates, activations, strict=True) if a is None)
        if odd.op != "parameter":
            near.append(NoCellError(f"a gate is {odd.op}, not an activation of lstm", odd))
    if len(names) < 4:
        return None
    if not _is_gate(names[0]) and _is_gate(names[2]):  # i * g the other way round is the form with names in order
        return None
    acts = (*names, squashed)
    return CellMatch("lstm", (h, cell), (None, c), tuple(a[1] for a in activations if a is not None), acts, terms)


def _is_gate(activation: str) -> bool:
    """Whether its values go from 0 to 1, as those of a gate do."""
    return activation.partition("(")[0] in ("sigmoid", "hard_sigmoid")


def gru_cells(h: Value, fixed: Terms) -> Iterator[CellMatch]:
    """Ways to read h as a mixture of n and the old h by z."""
    for z, old, n, flip, terms in _mixtures(h, fixed):
        update, squashed = activation(z, terms), activation(n, terms)
        if update is None or squashed is None:
            continue
        yield CellMatch("gru", (h,), (old,), (update[1], squashed[1]), (update[0], squashed[0]), terms, flip)


def _mixtures(h: Value, fixed: Terms) -> Iterator[tuple[Value, Value, Value, bool, Terms]]:
    """(z, old, n, flip_z, terms) with h = z old + (1-z) n, or flipped: (1-z) old + z n."""
    top = fixed.fresh().peel(h)
    for a, b in _both(top, "add", fixed.fresh()):
        for u, p in factors(a, fixed.fresh()):
            for w, q in factors(b, fixed.fresh()):  # u p + (1 - u) q
                if _complement(w, u, fixed):
                    inner = {top.node, _node(a, fixed), _node(b, fixed), _node(w, fixed)}
                    yield u, p, q, False, Terms(fixed.fixed, fixed.matrix, set(inner))
                    yield u, q, p, True, Terms(fixed.fixed, fixed.matrix, set(inner))
            difference = fixed.fresh().peel(p)
            if difference.op == "subtract" and difference.node.inputs[1] is b:  # u (p - b) + b
                inner = {top.node, _node(a, fixed), difference.node}
                yield (u, difference.node.inputs[0], b, False, Terms(fixed.fixed, fixed.matrix, set(inner)))
                yield (u, b, difference.node.inputs[0], True, Terms(fixed.fixed, fixed.matrix, set(inner)))


def _node(v: Value, fixed: Terms) -> Node:
    return fixed.fresh().peel(v).node


def _complement(w: Value, u: Value, fixed: Terms) -> bool:
    w = fixed.fresh().peel(w)
    if w.op != "subtract" or splat(w.node.inputs[0]) != 1:
        return False
    return fixed.fresh().peel(w.node.inputs[1]) is fixed.fresh().peel(u)


def rnn_cells(h: Value, fixed: Terms) -> Iterator[CellMatch]:
    """h as an activation of a sum."""
    terms = fixed.fresh()
    found = activation(h, terms)
    if found is not None:
        yield CellMatch("rnn", (h,), (None,), (found[1],), (found[0],), terms)
