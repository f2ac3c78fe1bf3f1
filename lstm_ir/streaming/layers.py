"""Recurrences over time: their state goes from call to call. A running sum is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lstm_ir.ir.loop import Loop
from lstm_ir.streaming.facts import Fact, Fixed, Latest, Timed, Unknown
from lstm_ir.streaming.findings import LoopState, RunningSum
from lstm_ir.streaming.rule import CutError, RuleNode, rule
from lstm_ir.streaming.start import advice, start_of

STATES = ("h0", "c0")


@rule("lstm", "gru", "rnn")
def recurrent(s: RuleNode) -> Sequence[Fact]:
    """Time is the axis of the layer's steps, or of its sequences."""
    f = s.fact("x")
    others = [o.name for o in s.node.op.operands if o.name not in ("x", *STATES)]
    s.needs_fixed(others)
    if not isinstance(f, Timed):
        raise CutError("its first state changes over time")
    steps = 1 if s.node.attrs["layout"] == "batch" else 0
    if f.axis == 2:
        raise CutError("reads all steps at once, as features")
    if not f.plain and f.axis == steps:
        raise CutError("its steps are time and another axis at once")
    return _over_time(s, f) if f.axis == steps else _over_rows(s, f)


def _over_time(s: RuleNode, f: Timed) -> list[Fact]:
    a = s.node.attrs
    if a["direction"] != "forward":
        s.refuse(f"is {a['direction']}: it starts at the last step")
    for name in ("lengths", "count"):
        if s.node.arg(name) is not None:
            s.refuse(f"has {name} of whole sequences")
    if f.more:
        s.refuse("gets rows that stand for no frame of the call")
    starts = {o.name: _start(s, s.node.arg(o.name)) for o in s.node.op.operands if o.name in STATES}
    s.keep(LoopState(starts))
    y = Timed(f.axis, f.rate, 0, f.look)
    return [y if name not in ("h_n", "c_n") else Latest() for name in s.node.by_name]


def _over_rows(s: RuleNode, f: Timed) -> list[Fact]:
    """A layer that runs within every frame, over another axis: frames are its sequences."""
    timed = [f]
    for name in ("lengths", *STATES):
        first = s.fact(name)
        axis = 0 if name == "lengths" else 1
        if isinstance(first, Latest) or (isinstance(first, Fixed) and axis not in first.even):
            raise CutError(f"its operand {name} has a row of its own for every step of a call")
        if isinstance(first, Timed):
            if first.axis != axis:
                raise CutError(f"its operand {name} has its steps on another axis than its sequences")
            timed.append(first.at(f.axis))
    y = s.merged(timed)  # a row is as late as the latest that it is made of
    return [y.at(1) if name in ("h_n", "c_n") else y for name in s.node.by_name]


@rule("scan")
def scan(s: RuleNode) -> Sequence[Fact]:
    """A loop over the frames: its carries go from call to call."""
    loop = Loop(s.node)
    facts = dict(zip(s.node.inputs, s.facts, strict=True))
    if any(isinstance(facts[v], (Latest, Timed)) for v in (*loop.consts, *loop.init)):
        raise CutError("a constant or a first state of the loop changes over time")
    made = s.merged([f for v in loop.xs if isinstance(f := facts[v], Timed)])
    if made.axis != 0 or not made.plain:
        raise CutError("the loop runs over another axis than time")
    s.even([(facts[v], 0) for v in loop.xs])
    inside = [*(d for v in loop.consts for d in v.shape), *(d for v in loop.xs for d in v.shape[1:])]
    if any(map(s.whole.timed, inside)):
        raise CutError("its steps read a value that has a row for every step of a call")
    if any(loop.reverse):
        s.refuse("is reverse: it starts at the last step")
    if loop.count is not None:
        s.refuse("has a count of steps")
    if loop.until:
        s.refuse("ends by what its steps compute")
    if loop.body.users.get(loop.step) or loop.step in loop.body.outputs:
        s.refuse("reads the number of its step, which starts again at every call")
    if any(s.whole.timed(d) for v in loop.init for d in v.shape):
        s.refuse("a carry has a size that depends on the number of frames")
    if made.more:
        s.refuse("gets rows that stand for no frame of the call")
    s.keep(LoopState({f"init{i}": _start(s, v) for i, v in enumerate(loop.init)}))
    y = Timed(0, made.rate, 0, made.look)
    return [*(Latest() for _ in loop.init), *(y for _ in loop.ys)]


@rule("cumsum")
def cumsum(s: RuleNode) -> Sequence[Fact]:
    """The sum so far goes from call to call; sums along another axis keep nothing."""
    f, a = s.only(), s.node.attrs
    if f.axis != a["axis"]:
        return [f]
    if not f.plain:
        raise CutError("sums over the steps and another axis at once")
    if a["reverse"]:
        s.refuse("sums from the last step")
    if f.more:
        s.refuse("gets rows that stand for no frame of the call")
    s.keep(RunningSum(f.axis))
    return [Timed(f.axis, f.rate, 0, f.look)]


def _start(s: RuleNode, first: Any) -> Any:
    """What a state starts as; None where it is absent, which is zero."""
    if first is None or isinstance(s.whole.facts[first], Unknown):
        return None
    found = start_of(first, s.whole.facts[first])
    if isinstance(found, str):
        s.refuse(f"its first state {found}{advice(found)}")
        return None
    return found
