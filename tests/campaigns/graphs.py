"""Random legal graphs: what compiles, and whether it is right.

A trial is a module of many graphs over the public ops (`tests/graphs/growth_steps.py`), with numbers or names
for sizes. Results on IREE's workers, with kernels and without, are held to `li.interpret`, within what roundings
make of each graph (`tests/graphs/roundoff.py`); so are gradients in f64, which are held to differences too, and
the portable module on XLA's CPU. A graph that is wrong, or that the compiler refuses, is made smaller and shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import campaign
import numpy as np
import xla
from growth import NAMES, Growth
from growth_steps import graph as grown
from roundoff import limits
from shrink import shrunk

import lstm_ir as li
from lstm_ir.ir import dims

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
GRAPHS = 16  # of a module
SHRINK = 60.0  # seconds
DEVICE = "local-task"
# Errors of a call: of the interpreter and of the compiled module the same.
REFUSALS = (li.CallError, li.ValueRangeError)


@dataclass
class Case:
    """A graph, and the sizes and arrays of its calls."""

    graph: li.Graph
    calls: list[tuple[dict[str, int], Arrays]]


def trial(rng: np.random.Generator, number: int) -> str:
    """Grow a module, and hold every way to run it to the meaning of its graphs."""
    told: list[str] = []
    cases = list(_cases(rng, number % 2 == 1, told))
    ways: list[dict[str, Any]] = [{}, {"kernels": False}, {"verify": True}]
    options = ways[number // 2 % 3]
    wrong, refused = _held(cases, options, rng)
    told += wrong
    if number % 8 == 0:
        told += _on_xla(cases, rng)
    if told:
        raise AssertionError("\n".join(told))
    return f"{GRAPHS} graphs" + "".join(f", refused: {why}" for why in sorted(set(refused)))


def _cases(rng: np.random.Generator, named: bool, told: list[str]) -> Iterator[Case]:
    """Graphs of any type and, in f64, gradients of graphs, whose meaning is held to differences."""
    made = 0
    while made < GRAPHS:
        smooth = made % 4 == 3
        g = Growth(rng, named, f"g{made}", *([("f64",)] if smooth else []))
        graph = grown(g, g.whole(1, 6))
        if smooth:
            slopes = _slopes(graph)
            if slopes is None:
                continue
            g.inputs = list(slopes.params)
            arrays = g.arrays(g.env)
            wrong = _by_differences(graph, slopes, arrays, rng)
            told += [] if wrong is None else [f"{wrong}\n{graph}"]
            graph = slopes
        yield Case(graph, [(env, g.arrays(env)) for env in _sizes(g)])
        made += 1


def _sizes(g: Growth) -> Iterator[dict[str, int]]:
    """Values of the names: those that the graph was made for, then others, 0 and 1 among them."""
    yield g.env
    for _ in range(2 if g.named else 0):
        env = {n: int(g.rng.choice([0, 1, 1, 2, 3, 6, 13])) for n in NAMES}
        if all(dims.evaluate(d, env) >= 0 for v in g.inputs for d in v.shape):
            yield env


# -- one target


def _held(cases: list[Case], options: dict[str, Any], rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """What is wrong, and what this project refuses to compile, in one module."""
    told: list[str] = []
    refused: list[str] = []
    exe = None
    while cases and exe is None:
        try:
            exe = _compiled(cases, options)
        except li.CompileError as e:
            bad = _culprit(cases, options)
            if bad is None:
                return [*told, f"a module of {len(cases)} graphs that compile one by one: {e}"], refused
            told.append(_shown("the compiler fails", bad, bad.calls[0][1], options, str(e), compiles=True))
            cases = [c for c in cases if c is not bad]
        except li.LoweringError as e:
            kept = [c for c in cases if not _refused(c, options)]
            if len(kept) == len(cases):
                return [*told, f"a module of {len(cases)} graphs of which none alone is refused: {e}"], refused
            refused += [str(e).splitlines()[0]] * (len(cases) - len(kept))
            cases = kept
    if exe is None:
        return told, refused
    for c in cases:
        for env, arrays in c.calls:
            wrong = _difference(c.graph, exe.entries[c.graph.name], env, arrays, rng)
            if wrong is not None:
                told.append(_shown("wrong", c, arrays, options, wrong))
                break
    exe.close()
    return told, refused


def _compiled(cases: list[Case], options: Mapping[str, Any]) -> li.Executable:
    program = li.Program("graphs", {c.graph.name: c.graph for c in cases})
    return li.compile(program, device=DEVICE, options={"cache": False, **options})


def _culprit(cases: list[Case], options: Mapping[str, Any]) -> Case | None:
    """A graph that alone does not compile, found by halves."""
    if len(cases) > 1:
        half = len(cases) // 2
        for part in (cases[:half], cases[half:]):
            try:
                _compiled(part, options).close()
            except li.CompileError:
                return _culprit(part, options)
        return None
    return cases[0]


def _refused(case: Case, options: Mapping[str, Any]) -> bool:
    try:
        _compiled([case], options).close()
    except li.LoweringError:
        return True
    except li.CompileError:
        pass
    return False


def _difference(
    graph: li.Graph, run: Any, env: Mapping[str, int], arrays: Arrays, rng: np.random.Generator
) -> str | None:
    """How a call differs from the meaning."""
    refused: li.LstmIrError | None = None
    want: Arrays = {}
    try:
        want = li.interpret(graph, arrays)
    except REFUSALS as e:
        refused = e
    try:
        got = run(arrays)
    except li.LstmIrError as e:
        alike = refused is not None and isinstance(e, type(refused))
        return None if alike else f"a call fails: {type(e).__name__}: {e}"
    if refused is not None:
        return f"not refused, as li.interpret does: {refused}"
    far = limits(graph, arrays, env, want, rng)
    for name, w in want.items():
        worst = far[name].worst(np.asarray(got[name]), w)
        if worst is not None:
            at, a, b = worst
            return f"{name}{at} is {a}, expected {b}"
    return None


def _shown(what: str, case: Case, arrays: Arrays, options: Mapping[str, Any], said: str, compiles: bool = False) -> str:
    """The defect, and the smallest graph that shows it."""
    env = next(env for env, given in case.calls if given is arrays)
    rng = np.random.default_rng(0)

    def fails(graph: li.Graph, given: Arrays) -> bool:
        try:
            exe = _compiled([Case(graph, [])], options)
        except li.CompileError:
            return compiles
        except li.LstmIrError:
            return False
        with exe:
            return not compiles and _difference(graph, exe.entries[graph.name], env, given, rng) is not None

    small, given = shrunk(case.graph, arrays, fails, SHRINK)
    held = "\n".join(f"  {n} = {a.tolist() if a.size <= 16 else a.shape}" for n, a in given.items())
    return f"{what}, options {dict(options)}: {said}\n{small}\n{held}"


# -- other ways


def _on_xla(cases: list[Case], rng: np.random.Generator) -> list[str]:
    """The portable module, on XLA's CPU."""
    told = []
    for c in cases:
        (env, arrays) = c.calls[0]
        wrong = _difference(c.graph, lambda given, g=c.graph: xla.run(g, given), env, arrays, rng)
        if wrong is not None:
            told.append(f"wrong on XLA: {wrong}\n{c.graph}")
    return told


