"""What the gradient of `scan` takes apart: what of a body can leave the loop, and what is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.pullback import rebuilt

CHEAP = frozenset(
    "add subtract multiply negate abs sign maximum minimum clamp select compare and or xor not "
    "convert reshape transpose broadcast_in_dim slice concatenate pad reverse iota constant dim "
    "in_range is_finite bitcast_convert".split()
)
"""Ops that are run again on the way back rather than saved."""


@dataclass(frozen=True)
class Loop:
    """A `scan` node by its parts; `xs_reverse` and `ys_reverse` are its flags."""

    body: Graph
    consts: tuple[Value, ...]
    init: tuple[Value, ...]
    xs: tuple[Value, ...]
    count: Value | None
    length: Dim
    xs_reverse: tuple[bool, ...]
    ys_reverse: tuple[bool, ...]

    @classmethod
    def of(cls, node: Node) -> Loop:
        """The parts of a scan node."""
        consts, init, xs, count = node.args
        assert isinstance(consts, tuple)
        assert isinstance(init, tuple)
        assert isinstance(xs, tuple)
        assert not isinstance(count, tuple)
        flags, n = node.attrs["reverse"], len(xs)
        body, length = node.attrs["body"], node.attrs["length"]
        return cls(body, consts, init, xs, count, length, flags[:n], flags[n:])

    @property
    def step(self) -> Value:
        """The body's step number."""
        return self.body.params[0]

    @property
    def const_params(self) -> tuple[Value, ...]:
        """The body's parameters for the constants."""
        return self.body.params[1 : 1 + len(self.consts)]

    @property
    def carry_params(self) -> tuple[Value, ...]:
        """The body's parameters for the carries."""
        first = 1 + len(self.consts)
        return self.body.params[first : first + len(self.init)]

    @property
    def x_params(self) -> tuple[Value, ...]:
        """The body's parameters for the slices."""
        return self.body.params[1 + len(self.consts) + len(self.init) :]

    @property
    def carries_out(self) -> tuple[Value, ...]:
        """The body's new carries."""
        return self.body.outputs[: len(self.init)]

    @property
    def rows_out(self) -> tuple[Value, ...]:
        """The body's rows."""
        return self.body.outputs[len(self.init) :]


def lifted(loop: Loop) -> Loop:
    """The same loop with what depends on constants alone computed before it.

    Broadcasts stay inside: their gradient is a sum that can be taken after the loop.
    """
    moving = {loop.step, *loop.carry_params, *loop.x_params}
    fixed = set(loop.const_params)
    out: dict[Value, None] = {}
    for n in loop.body.nodes:
        if not n.inputs:
            continue
        if n.op.name == "broadcast_in_dim" or any(
            v in moving or (v not in fixed and v.node.inputs) for v in n.inputs
        ):
            moving.update(n.values)
            _note(n.inputs, fixed, loop, out)
        elif any(v in fixed for v in n.inputs):
            fixed.update(n.values)
        else:
            moving.update(n.values)
    _note(loop.body.outputs, fixed, loop, out)
    if not out:
        return loop
    values = list(out)
    outer = rebuilt(values, dict(zip(loop.const_params, loop.consts, strict=True)))
    name = names_beside(loop.body.params)
    new = [parameter(name(f"lifted{i}"), v.type) for i, v in enumerate(values)]
    results = rebuilt(loop.body.outputs, dict(zip(values, new, strict=True)))
    params = [loop.step, *loop.const_params, *new, *loop.carry_params, *loop.x_params]
    body = Graph(loop.body.name, params, results)
    return Loop(
        body, (*loop.consts, *outer), loop.init, loop.xs, loop.count, loop.length,
        loop.xs_reverse, loop.ys_reverse,
    )  # fmt: skip


def _note(values: Iterable[Value], fixed: set[Value], loop: Loop, out: dict[Value, None]) -> None:
    own = set(loop.const_params)
    out.update((v, None) for v in values if v in fixed and v not in own)


def to_save(
    needed: Iterable[Value], params: Sequence[Value], everything_again: bool
) -> tuple[list[Value], list[Value]]:
    """(parameters, values) from which all `needed` forward values follow by cheap ops alone.

    With `everything_again` no value is saved: the parameters are enough.
    """
    own = set(params)
    seen: set[Value] = set()
    used: dict[Value, None] = {}
    saved: dict[Value, None] = {}
    todo = list(needed)
    while todo:
        v = todo.pop()
        if v in seen:
            continue
        seen.add(v)
        if v in own:
            used[v] = None
        elif v.node.op.name in CHEAP or everything_again or not v.node.inputs:
            todo.extend(v.node.inputs)
        else:
            saved[v] = None
    return [p for p in params if p in used], list(saved)


def names_beside(params: Sequence[Value]) -> Callable[[str], str]:
    """Gives names for further parameters, other than those of `params` and those given before."""
    taken = {p.node.attrs["name"] for p in params}

    def new(base: str) -> str:
        name, n = base, 2
        while name in taken:
            name, n = f"{base}_{n}", n + 1
        taken.add(name)
        return name

    return new
