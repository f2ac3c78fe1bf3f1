"""What random graphs are compiled as: the graph alone, its slopes, a stream that keeps state, a training step.

Each is a `Case`: a program whose entries and state begin with the case's name, so that many make one module,
and calls of its entries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import growth_steps
import numpy as np
from growth import KINDS, NAMES, SIZES, Growth

import lstm_ir as li
from lstm_ir.ir import dims
from lstm_ir.ir.types import DType, TensorType

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Sizes = dict[str, int]


@dataclass
class Call:
    """Of an entry; `fresh`: its state starts anew."""

    entry: str
    env: Sizes
    arrays: Arrays
    fresh: bool = False


@dataclass
class Case:
    """A program and the calls of it, one after another.

    smooth: the entry that gives an output and, as `d_NAME`, its slopes by other inputs, all in f64.
    """

    name: str
    program: li.Program
    calls: list[Call]
    smooth: str | None = None


def joined(cases: Sequence[Case]) -> li.Program:
    """All programs in one."""
    parts = [c.program for c in cases]
    fields = ("entries", "state", "binding", "finite")
    merged = {f: {k: v for p in parts for k, v in getattr(p, f).items()} for f in fields}
    return li.Program("graphs", **merged)


def _named(program: li.Program, name: str) -> li.Program:
    """The program with this name before those of its entries and state."""

    def put(bound: Any) -> dict[str, str]:
        return {port: f"{name}.{state}" for port, state in bound.items()}

    return li.Program(
        name,
        {f"{name}.{n}": g for n, g in program.entries.items()},
        {f"{name}.{n}": replace(s, name=f"{name}.{n}") for n, s in program.state.items()},
        {f"{name}.{n}": (put(reads), put(writes)) for n, (reads, writes) in program.binding.items()},
        {f"{name}.{n}": f for n, f in program.finite.items()},
    )


def _sizes(g: Growth, inputs: Sequence[li.Value]) -> Iterator[Sizes]:
    """Values of the names: those that the graph was made for, then others, 0 and 1 among them."""
    yield g.env
    for _ in range(2 if g.named else 0):
        env = {n: int(g.rng.choice([0, 1, 1, 2, 3, 6, 13])) for n in NAMES}
        if all(dims.evaluate(d, env) >= 0 for v in inputs for d in v.shape):
            yield env


def plain(g: Growth, steps: int) -> Case:
    """A graph."""
    graph = growth_steps.graph(g, steps)
    calls = [Call(g.name, env, g.arrays(env)) for env in _sizes(g, g.inputs)]
    return Case(g.name, li.Program(g.name, {g.name: graph}), calls)


def sloped(g: Growth, steps: int) -> Case | None:
    """The float outputs of a graph and, for cotangents of them, the slopes by all float inputs."""
    graph = growth_steps.graph(g, steps)
    if any(n.op.name == "bitcast_convert" for n in graph.nodes):  # which has no slope by definition
        return None
    outputs = [n for n, v in zip(graph.output_names, graph.outputs, strict=True) if v.dtype.is_float]
    wrt = _with_slopes(graph, outputs, [p.node.attrs["name"] for p in graph.params if p.dtype.is_float])
    if not wrt:
        return None
    made = li.vjp(graph, outputs, wrt)
    g.inputs = list(made.params)
    slopes = li.Graph(g.name, made.params, dict(zip(made.output_names, made.outputs, strict=True)))
    calls = [Call(g.name, env, g.arrays(env)) for env in _sizes(g, g.inputs)]
    return Case(g.name, li.Program(g.name, {g.name: slopes}), calls, g.name if g.slopes else None)


def _with_slopes(graph: li.Graph, outputs: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names by which the outputs have a slope."""
    found = []
    for n in names if outputs else ():
        with contextlib.suppress(li.GradientError):
            li.vjp(graph, outputs, n)
            found.append(n)
    return found


def streamed(g: Growth, steps: int) -> Case | None:
    """A graph one or two of whose inputs are kept: what it gave is what the next call takes."""
    growth_steps.graph(g, steps)
    free = [v for v in g.inputs if v.node.attrs["name"] not in g.ranges]
    kept = [v for k, v in enumerate(free) if k < 1 or g.chance(0.3)][:2]
    if not kept:
        return None
    next_values = [_follower(g, v) for v in kept]
    told = {d for v in g.inputs if v not in kept for d in v.shape}
    missing = [d for d in map(dims.name, NAMES) if d not in told]
    if g.named and missing:
        g.input(TensorType(tuple(missing), DType.u8))
    names = {v.node.attrs["name"]: f"next{k}" for k, v in enumerate(kept)}
    outputs = {f"next{k}": v for k, v in enumerate(next_values)} | {"y": g.pick()}
    graph = li.Graph(g.name, g.inputs, outputs)
    fixed = [v for v in kept if v.type.is_static and g.chance()]
    start = {v.node.attrs["name"]: a for v, a in zip(fixed, _numbers(g, fixed), strict=True)}
    program = _named(li.stateful(graph, names, start).only("step"), g.name)
    entry, calls = f"{g.name}.step", []
    for env in _sizes(g, g.inputs):
        for turn in range(2):
            arrays = {n: a for n, a in g.arrays(env).items() if n not in names}
            calls.append(Call(entry, env, arrays, fresh=turn == 0))
    return Case(g.name, program, calls)