def _slopes(graph: li.Graph) -> li.Graph | None:
    """The float outputs and, for cotangents of them, the slopes by all float inputs that they depend on."""
    if any(n.op.name == "bitcast_convert" for n in graph.nodes):  # which has no slope by definition
        return None
    outputs = [n for n, v in zip(graph.output_names, graph.outputs, strict=True) if v.dtype.is_float]
    wrt = []
    for p in graph.params:
        if p.dtype.is_float and outputs:
            with contextlib.suppress(li.GradientError):
                li.vjp(graph, outputs, p.node.attrs["name"])
                wrt.append(p.node.attrs["name"])
    if not wrt:
        return None
    made = li.vjp(graph, outputs, wrt)
    return li.Graph(graph.name, made.params, dict(zip(made.output_names, made.outputs, strict=True)))


def _by_differences(graph: li.Graph, slopes: li.Graph, given: Arrays, rng: np.random.Generator) -> str | None:
    """How the slope along a random way differs from differences of the meaning, where these settle."""
    given = {n: a + rng.normal(0, 0.2, a.shape) if a.dtype.kind == "f" else a for n, a in given.items()}
    found = {n[2:]: d for n, d in li.interpret(slopes, given).items() if n.startswith("d_")}
    ways = {n: rng.normal(size=d.shape) for n, d in found.items()}

    def risen(by: float) -> float:
        moved = {n: a + by * ways[n] if n in ways else a for n, a in given.items() if n in graph.input_names}
        out = li.interpret(graph, moved)
        return sum(float(np.sum(out[n[3:]] * ct)) for n, ct in given.items() if n.startswith("ct_"))

    with np.errstate(all="ignore"):
        steps = [(risen(h) - risen(-h)) / (2 * h) for h in (4e-5, 1e-5)]
        terms = [float(np.sum(d * ways[n])) for n, d in found.items()]
        scale = 1 + sum(map(abs, terms))
        if not np.isfinite([*steps, *terms]).all() or abs(steps[0] - steps[1]) > 1e-5 * scale:
            return None
        if abs(sum(terms) - steps[1]) > 1e-4 * scale:
            return f"the slope is {sum(terms)}, differences give {steps[0]} and {steps[1]}"
    return None


if __name__ == "__main__":
    campaign.main(trial, seconds=600)
