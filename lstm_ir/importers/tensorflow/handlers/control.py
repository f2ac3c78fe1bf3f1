"""Ops that run other nodes: functions, conditions, loops, and the variables that these read and write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.choices import entering
from lstm_ir.importers.complex_numbers import Complex
from lstm_ir.importers.lists import TensorList
from lstm_ir.importers.naming import tensor
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import SizeArray
from lstm_ir.importers.tensorflow.bodies import Ref, function_attr, text_attr
from lstm_ir.importers.tensorflow.branches import known_at_import, sides
from lstm_ir.importers.tensorflow.loops import looped
from lstm_ir.importers.tensorflow.scope import Scope, Site
from lstm_ir.importers.tensorflow.table import taken
from lstm_ir.importers.tensorflow.variable import VARIABLES, Variable, declared
from lstm_ir.importers.truths import truth_of
from lstm_ir.ir.graph import Value

_DECIDED = "a condition that only a call knows, where the branches give lists of two lengths, or tensors of two types"


@taken("NoOp", "Assert", "PrintV2", runs=True)
def nothing(site: Site) -> list[Any]:
    """Nothing: what is checked and printed is passed over."""
    return []


# -- functions


@taken("PartitionedCall", "StatefulPartitionedCall", runs=True)
def call(site: Site) -> list[Any]:
    """The results of a function."""
    return site.walk.call(function_attr(site.node, "f"), site.inputs)


@taken("If", "StatelessIf", runs=True, refused=_DECIDED)
def if_(site: Site) -> list[Any]:
    """The branch that the condition names; both and a choice, where only a call knows it."""
    pred, given = site.inputs[0], site.inputs[1:]
    names = [function_attr(site.node, n) for n in ("else_branch", "then_branch")]
    known = known_at_import(site.walk.knowledge, pred)
    if known is not None:
        return site.walk.call(names[known], given)
    variables, truth = site.walk.variables, truth_of(tensor(pred))
    before = variables.held()

    def branch(name: str, holds: Value) -> list[Any]:
        with variables.read_where(holds):
            return site.walk.call(name, [entering(v, holds) for v in given])

    other, after_other = branch(names[False], li.logical_not(truth)), variables.held()
    variables.hold(before)
    then, after_then = branch(names[True], truth), variables.held()
    if len(other) != len(then):
        raise NodeRefusedError("its branches give different numbers of results")
    variables.choose(truth, after_then, after_other)
    return [_chosen(truth, a, b) for a, b in zip(then, other, strict=True)]


def _chosen(truth: Value, then: Any, other: Any) -> Any:
    if then is other:
        return then
    if isinstance(then, Complex) and isinstance(other, Complex):
        return Complex(_chosen(truth, then.real, other.real), _chosen(truth, then.imag, other.imag))
    if isinstance(then, TensorList) and isinstance(other, TensorList):
        return then.chosen(other, lambda a, b: _chosen(truth, a, b))
    if not (isinstance(then, Value | SizeArray) and isinstance(other, Value | SizeArray)):
        raise NodeRefusedError("its condition is known to a call alone, and its branches give what is no tensor")
    a, b = tensor(then), tensor(other)
    if a.type != b.type:
        raise NodeRefusedError(f"its condition is known to a call alone, and its branches give {a.type} and {b.type}")
    return li.where(truth, a, b)


# -- conditions of TensorFlow 1


@taken("Switch", "RefSwitch", results="output_false output_true", runs=True)
def switch(site: Site) -> list[Any]:
    """The operand, on both ways out: what reads one of them is chosen by the Merge behind."""
    v, pred = site.inputs[0], site.inputs[1]
    if isinstance(v, Variable) or known_at_import(site.walk.knowledge, pred) is not None:
        return [v, v]
    truth = truth_of(tensor(pred))
    return [entering(v, li.logical_not(truth)), entering(v, truth)]


@taken("Merge", "RefMerge", results="output value_index", runs=True, refused=f"{_DECIDED}; more than two ways in")
def merge(site: Site) -> list[Any]:
    """What comes on the way that the condition of the switches names."""
    found = sides(site.scope.body, site.node)
    (pred,) = site.walk.results_of([found.pred], site.scope)
    known = known_at_import(site.walk.knowledge, pred)
    if known is not None:
        (value,) = site.walk.results_of([found.when(known)], site.scope)
        return [value, None]
    then, other = site.walk.results_of([found.when(True), found.when(False)], site.scope)
    if then is not other:  # of two variables, references both, the values that they hold here
        then, other = (site.walk.read(v) if isinstance(v, Variable) and v.reference else v for v in (then, other))
    return [_chosen(truth_of(tensor(pred)), then, other), None]


@taken("LoopCond", runs=True)
def loop_condition(site: Site) -> list[Any]:
    """The operand."""
    return [site.inputs[0]]


# -- loops


@taken("While", "StatelessWhile", runs=True, refused="ends that follow from neither sizes nor a number known before")
def while_(site: Site) -> list[Any]:
    """The variables after the loop."""
    walk = site.walk
    names = [function_attr(site.node, n) for n in ("cond", "body")]
    body = walk.source.function(names[1])
    if body is None:
        raise NodeRefusedError(f"the function {names[1]!r} is not in the file")
    places = [body.arguments.get(body.passed(r).node) for r in body.results]
    if len(places) != len(site.inputs):
        raise NodeRefusedError(f"its body gives {len(places)} results for {len(site.inputs)} variables")
    fixed = [k == p for k, p in enumerate(places)]

    def run(variables: list[Any]) -> tuple[Any, list[Any]]:
        going = walk.call(names[0], variables)
        if len(going) != 1:
            raise NodeRefusedError(f"its condition gives {len(going)} results, not one")
        return going[0], walk.call(names[1], variables)

    return looped(walk.knowledge, site.inputs, fixed, run)


@taken("Exit", "RefExit", runs=True, refused="ends that follow from neither sizes nor a number known before")
def exit_(site: Site) -> list[Any]:
    """A variable of a loop of TensorFlow 1 after the loop; all of them are made at once."""
    walk, body, scope = site.walk, site.scope.body, site.scope
    frame = body.frames.get(site.node.name)
    if frame is None:
        raise NodeRefusedError("it leaves no loop that can be recognised")
    key = f"\0{frame.name}"  # no node has this name
    if key not in scope.results:
        init = walk.results_of([e.inputs[0] for e in frame.starts], scope)
        fixed = [_same(body.passed(n.inputs[0]), frame.switches, k) for k, n in enumerate(frame.nexts)]

        def run(variables: list[Any]) -> tuple[Any, list[Any]]:
            given = {(m.name, 0): v for m, v in zip(frame.merges, variables, strict=True)}
            given |= {(name, side): variables[k] for name, k in frame.switches.items() for side in (0, 1)}
            inner = Scope(body, given, scope, frame.name)
            (going,) = walk.results_of([frame.condition.inputs[0]], inner)
            return going, walk.results_of([n.inputs[0] for n in frame.nexts], inner)

        scope.results[key] = looped(walk.knowledge, init, fixed, run)
    return [scope.results[key][frame.switches[site.node.inputs[0].node]]]


def _same(result: Ref, switches: Any, k: int) -> bool:
    return bool(switches.get(result.node) == k)


@taken("Enter", "RefEnter", runs=True)
def enter(site: Site) -> list[Any]:
    """What stands outside the loop."""
    parent = site.scope.parent
    if parent is None or text_attr(site.node, "frame_name") != site.scope.frame:
        raise NodeRefusedError("it enters a loop that can be recognised from nowhere")
    return site.walk.results_of(site.node.inputs[:1], parent)


# -- variables


@taken(*VARIABLES, runs=True)
def variable(site: Site) -> list[Any]:
    """The variable itself."""
    return [declared(site.node)]


@taken("ReadVariableOp", runs=True)
def read(site: Site) -> list[Any]:
    """What the variable holds."""
    return [site.walk.read_at(_variable(site), site.node, site.scope)]


def _variable(site: Site) -> Variable:
    found = site.inputs[0] if site.inputs else None
    if not isinstance(found, Variable):
        raise NodeRefusedError("operand 0 is no variable")
    return found


def _operand(site: Site) -> Value:
    found: Sequence[Any] = site.inputs
    if len(found) != 2 or not isinstance(found[1], Value | SizeArray):
        raise NodeRefusedError("operand 1 is no tensor")
    return tensor(found[1])


@taken("AssignVariableOp", "Assign", runs=True, refused="variables that a loop writes")
def assign(site: Site) -> list[Any]:
    """The variable holds the operand from here on."""
    site.walk.assign(_variable(site), _operand(site))
    return [site.inputs[0]]


@taken("AssignAddVariableOp", "AssignAdd", runs=True, refused="variables that a loop writes")
def assign_add(site: Site) -> list[Any]:
    """The operand is added to what the variable holds."""
    v = _variable(site)
    site.walk.assign(v, site.walk.read(v) + _operand(site))
    return [v]


@taken("AssignSubVariableOp", "AssignSub", runs=True, refused="variables that a loop writes")
def assign_sub(site: Site) -> list[Any]:
    """The operand is taken from what the variable holds."""
    v = _variable(site)
    site.walk.assign(v, site.walk.read(v) - _operand(site))
    return [v]
