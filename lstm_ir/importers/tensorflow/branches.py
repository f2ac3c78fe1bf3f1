"""Conditions of TensorFlow 1: which condition a Merge waits for, found from the switches before it."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.tensorflow.bodies import MERGE, NEXT, SWITCH, Body, FunctionNode, Ref

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
    if body not in _GUARDS:
        _GUARDS[body] = _guards(body)
    left, right = (_of(body, r, _GUARDS[body]) for r in merge.inputs)
    both = [(p, side) for p, side in left if (p, 1 - side) in right]
    if len(both) != 1:
        raise NodeRefusedError("its ways in do not come from the two sides of one condition")
    ((pred, side),) = both
    a, b = merge.inputs
    node, _, index = pred.rpartition(":")
    return Sides(Ref(node, index=int(index)), *((a, b) if side == 0 else (b, a)))


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
            below = [] if n.op in NEXT else [*n.inputs, *(Ref(c) for c in n.controls)]
            if not ready and name not in open_:
                open_.add(name)
                stack.append((name, True))
                stack += [(r.node, False) for r in below if r.node not in found]
                continue
            if ready:
                ways = [_of(body, r, found) for r in below]
                if n.op in MERGE and len(n.inputs) == 2:
                    found[name] = ways[0] & ways[1]
                else:
                    found[name] = frozenset().union(*ways)
    return found
