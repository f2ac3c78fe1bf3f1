"""Loops inside of a body whose carries are numbers of a row: a search by halves, an iteration to a fixed point.

    u = -2^31        for b = 31 .. 0:  c = u + 2^b;  u = c if sum(where(key < c, weight, 0)) < limit else u

Carries stay in registers. What turns read of whole rows is memory, or is kept in scratch memory before the loop; what a
turn itself computes is a number, and sums over columns of it. So nobody waits in a turn. An element of a carry is a
number of its own: only those run that a result follows from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from lstm_ir.backends.kernels.body import instead
from lstm_ir.backends.kernels.body.access import Access, ColumnAxis, LoopAxis, RefusedError, RowAxis
from lstm_ir.backends.kernels.body.atoms import WHOLE, Atom, InnerLoop, MemorySource, Temp
from lstm_ir.backends.kernels.body.expressions import COSTLY
from lstm_ir.backends.kernels.body.plan import walk
from lstm_ir.backends.kernels.body.tuned import MAX_AGAIN, MAX_CARRIED
from lstm_ir.ir.clone import clone
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.types import DType

_Element = tuple[int, Access]  # of a carry


class NumberMaker(Protocol):
    """What makes atoms of a body: see `pull`."""

    invariant: set[Value]
    sources: dict[Value, MemorySource | None]
    decided: frozenset[Node]

    def adopt(self, v: Value) -> None:
        """A value that was made anew: what of it does not change."""

    def pull(self, v: Value, access: Access, width: int) -> Atom:
        """The atom at a place of a value."""

    def rebuilt(self, a: Atom, done: dict[Atom, Atom], rule: Callable[[Atom], Atom | None]) -> Atom:
        """An atom in which others take the places of some."""

    def kept(self, a: Atom, width: int) -> Atom | None:
        """What is read of a computed row, where it is one."""

    def temp(self, atom: Atom, width: int) -> Temp:
        """Scratch memory."""

    def temp_load(self, temp: Temp) -> Atom:
        """An element of it."""

    def carried(self, key: Any, dtype: DType, access: Access, loop: LoopAxis) -> Atom:
        """A number that a turn is given."""

    def turns(self, inner: InnerLoop, result: int) -> Atom:
        """A carry after the last turn."""


@dataclass(eq=False)
class _Inner:
    """One such loop: its body over stand-ins for what differs between turns, or between steps of the loop around."""

    loop: Loop
    turns: LoopAxis  # no axis of a value is counted by it
    outputs: list[Value]
    carries: dict[Value, int]
    rows: dict[Value, Value]  # stand-ins for scanned rows
    given: dict[Value, Value]  # for values of the body around
    step: Value
    elements: dict[Atom, _Element] = field(default_factory=dict)  # by what a turn is given


@dataclass(eq=False)
class InnerLoops:
    """Those of one body; each is read by its results, one element of a carry at a time."""

    p: NumberMaker
    _of_node: dict[Node, _Inner] = field(default_factory=dict)
    _of_value: dict[Value, _Inner] = field(default_factory=dict)  # by stand-in
    _made: dict[tuple[Node, _Element], Atom] = field(default_factory=dict)
    _turns: dict[Atom, Atom] = field(default_factory=dict)
    """What a loop finds, by how it is read from scratch memory: a further loop over the row does not wait for it."""

    def result(self, v: Value, access: Access) -> Atom:
        """An element of what a loop gives."""
        n, loop = v.node, Loop(v.node)
        ends = isinstance(loop.length, int) and loop.length > 0 and loop.count is None and not loop.until
        if not ends or any(loop.x_reverse) or v not in loop.finals:
            raise RefusedError("the kernel generator does not have this op", v, instead.of_op("scan"))
        if n not in self._of_node:
            self._of_node[n] = self._read(loop)
        inner, element = self._of_node[n], (n.values.index(v), _numbers(v, access))
        if (n, element) not in self._made:
            self._run(inner, element)
        return self._made[n, element]

    def element(self, v: Value, access: Access, width: int) -> Atom:
        """Of a stand-in."""
        p, inner = self.p, self._of_value[v]
        if v is inner.step:
            return p.carried("turn", v.dtype, (), inner.turns)
        if v in inner.rows:
            return p.pull(inner.rows[v], (inner.turns, *access), width)
        if v in inner.given:
            made = p.pull(inner.given[v], access, width)
            here = p.rebuilt(made, {}, lambda a: self._turns.get(a, p.kept(a, width)))
            return here if not made.cols or _is_cheap(here) else p.temp_load(p.temp(made, width))
        element = inner.carries[v], _numbers(v, access)
        made = p.carried(element, v.dtype, element[1], inner.turns)
        inner.elements[made] = element
        return made

    def _read(self, loop: Loop) -> _Inner:
        p, turns = self.p, LoopAxis(-1 - len(self._of_node), loop.length)
        given: dict[Value, Value] = {}
        env: dict[Value, Value] = {}
        for own, v in zip(loop.const_params, loop.consts, strict=True):
            env[own] = v if v in p.invariant else _stand_in(own)
            if env[own] is not v:
                given[env[own]] = v
        carries = {_stand_in(v): k for k, v in enumerate(loop.carry_params)}
        rows = {_stand_in(own): x for own, x in zip(loop.x_params, loop.xs, strict=True)}
        step = _stand_in(loop.step)
        env |= zip(loop.carry_params, carries, strict=True)
        env |= zip(loop.x_params, rows, strict=True)
        env[loop.step] = step
        here = {*given, *carries, *rows, step}
        p.sources.update((v, MemorySource("inner", 0)) for v in here)
        outputs = clone(loop.body.outputs, env)
        for v in outputs:
            p.adopt(v)
        p.decided |= {env[v].node for m in loop.body.nodes if m in p.decided for v in m.values if v in env}
        inner = _Inner(loop, turns, outputs, carries, rows, given, step)
        self._of_value.update((v, inner) for v in here)
        return inner

    def _run(self, inner: _Inner, element: _Element) -> None:
        """The loop of all elements that one follows from."""
        wanted, nexts = [element], list[Atom]()
        while len(nexts) < len(wanted):
            k, access = wanted[len(nexts)]
            nexts.append(self._number(inner.outputs[k], access))
            read = [inner.elements[a] for a in walk(nexts[-1]) if a in inner.elements]
            wanted += [e for e in dict.fromkeys(read) if e not in wanted]
            if len(wanted) > MAX_CARRIED:
                raise RefusedError("an inner loop of many numbers", inner.outputs[k], instead.of_op("scan"))
        p, turns = self.p, inner.turns
        carried = [p.carried(e, inner.outputs[e[0]].dtype, e[1], turns) for e in wanted]
        starts = [self._number(inner.loop.init[k], access) for k, access in wanted]
        number = p.carried("turn", inner.step.dtype, (), turns)
        made = InnerLoop(turns, tuple(starts), tuple(carried), tuple(nexts), number)
        made.results = tuple(p.turns(made, i) for i in range(len(wanted)))
        for e, result in zip(wanted, made.results, strict=True):
            kept = result if result.in_turns else p.temp_load(p.temp(result, 0))
            self._made.setdefault((inner.loop.node, e), kept)
            self._turns[kept] = result

    def _number(self, v: Value, access: Access) -> Atom:
        made = self.p.pull(v, access, 1)
        if made.cols:
            raise RefusedError("a row in an inner loop", v, instead.of_op("scan"))
        return self.p.temp_load(self.p.temp(made, 0)) if made.has_dot and not made.loops else made


def _numbers(v: Value, access: Access) -> Access:
    """The access of a carry as that of one number; the only column is one."""
    one = [isinstance(at, ColumnAxis) and n == 1 for at, n in zip(access, v.shape, strict=True)]
    access = tuple(0 if single else at for at, single in zip(access, one, strict=True))
    if not all(isinstance(at, (int, RowAxis)) for at in access):
        raise RefusedError("a row in an inner loop", v, instead.of_op("scan"))
    return access


def _is_cheap(a: Atom) -> bool:
    """Whether each turn computes a row's element anew: it costs no more than to read what was kept."""
    ops, todo = 0, [a]
    while todo:
        x = todo.pop()
        if x.cols and x.op not in ("load", "splat"):
            if not x.args or x.op in (*WHOLE, *COSTLY, "pick"):
                return False
            ops += 1
            todo += x.args
    return ops <= MAX_AGAIN


def _stand_in(v: Value) -> Value:
    return parameter("inner", v.type)
