"""A call of a random graph (`growth_cases.py`) held to the NumPy meaning, and its slopes to differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from growth_cases import Arrays, Call, Case
from roundoff import limits

import lstm_ir as li
from lstm_ir.ir import dims

Array = np.ndarray[Any, Any]
# Errors of a call: of the interpreter and of the compiled module the same.
REFUSALS = (li.CallError, li.ValueRangeError)
Run = Callable[[Arrays, Arrays], Mapping[str, Any]]  # from inputs and state, to outputs and what state becomes


def state_before(case: Case, call: Call, kept: Mapping[str, Any] | None) -> Arrays:
    """By input name: what the state holds that the entry reads; `kept` as the executable has it."""
    reads, _ = case.program.binding.get(call.entry, ({}, {}))
    out = {}
    for port, name in reads.items():
        before = None if call.fresh or kept is None else _kept(kept, name)
        if before is None:
            start = case.program.state[name]
            shape = tuple(dims.evaluate(d, call.env) for d in start.type.shape)
            before = np.broadcast_to(start.initial.array, shape).copy()
        out[port] = before
    return out


def _kept(kept: Mapping[str, Any], name: str) -> Array | None:
    """None where no call has succeeded yet, so that sizes of the state are not known."""
    try:
        return np.asarray(kept[name])
    except li.CallError:
        return None


def difference(case: Case, call: Call, before: Arrays, run: Run, rng: np.random.Generator) -> str | None:
    """How a call differs from the meaning; a call that is not compared gives None."""
    graph = case.program.entries[call.entry]
    given = call.arrays | before
    refused: li.LstmIrError | None = None
    want: Arrays = {}
    try:
        want = li.interpret(graph, given)
    except REFUSALS as e:
        refused = e

    @cache
    def far() -> Mapping[str, Any]:
        return limits(graph, given, call.env, want, rng)

    infinite = [n for n in case.program.finite.get(call.entry, ()) if n in want and not np.isfinite(want[n]).all()]
    if infinite:
        refused = li.ValueRangeError(f"{infinite} are not finite")
    try:
        got = run(call.arrays, before)
    except li.LstmIrError as e:
        if refused is not None and isinstance(e, type(refused)):
            return None
        if isinstance(e, li.ValueRangeError) and _on_the_edge(case, call, far()):
            return None
        return f"a call fails: {type(e).__name__}: {e}"
    if refused is not None:
        edge = bool(infinite) and _on_the_edge(case, call, far())
        return None if edge else f"not refused, as li.interpret does: {refused}"
    if all(_same(np.asarray(got[n]), w) for n, w in want.items()):
        return None
    for name, w in want.items():
        worst = far()[name].worst(np.asarray(got[name]), w)
        if worst is not None:
            at, a, b = worst
            return f"{call.entry}: {name}{at} is {a}, expected {b}"
    return None


def _on_the_edge(case: Case, call: Call, far: Mapping[str, Any]) -> bool:
    """Whether rounding decides if what must be finite is."""
    return not all(far[n].kept.all() for n in case.program.finite.get(call.entry, ()) if n in far)


def _same(got: Array, want: Array) -> bool:
    """Equal in every element: no bound has to be known."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    return bool(((got == want) | ((got != got) & (want != want))).all())


def on(exe: li.Executable, case: Case, call: Call) -> Run:
    """How an executable runs the call; its state is as it was left."""
    _, writes = case.program.binding.get(call.entry, ({}, {}))

    def run(arrays: Arrays, _: Arrays) -> Mapping[str, Any]:
        got = dict(exe.entries[call.entry](arrays))
        return got | {port: exe.state[name] for port, name in writes.items()}

    return run


def by_differences(case: Case, rng: np.random.Generator) -> str | None:
    """How the slope along a random way differs from differences of the meaning, where these settle."""
    assert case.smooth is not None
    call = next(c for c in case.calls if c.entry == case.smooth)
    graph = case.program.entries[call.entry]
    given = call.arrays | state_before(case, call, None)
    given = {
        n: a + np.asarray(rng.normal(0, 0.2, a.shape), a.dtype) if a.dtype.kind == "f" else a for n, a in given.items()
    }
    found = {n[2:]: d for n, d in li.interpret(graph, given).items() if n.startswith("d_")}
    found = {n: d for n, d in found.items() if d.dtype == np.float64}  # narrower ones do not take a step of 1e-5
    ways = {n: rng.normal(size=d.shape) for n, d in found.items()}
    cts = {n: given.get(f"ct_{n}", 1.0) for n in graph.output_names if f"ct_{n}" in given or n == "loss"}
    alone = li.Graph("alone", graph.params, {n: graph.output(n) for n in cts})

    def risen(by: float) -> Array:
        """The sums of the outputs and of their sizes, which say how far the first is rounded."""
        out = li.interpret(alone, {n: a + by * ways[n] if n in ways else a for n, a in given.items()})
        parts = [out[n] * ct for n, ct in cts.items()]
        return np.array([sum(float(np.sum(p)) for p in parts), sum(float(np.sum(np.abs(p))) for p in parts)])

    with np.errstate(all="ignore"):
        ends = {h: (risen(h), risen(-h)) for h in (4e-5, 1e-5)}
        steps = [(a[0] - b[0]) / (2 * h) for h, (a, b) in ends.items()]
        rounding = max(a[1] for a, _ in ends.values()) * np.finfo(np.float64).eps / 1e-5
        terms = [float(np.sum(d * ways[n])) for n, d in found.items()]
        scale = 1 + sum(map(abs, terms))
        if rounding > 1e-5 * scale:  # the outputs are too large for their differences to say anything
            return None
        if not np.isfinite([*steps, *terms]).all() or abs(steps[0] - steps[1]) > 1e-5 * scale:
            return None
        if abs(sum(terms) - steps[1]) > 1e-4 * scale:
            return f"the slope is {sum(terms)}, differences give {steps[0]} and {steps[1]}"
    return None
