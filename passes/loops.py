"""A scan taken apart and put together again."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node, Value, map_arg, topological
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.scan.node import STEP, scan_node


@dataclass(frozen=True)
class Loop:
    """What a scan node says, by the role of each value."""

    node: Node

    @classmethod
    def of(cls, node: Node) -> Loop | None:
        """The loop that a node is; None for another op."""
        return cls(node) if node.op.name == "scan" else None

    def _list(self, operand: str) -> tuple[Value, ...]:
        got = self.node.arg(operand)
        assert isinstance(got, tuple)
        return got

    @property
    def consts(self) -> tuple[Value, ...]:
        """Read unchanged at every step."""
        return self._list("consts")

    @property
    def init(self) -> tuple[Value, ...]:
        """First carries."""
        return self._list("init")

    @property
    def xs(self) -> tuple[Value, ...]:
        """Scanned operands."""
        return self._list("xs")

    @property
    def count(self) -> Value | None:
        """Steps to run; None: all."""
        got = self.node.arg("count")
        assert not isinstance(got, tuple)
        return got

    @property
    def length(self) -> Dim:
        """Rows of what is scanned and stacked."""
        length: Dim = self.node.attrs["length"]
        return length

    @property
    def body(self) -> Graph:
        """One step."""
        body: Graph = self.node.attrs["body"]
        return body

    @property
    def step(self) -> Value:
        """The body's step number."""
        return self.body.params[0]

    @property
    def const_params(self) -> tuple[Value, ...]:
        """The body's view of `consts`."""
        return self.body.params[1 : 1 + len(self.consts)]

    @property
    def carry_params(self) -> tuple[Value, ...]:
        """The body's view of the carries."""
        start = 1 + len(self.consts)
        return self.body.params[start : start + len(self.init)]

    @property
    def x_params(self) -> tuple[Value, ...]:
        """The body's view of the scanned rows."""
        return self.body.params[1 + len(self.consts) + len(self.init) :]

    @property
    def next(self) -> tuple[Value, ...]:
        """The body's new carries."""
        return self.body.outputs[: len(self.init)]

    @property
    def rows(self) -> tuple[Value, ...]:
        """The body's stacked results."""
        return self.body.outputs[len(self.init) :]

    @property
    def x_reverse(self) -> tuple[bool, ...]:
        """One flag per scanned operand."""
        flags: tuple[bool, ...] = self.node.attrs["reverse"]
        return flags[: len(self.xs)]

    @property
    def y_reverse(self) -> tuple[bool, ...]:
        """One flag per stacked result."""
        flags: tuple[bool, ...] = self.node.attrs["reverse"]
        return flags[len(self.xs) :]

    @property
    def finals(self) -> tuple[Value, ...]:
        """The carries after the last step."""
        return self.node.values[: len(self.init)]

    @property
    def ys(self) -> tuple[Value, ...]:
        """Stacked results."""
        return self.node.values[len(self.init) :]


def rebuilt(
    name: str,
    loop: Loop,
    consts: Sequence[tuple[Value, Value]],
    carries: Sequence[tuple[Value, Value, Value]],
    xs: Sequence[tuple[Value, Value, bool]],
    ys: Sequence[tuple[Value, bool]],
    env: Mapping[Value, Value] | None = None,
) -> Node:
    """The loop again over other operands.

    consts (outside, inside), carries (first, inside, next), xs (outside, inside, reverse), ys
    (inside, reverse); a value inside is a parameter of the old body or a new one. env: old
    parameters that others stand for, and values that replace others.
    """
    fresh: dict[Value, Value] = dict(env) if env is not None else {}
    step = parameter("step", STEP)
    params = [step]
    fresh[loop.step] = step
    groups = (
        ("const", [p for _, p in consts]),
        ("carry", [p for _, p, _ in carries]),
        ("x", [p for _, p, _ in xs]),
    )
    for word, inside in groups:
        for i, p in enumerate(inside):
            fresh[p] = parameter(f"{word}{i}", p.type)
            params.append(fresh[p])
    for old, new in (
        env if env is not None else {}
    ).items():  # another old parameter, or a value as it is
        fresh[old] = fresh.get(new, new)
    outputs = clone([*(v for _, _, v in carries), *(v for v, _ in ys)], fresh)
    body = Graph(name, params, outputs)
    flags = (*(r for _, _, r in xs), *(r for _, r in ys))
    return scan_node(
        body, tuple(v for v, _ in consts), tuple(v for v, _, _ in carries),
        tuple(v for v, _, _ in xs), length=loop.length, reverse=flags, count=loop.count,
    )  # fmt: skip


def clone(values: Sequence[Value], env: dict[Value, Value]) -> list[Value]:
    """The values over what `env` maps their leaves to; `env` gains every value that is cloned."""
    pending = [v.node for v in values]
    for n in needed(pending, env):
        new = n.with_args(tuple(map_arg(a, env) for a in n.args))
        for old, made in zip(n.values, new.values, strict=True):
            env.setdefault(old, made)
    return [env[v] for v in values]


def needed(roots: Sequence[Node], env: Container[Value]) -> list[Node]:
    """Nodes that the roots need beyond what `env` gives; inputs first."""
    found: set[Node] = set()
    todo = list(roots)
    while todo:
        n = todo.pop()
        if n in found or all(v in env for v in n.values):
            continue
        found.add(n)
        todo.extend(v.node for v in n.inputs if v not in env)
    return [n for n in topological(roots) if n in found]


def new_param(name: str, t: TensorType) -> Value:
    """A parameter for `rebuilt`, which gives it its final name."""
    return parameter(name, t)
