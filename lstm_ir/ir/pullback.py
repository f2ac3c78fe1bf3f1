"""The chain rule: cotangents carried from results back to operands, node by node.

A node's gradient is its op's own rule or, failing that, the gradient of what the op expands into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import GradientError, message
from lstm_ir.ir.expansion import expansion
from lstm_ir.ir.graph import Graph, Node, Value, map_arg, operand_types, substitute, topological
from lstm_ir.ir.location import at
from lstm_ir.ir.opdef import Op
from lstm_ir.ir.reach import reached

Cts = tuple[Value | None, ...]
Hook = Callable[[Node, Cts], Any]
"""(node, cotangents) -> gradients per operand, or None to leave the node to its rule."""


Remat = tuple[int, ...] | None
"""Steps of the segments that a loop is cut into, those of the segments of these, ...; None: it is not cut."""


@dataclass
class Kept:
    """What loops save for the way back, and `inside`, what the step of a loop that runs again saves while it runs."""

    values: list[Value] = field(default_factory=list)
    inside: list[Kept] = field(default_factory=list)
    lengths: list[Dim] = field(default_factory=list)

    def outside(self, env: Mapping[str, int]) -> int:
        """Bytes that are there from the forward pass on."""
        return sum(dims.evaluate(dims.product(v.shape), env) * v.dtype.bytes for v in self.values)

    def within(self, env: Mapping[str, int]) -> int:
        """Bytes of the loop that takes most while a step of it runs again."""
        return max((k.total(env) for k in self.inside), default=0)

    def total(self, env: Mapping[str, int]) -> int:
        """Bytes that are there at a time."""
        return self.outside(env) + self.within(env)


@dataclass
class Differentiation:
    """What the rules of one differentiation share."""

    remat: Remat = None
    replaced: dict[Value, Value] = field(default_factory=dict)
    wanted: frozenset[Value] | None = None
    saved: Kept = field(default_factory=Kept)

    def twin(self, old: Node, new: Node) -> None:
        """`new` gives everything that `old` does (first its results, in order), and more."""
        self.replaced.update(zip(old.values, new.values, strict=False))
        self.saved.values += new.values[len(old.values) :]

    def wants(self, v: Value | None) -> bool:
        """Whether the gradient of an operand of the present node is asked for."""
        return v is not None and (self.wanted is None or v in self.wanted)

    def resolve(self, graph: Graph) -> Graph:
        """`graph` with every replaced node's twin in its place."""
        return substitute(graph, self.replaced)


_SESSION: ContextVar[Differentiation | None] = ContextVar("lstm_ir_pullback", default=None)


def session() -> Differentiation:
    """The session of the rule that is running; a fresh one outside of any."""
    active = _SESSION.get()
    return Differentiation() if active is None else active


@contextmanager
def opened(new: Differentiation) -> Iterator[Differentiation]:
    """Make `new` the active session."""
    token = _SESSION.set(new)
    try:
        yield new
    finally:
        _SESSION.reset(token)


def pull_back(cts: Mapping[Value, Value], wrt: Sequence[Value], hook: Hook | None = None) -> dict[Value, Value]:
    """Gradients of sum(value * cotangent) for those of `wrt` that it depends on.

    Values of `wrt` are independent: nothing is carried past them. GradientError names an op that
    has no gradient.
    """
    nodes = list(topological([v.node for v in cts]))
    active = reached(nodes, wrt)
    ends = set(wrt)
    total = _Totals(active)
    outer = session()
    for v, seed in cts.items():
        total.arrive(v, seed)
    for n in reversed(nodes):
        given = tuple(None if v in ends else total.of(v) for v in n.values)
        if all(ct is None for ct in given) or not any(v in active for v in n.inputs):
            continue
        wanted = frozenset(v for v in n.inputs if v in active and v.dtype.is_float)
        inner = Differentiation(outer.remat, outer.replaced, wanted, outer.saved)
        with at(n.loc.through("grad")), opened(inner):
            grads = hook(n, given) if hook is not None else None
            if grads is None and n.op.joint_vjp is not None and n.op.joint_vjp.takes(n):
                total.wait(n, only(given))
                continue
            for v, ct in _pairs(n, rule(n, given) if grads is None else grads):
                total.arrive(v, ct)
    found = {v: total.of(v) for v in wrt}
    return {v: ct for v, ct in found.items() if ct is not None}


