"""A scan put together again, over other operands and with another body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lstm_ir.ir.clone import clone
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.scan.node import STEP, scan_node


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
    groups = (("const", [p for _, p in consts]), ("carry", [p for _, p, _ in carries]), ("x", [p for _, p, _ in xs]))
    for word, inside in groups:
        for i, p in enumerate(inside):
            fresh[p] = parameter(f"{word}{i}", p.type)
            params.append(fresh[p])
    for old, new in (env if env is not None else {}).items():  # another old parameter, or a value as it is
        fresh[old] = fresh.get(new, new)
    outputs = clone([*(v for _, _, v in carries), *loop.stop, *(v for v, _ in ys)], fresh)
    body = Graph(name, params, outputs)
    flags = (*(r for _, _, r in xs), *(r for _, r in ys))
    return scan_node(
        body, tuple(v for v, _ in consts), tuple(v for v, _, _ in carries),
        tuple(v for v, _, _ in xs), length=loop.length, reverse=flags, count=loop.count, until=loop.until,
    )  # fmt: skip


def new_param(name: str, t: TensorType) -> Value:
    """A parameter for `rebuilt`, which gives it its final name."""
    return parameter(name, t)
