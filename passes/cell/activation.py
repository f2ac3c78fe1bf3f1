"""Activations of a cell, found by what they compute: one op, or several that together are one."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.types import DType
from lstm_ir.passes.cell.terms import Terms

ACTS = {"logistic": "sigmoid", "tanh": "tanh"}


def activation(v: Value, terms: Terms) -> tuple[str, Value] | None:
    """The activation's name and what it is applied to; None for anything else."""
    v = terms.peel(v)
    n = v.node
    if n.op.name in ACTS:
        terms.inner.add(n)
        return ACTS[n.op.name], n.inputs[0]
    hard = _hard_sigmoid(v, terms)
    if hard is not None:
        return hard
    if (found := _limit(n)) is not None and found.number == 0 and found.below:
        terms.inner |= found.inner
        return "relu", found.of
    return _written_out_sigmoid(n, terms)


def _written_out_sigmoid(n: Node, terms: Terms) -> tuple[str, Value] | None:
    """1 / (1 + exp(-x))."""
    if n.op.name != "divide" or splat(n.inputs[0]) != 1:
        return None
    below = n.inputs[1].node
    if below.op.name != "add":
        return None
    for a, b in (below.inputs, below.inputs[::-1]):
        if splat(a) == 1 and b.op == "exponential" and b.node.inputs[0].op == "negate":
            negated = b.node.inputs[0].node
            terms.inner |= {n, below, b.node, negated}
            return "sigmoid", negated.inputs[0]
    return None


@dataclass(frozen=True)
class _Line:
    """A value as slope * of + offset; the nodes between are `inner`."""

    of: Value
    slope: float
    offset: float
    inner: frozenset[Node]


def _hard_sigmoid(v: Value, terms: Terms) -> tuple[str, Value] | None:
    """A line that is cut below and above, and any line of that, where it goes from 0 to 1.

    So are clamp(0, a x + b, 1), and min(max(x + 3, 0), 6) / 6.
    """
    outer = _line(v)
    cut = _cut_line(outer.of)
    if cut is None or v.dtype not in ROUNDING:
        return None
    below, above, inside, between = cut
    low, high = sorted(outer.slope * limit + outer.offset for limit in (below, above))
    if low != 0 or abs(high - 1.0) > ROUNDING[v.dtype]:
        return None
    line = _line(inside)
    slope, offset = outer.slope * line.slope, outer.slope * line.offset + outer.offset
    if not (isfinite(slope) and isfinite(offset)):
        return None
    terms.inner |= outer.inner | between | line.inner
    return f"hard_sigmoid({slope!r},{offset!r})", line.of


ROUNDING = {DType.f32: 2.0**-21, DType.f64: 2.0**-50}  # 6 * (1 / 6), each rounded


def _line(v: Value) -> _Line:
    """The value as a line of another one, through products, quotients, sums and differences with numbers."""
    slope, offset = 1.0, 0.0
    inner: set[Node] = set()
    while True:
        step = _number(v.node)
        if step is None:
            return _Line(v, slope, offset, frozenset(inner))
        rest, a, b = step
        inner.add(v.node)
        v, slope, offset = rest, slope * a, slope * b + offset


def _number(n: Node) -> tuple[Value, float, float] | None:
    """A node as a * rest + b."""
    if n.op.name not in ("add", "subtract", "multiply", "divide"):
        return None
    left, right = (splat(v) for v in n.inputs)
    if right is not None and n.op.name == "divide":
        return (n.inputs[0], 1.0 / right, 0.0) if right else None
    if right is not None:
        forms = {"add": (1.0, right), "subtract": (1.0, -right), "multiply": (right, 0.0)}
        return (n.inputs[0], *forms[n.op.name])
    if left is not None and n.op.name != "divide":
        forms = {"add": (1.0, left), "subtract": (-1.0, left), "multiply": (left, 0.0)}
        return (n.inputs[1], *forms[n.op.name])
    return None


def _cut_line(v: Value) -> tuple[float, float, Value, set[Node]] | None:
    """Lower limit, upper limit, what they limit, and the nodes that do."""
    n = v.node
    if n.op.name == "clamp":
        low, high = splat(n.inputs[0]), splat(n.inputs[2])
        return None if low is None or high is None or low > high else (low, high, n.inputs[1], {n})
    first = _limit(n)
    second = None if first is None else _limit(first.of.node)
    if first is None or second is None or first.below == second.below:
        return None
    low, high = (first.number, second.number) if first.below else (second.number, first.number)
    return (low, high, second.of, {*first.inner, *second.inner}) if low <= high else None


@dataclass(frozen=True)
class _Limit:
    """A value that a number limits from below, or from above."""

    number: float
    of: Value
    below: bool
    inner: frozenset[Node]


_ONE_SIDED = {"LE": True, "LT": True, "GE": False, "GT": False}


def _limit(n: Node) -> _Limit | None:
    """maximum or minimum with a number c, or that by a choice: select(x <= c, c, x), select(c >= x, c, x)."""
    if n.op.name in ("maximum", "minimum"):
        for v, limit in (n.inputs, n.inputs[::-1]):
            if (number := splat(limit)) is not None:
                return _Limit(number, v, n.op.name == "maximum", frozenset({n}))
    if n.op.name == "select" and n.inputs[0].op == "compare":
        asked, held, v = n.inputs[0].node, *n.inputs[1:]
        (left, right), below, number = asked.inputs, _ONE_SIDED.get(asked.attrs["direction"]), splat(held)
        if right is v and below is not None:
            left, right, below = right, left, not below
        same = left is v and number is not None and splat(right) == number
        if below is not None and same:
            assert number is not None
            return _Limit(number, v, below, frozenset({n, asked}))
    return None