class _Totals:
    """What has arrived at every value; nodes of an op with a joint gradient wait for one another."""

    def __init__(self, active: set[Value]) -> None:
        self.active = active
        self.sums: dict[Value, Value] = {}
        self.waiting: dict[Value, dict[Op, list[tuple[Node, Value]]]] = {}

    def arrive(self, v: Value, ct: Value | None) -> None:
        """Add a cotangent; None and values that need none are ignored."""
        if ct is not None and v in self.active and v.dtype.is_float:
            self.sums[v] = self.sums[v] + ct if v in self.sums else ct

    def wait(self, node: Node, ct: Value) -> None:
        """Keep the cotangent of a node until all nodes of its op that read its operand are there."""
        self.waiting.setdefault(node.inputs[0], {}).setdefault(node.op, []).append((node, ct))

    def of(self, v: Value) -> Value | None:
        """All that has arrived, once every reader of v has been visited."""
        for op, arrived in self.waiting.pop(v, {}).items():
            assert op.joint_vjp is not None
            whole = op.joint_vjp.vjp(v, arrived)
            parts = [whole] if whole is not None else [rule(n, (ct,))[0] for n, ct in arrived]
            for ct in parts:
                self.arrive(v, ct)
        return self.sums.get(v)


def only(cts: Cts) -> Value:
    """The cotangent of a single result; a rule runs only where one has arrived."""
    (ct,) = cts
    assert ct is not None
    return ct


def rule(node: Node, cts: Cts) -> Any:
    """One gradient per operand, by the op's rule or through its expansion."""
    if node.op.vjp is not None:
        return node.op.vjp(node, cts)
    if node.op.expand is None:
        problem = "has no gradient; what is asked for depends on it"
        raise GradientError(message(node.op.name, problem, _shown(node), node.loc))
    return through(node, expansion(node, "grad"), cts, session().remat)


def through(node: Node, results: Sequence[Value], cts: Cts, remat: Remat = None, hook: Hook | None = None) -> Any:
    """The gradient of `node` by that of `results`, which were built over its operands.

    From then on `results` take the place of the node's own.
    """
    given: dict[Value, Value] = {}
    for v, ct in zip(results, cts, strict=True):
        if ct is not None:
            given[v] = given[v] + ct if v in given else ct
    active = session()
    inputs = [v for v in dict.fromkeys(node.inputs) if active.wants(v)]
    with opened(Differentiation(remat, {}, active.wanted, active.saved)) as local:
        found = pull_back(given, inputs, hook)
    done = resolved([*results, *found.values()], local.replaced)
    active.replaced.update(zip(node.values, done[: len(results)], strict=True))
    left = dict(zip(found, done[len(results) :], strict=True))
    return tuple(  # an operand given twice gets its gradient once
        tuple(left.pop(v, None) for v in a) if isinstance(a, tuple) else None if a is None else left.pop(a, None)
        for a in node.args
    )


def resolved(values: Sequence[Value], new: Mapping[Value, Value]) -> list[Value]:
    """`values` with the keys of `new` replaced; a replacement may read what is replaced."""
    env: dict[Value, Value] = {}

    def over(n: Node) -> None:
        again = n.with_args(tuple(map_arg(a, env) for a in n.args))
        env.update((o, v) for o, v in zip(n.values, again.values, strict=True) if o not in env)

    for n in topological([v.node for v in values]):
        over(n)
        for o in n.values:
            if o in new:
                for m in topological([new[o].node]):
                    over(m)
                env[o] = env[new[o]]
    return [env[v] for v in values]


def _pairs(node: Node, grads: Any) -> Iterator[tuple[Value, Value | None]]:
    for arg, grad in zip(node.args, grads, strict=True):
        if isinstance(arg, tuple):
            yield from zip(arg, (None,) * len(arg) if grad is None else grad, strict=True)
        elif arg is not None:
            yield arg, grad


def _shown(node: Node) -> list[tuple[str, object]]:
    return operand_types(node.op, node.args)
