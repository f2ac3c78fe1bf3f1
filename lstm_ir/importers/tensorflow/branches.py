"""Conditions: what is known of them, and of TensorFlow 1's which one a node stands under, found from the switches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from lstm_ir.importers.known import Knowledge
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import SizeArray
from lstm_ir.importers.tensorflow.bodies import MERGE, NEXT, SWITCH, Body, FunctionNode, Ref
from lstm_ir.ir.graph import Value

Guard = tuple[str, int]  # a condition, and which way of it
_GUARDS: WeakKeyDictionary[Body, dict[str, frozenset[Guard]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Sides:
    """The condition, and what a Merge gives where it is false and where it is true."""

    pred: Ref
    false: Ref
    true: Ref

    def when(self, holds: bool) -> Ref:
        """What it gives in this case."""
        return self.true if holds else self.false


def sides(body: Body, merge: FunctionNode) -> Sides:
    """What a Merge chooses between. RefusedError where its ways in come from no pair of switches."""
    if len(merge.inputs) != 2:
        raise NodeRefusedError(f"it has {len(merge.inputs)} ways in, not two")
    guards = _found(body)
    left, right = (_of(body, r, guards) for r in merge.inputs)
    both = [(p, side) for p, side in left if (p, 1 - side) in right]
    if len(both) != 1:
        raise NodeRefusedError("its ways in do not come from the two sides of one condition")
    ((pred, side),) = both
    a, b = merge.inputs
    return Sides(_condition(pred), *((a, b) if side == 0 else (b, a)))


def ways(body: Body, name: str) -> list[tuple[Ref, bool]]:
    """The conditions under which a node runs, each with the truth that it has to have; none for most nodes."""
    return [(_condition(pred), bool(side)) for pred, side in sorted(_found(body).get(name, ()))]


def known_at_import(knowledge: Knowledge, pred: Any) -> bool | None:
    """A condition where it is known at import; None where only a call knows it."""
    if isinstance(pred, SizeArray):
        pred = pred.value()
    if not isinstance(pred, Value) or pred.rank:
        raise NodeRefusedError("its condition is not one number")
    array = knowledge.array(pred)
    return None if array is None else bool(array.item())


def _condition(pred: str) -> Ref:
    node, _, index = pred.rpartition(":")
    return Ref(node, index=int(index))


def _found(body: Body) -> dict[str, frozenset[Guard]]:
    if body not in _GUARDS:
        _GUARDS[body] = _guards(body) if any(n.op in SWITCH for n in body.nodes.values()) else {}
    return _GUARDS[body]


def _of(body: Body, r: Ref, guards: dict[str, frozenset[Guard]]) -> frozenset[Guard]:
    """On which ways of which conditions a result is there."""
    n = body.nodes.get(r.node)
    own = guards.get(r.node, frozenset())
    if n is None or n.op not in SWITCH or len(n.inputs) != 2:
        return own
    pred = body.passed(n.inputs[1])
    decides = body.nodes.get(pred.node)
    if decides is not None and decides.op == "LoopCond":
        return own
    return own | {(f"{pred.node}:{pred.index}", r.index)}


def _guards(body: Body) -> dict[str, frozenset[Guard]]:
    """For every node, each after what it reads; back edges of loops say nothing."""
    found: dict[str, frozenset[Guard]] = {}
    for root in body.nodes:
        stack = [(root, False)]
        open_: set[str] = set()
        while stack:
            name, ready = stack.pop()
            n = body.nodes.get(name)
            if name in found or n is None:
                continue
            below = [] if n.op in NEXT else [r.node for r in n.inputs] + list(n.controls)
            if not ready and name not in open_:
                open_.add(name)
                stack.append((name, True))
                stack += [(b, False) for b in below if b not in found]
                continue
            if ready:
                read = [] if n.op in NEXT else [_of(body, r, found) for r in n.inputs]
                if n.op in MERGE and len(read) == 2:
                    found[name] = read[0] & read[1]
                else:  # a switch that has only to run before says no side
                    found[name] = frozenset().union(*read, *(found.get(c, ()) for c in n.controls if below))
    return found