def _numbers(g: Growth, values: Sequence[li.Value]) -> list[Array]:
    drawn = g.arrays(g.env)
    return [drawn[v.node.attrs["name"]] for v in values]


def _follower(g: Growth, v: li.Value) -> li.Value:
    """A value of v's type that depends on it or on others."""
    found = [w for w in g.pool if w.type == v.type and w is not v]
    if found and g.chance(0.7):
        return g.among(found)
    join = li.logical_xor if v.dtype is DType.i1 else g.among([li.maximum, li.add])
    return join(v, g.like(v.type))


def trained(g: Growth, steps: int) -> Case | None:
    """A graph with a loss, as a program that trains up to four of its weights."""
    graph = growth_steps.graph(g, steps)
    floats = [v for v in g.pool if v.dtype in (DType.f32, DType.f64) and all(map(g.at, v.shape))]
    weights = {n: v for n, v in graph.weights.items() if v.dtype in (DType.f32, DType.f64)}
    if not floats or any(n.op.name == "bitcast_convert" for n in graph.nodes):
        return None
    v = g.among(floats[-3:])
    for w in list(weights.values())[:4]:  # so that the loss depends on weights
        if w.dtype is v.dtype and not any(n is w.node for n in li.Graph("of", g.inputs, {"v": v}).nodes):
            v = v * li.mean(w) if all(map(g.at, w.shape)) else v
    loss = li.mean(li.tanh(v) * v) if v.rank else li.tanh(v) * v
    graph = li.Graph(g.name, g.inputs, {"loss": loss, "y": g.pick()})
    names = [n for n in _with_slopes(graph, ["loss"], list(weights)) if n not in _running(graph)][:4]
    if not names:
        return None
    # A rate that is a number: with a name it is f32, and differences ask for f64 alone.
    rate = "lr" if g.chance() and not g.slopes else 0.05
    optimizer = g.among([
        li.sgd(rate), li.sgd(rate, weight_decay=0.1), li.momentum(rate, 0.8, nesterov=g.chance()),
        li.adam(rate), li.adamw(rate, weight_decay=0.1),
    ])  # fmt: skip
    clip, remat = g.among([None, None, 0.5]), g.among([None, None, 2])
    try:
        options: dict[str, Any] = {"clip_norm": clip, "remat": remat, "stop_on_nan": g.chance(0.7)}
        made = li.train_step(graph, "loss", optimizer, names, grads=True, **options)
    except (
        li.GradientError
    ) as e:  # no gradient by `remat`; results that training alone keeps; literals that it would move
        if remat and "does not influence" in str(e):  # expanded, an op shows which of its results read a weight
            return None
        if any(w in str(e) for w in ("remat", "the entry infer", "has a plain array as its")):
            return None
        raise
    kept = ["grads", "train"] if g.slopes else g.among([["train"], ["train", "infer"], ["grads", "apply"]])
    made = made.only(*(n for n in kept if n in made.entries))
    program = _named(made, g.name)
    calls = [
        Call(f"{g.name}.{entry}", env, _fed(g, program.signature().entries[f"{g.name}.{entry}"], env))
        for env in _sizes(g, g.inputs)
        for entry in ("grads", "train", "train", "infer", "apply")
        if entry in made.entries and (env is g.env or entry == "train")
    ]
    return Case(g.name, program, calls, f"{g.name}.grads" if g.slopes else None)


def _running(graph: li.Graph) -> set[str]:
    """Weights that a batch norm moves when it trains."""
    norms = [n for n in graph.nodes if n.op.name == "batch_norm_results" and n.attrs["training"]]
    held = [n.arg(name) for n in norms for name in ("held_mean", "held_var")]
    return {v.node.attrs["name"] for v in held if isinstance(v, li.Value) and v.op == "weight"}


def _fed(g: Growth, entry: Any, env: Sizes) -> Arrays:
    """Arrays for an entry: the graph's inputs, and what training adds."""
    drawn = g.arrays(env)
    for p in entry.inputs:
        if p.name not in drawn:
            shape = tuple(dims.evaluate(d, env) for d in p.type.shape)
            drawn[p.name] = np.asarray(0.3 * g.rng.standard_normal(shape), p.type.dtype.numpy)
    if "lr" in drawn:
        drawn["lr"] = np.float32(0.05) * np.ones((), np.float32)
    return {p.name: drawn[p.name] for p in entry.inputs}


def grown(
    rng: np.random.Generator, named: bool, number: int, kinds: Sequence[str], literals: int,
    sizes: Sequence[int] = SIZES,
) -> Case:  # fmt: skip
    """The case of this number of a module: every fourth has slopes, every eighth keeps state, every 16th trains."""
    while True:
        f64 = "f64" in kinds and rng.random() < 0.5  # held to differences
        trains, slopes = number % 16 == 5, number % 4 == 3
        few = ("f64", *(k for k in KINDS if k not in ("f16", "bf16", "f32"))) if trains else ("f64",)
        g = Growth(
            rng, named, f"g{number}", few if f64 and (trains or slopes) else kinds,
            literals=6 if trains else literals, slopes=f64 and (trains or slopes), sizes=sizes,
        )  # fmt: skip
        build: Any = trained if trains else sloped if slopes else streamed if number % 8 == 1 else plain
        case: Case | None = build(g, g.whole(1, 6))
        if case is not None:
            return case
